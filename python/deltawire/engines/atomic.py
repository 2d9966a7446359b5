"""Atomic groups: tensors of a checkpoint that an engine must load together.

A weight needs its scales, zero points and shape. Engines fuse modules (q, k and v; gate and up; the experts of a layer), and
scale and repack them together. They only fuse siblings, so a group contains all tensors of a parent module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from deltawire.errors import BaseMismatch

_SCALE = re.compile(r"(^|[._])scales?(_inv|_2)?$")
_E8M0_NAN = 255  # of powers of two stored as U8


def atomic_group(tensor: str) -> str:
    """The group of a tensor.

    >>> atomic_group("model.layers.0.self_attn.q_proj.weight_scale")
    'model.layers.0.self_attn'
    >>> atomic_group("model.layers.0.mlp.experts.3.up_proj.weight")
    'model.layers.0.mlp.experts'
    >>> atomic_group("lm_head.weight")
    'lm_head'
    """
    module = tensor.rpartition(".")[0]
    parent = module.rpartition(".")[0]
    return re.sub(r"\.\d+$", "", parent) or module


def kind_of(tensor: str) -> str:
    """The kind of group: the same in all layers.

    >>> kind_of("model.layers.12.self_attn.q_proj.weight_scale")
    'model.layers.*.self_attn'
    """
    return re.sub(r"\.\d+(?=\.|$)", ".*", atomic_group(tensor))


def is_scale(tensor: str) -> bool:
    """Whether the tensor holds scales.

    >>> [is_scale(name) for name in ("a.weight_scale_inv", "a.down_proj_scales", "a.weight_scale_2", "a.scaled.weight")]
    [True, True, True, False]
    """
    return bool(_SCALE.search(tensor))


def check_scales(tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
    """Refuse a version with scales that are not finite."""
    for name, scale in tensors:
        if scale.dtype == torch.uint8:
            bad = scale == _E8M0_NAN
        elif scale.dtype.is_floating_point:
            bad = ~torch.isfinite(scale.float())
        else:
            continue
        if bad.any():
            at = int(bad.flatten().nonzero()[0])
            raise BaseMismatch(
                f'version {version}: tensor "{name}": scale {at:,} is {_text(scale, at)}, which makes weights NaN; '
                "publish a corrected version"
            )


def _text(scale: torch.Tensor, at: int) -> str:
    return "NaN" if scale.dtype == torch.uint8 else str(float(scale.flatten()[at]))
