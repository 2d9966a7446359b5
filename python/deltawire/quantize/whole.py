"""A quantised checkpoint is whole: codes have their scales, and scales their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from deltawire.errors import InvalidArgument
from deltawire.quantize.integers import Int4, PackedInt8
from deltawire.quantize.like import specs_of, weight_files
from deltawire.quantize.nvfp4 import Nvfp4
from deltawire.quantize.scheme import SCALES, Scheme

Schemes = Callable[[str], Scheme | None]
"""How a weight of the model is quantised."""

_CODES = (".weight", ".weight_packed")
_OF_CODES = (*(f".{scale}" for scale in SCALES), ".weight_shape", ".weight_zero_point")


def check_whole(checkpoint: Path, scheme_of: Schemes) -> None:
    """`InvalidArgument` names the tensor that is missing and the one it belongs to."""
    tensors = {name: dtype for file in weight_files(checkpoint) for name, dtype, _ in specs_of(file)}
    missing = missing_of(tensors, scheme_of)
    if missing is not None:
        there, absent = missing
        raise InvalidArgument(f"{checkpoint}: has {there} and no {absent}: a weight and its scales are published together")


def missing_of(tensors: Mapping[str, str], scheme_of: Schemes = lambda name: None) -> tuple[str, str] | None:
    """A tensor, of names and dtypes, that has lost its other half, and how that may be called.

    >>> missing_of({"a.weight": "F8_E4M3", "a.weight_scale": "F32", "b.weight": "BF16"})
    >>> missing_of({"a.weight_packed": "I32", "a.weight_shape": "I64"})
    ('a.weight_packed', 'a.weight_scale')
    >>> missing_of({"a.weight_scale_inv": "F32"})
    ('a.weight_scale_inv', 'a.weight or a.weight_packed')
    """
    for name in tensors:
        for wanted in _wanted(name, tensors, scheme_of):
            if not any(other in tensors for other in wanted):
                return name, " or ".join(wanted)
    return None


def _wanted(name: str, tensors: Mapping[str, str], scheme_of: Schemes) -> Iterator[tuple[str, ...]]:
    """What must be there because this one is: of each, one at least."""
    dtype = tensors[name]
    if name.endswith(".weight"):
        if dtype in ("F8_E4M3", "F8_E5M2", "I8"):
            yield f"{name}_scale_inv", f"{name}_scale"
        # Any mask may be U8: codes are what has a scale, or what the publisher would quantise so.
        elif dtype == "U8" and (isinstance(scheme_of(name), Nvfp4) or f"{name}_scale" in tensors or f"{name}_scale_2" in tensors):
            yield (f"{name}_scale",)
            yield (f"{name}_scale_2",)
    elif name.endswith(".weight_packed"):
        weight = name.removesuffix("_packed")
        scheme = scheme_of(weight)
        yield (f"{weight}_scale",)
        if dtype == "I32":
            yield (f"{weight}_shape",)
            if isinstance(scheme, (Int4, PackedInt8)) and not scheme.symmetric:
                yield (f"{weight}_zero_point",)
        elif tensors.get(f"{weight}_scale") == "F8_E4M3":
            yield (f"{weight}_global_scale",)
    elif name.endswith("_blocks") and dtype == "U8":
        yield (name.removesuffix("_blocks") + "_scales",)
    elif name.endswith("_scales") and dtype == "U8":
        yield (name.removesuffix("_scales") + "_blocks",)
    else:
        for ending in _OF_CODES:
            if name.endswith(ending):
                yield tuple(name.removesuffix(ending) + codes for codes in _CODES)
