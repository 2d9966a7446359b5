"""Modules that engines fuse into one, and that share the scale of a tensor for that reason.

As ModelOpt's export has it (`preprocess_linear_fusion`: all that take the same input), and as vLLM expects it: of several
`weight_scale_2` it would take the largest, and warn.
"""

from __future__ import annotations

_FUSED = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
)
_BY_NAME = {part: parts for parts in _FUSED for part in parts}


def siblings(name: str) -> list[str]:
    """The weights that share a scale with this one, itself among them.

    >>> siblings("model.layers.0.mlp.up_proj.weight")
    ['model.layers.0.mlp.gate_proj.weight', 'model.layers.0.mlp.up_proj.weight']
    >>> siblings("model.layers.0.mlp.down_proj.weight")
    ['model.layers.0.mlp.down_proj.weight']
    """
    around, _, last = name.removesuffix(".weight").rpartition(".")
    prefix = f"{around}." if around else ""
    return [f"{prefix}{part}.weight" for part in _BY_NAME.get(last, (last,))]
