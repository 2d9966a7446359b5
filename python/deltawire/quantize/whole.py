"""A quantised checkpoint is whole: codes have their scales, and scales their codes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltawire.errors import InvalidArgument
from deltawire.quantize.like import specs_of, weight_files

_CODES = {"F8_E4M3", "F8_E5M2", "I8", "U8"}
_SCALES_OF = {".weight": (".weight_scale_inv", ".weight_scale"), ".weight_packed": (".weight_scale",), "_blocks": ("_scales",)}


def check_whole(checkpoint: Path) -> None:
    """`InvalidArgument` names the tensor that is missing and the one it belongs to."""
    tensors = {name: dtype for file in weight_files(checkpoint) for name, dtype, _ in specs_of(file)}
    missing = missing_of(tensors)
    if missing is not None:
        there, absent = missing
        raise InvalidArgument(f"{checkpoint}: has {there} and no {absent}: a weight and its scales are published together")


def missing_of(tensors: Mapping[str, str]) -> tuple[str, str] | None:
    """A tensor, of names and dtypes, that has lost its other half, and how that may be called.

    >>> missing_of({"a.weight": "F8_E4M3", "a.weight_scale": "F32", "b.weight": "BF16"})
    >>> missing_of({"a.weight_packed": "I32", "a.weight_shape": "I64"})
    ('a.weight_packed', 'a.weight_scale')
    >>> missing_of({"a.weight_scale_inv": "F32"})
    ('a.weight_scale_inv', 'a.weight')
    """
    for name, dtype in tensors.items():
        for ending, scales in _SCALES_OF.items():
            base = name.removesuffix(ending)
            if base == name or (ending == ".weight" and dtype not in _CODES):
                continue
            if not any(base + scale in tensors for scale in scales):
                return name, " or ".join(base + scale for scale in scales)
        for ending in (".weight_scale_inv", ".weight_scale", "_scales"):
            base = name.removesuffix(ending)
            if base != name and not any(base + codes in tensors for codes in _SCALES_OF):
                return name, base + ("_blocks" if ending == "_scales" else ".weight")
    return None
