"""Checks of a quantised checkpoint: codes have their scales, and the bytes are those of the trainer's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from deltawire.errors import InvalidArgument
from deltawire.quantize.integers import Int4, PackedInt8
from deltawire.quantize.like import specs_of, weight_files
from deltawire.quantize.nvfp4 import Nvfp4
from deltawire.quantize.quantizer import Quantised
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


_SHOWN = 8


def differences(coded: Iterable[Quantised], checkpoint: Path) -> dict[str, tuple[int, int]]:
    """Elements that differ, and all elements, of each tensor that is not the checkpoint's, bit for bit.

    One that the checkpoint does not have, or has in another dtype or shape, differs everywhere. Tensors are read and compared one
    after the other.
    """
    from safetensors import safe_open

    files = {name: file for file in weight_files(checkpoint) for name, _, _ in specs_of(file)}
    found: dict[str, tuple[int, int]] = {}
    for one in coded:
        shard = one.shard
        box = tuple(slice(begin, begin + extent) for begin, extent in zip(shard.offset, shard.tensor.shape, strict=True))
        there = None
        if shard.name in files:
            with safe_open(files[shard.name], framework="pt") as file:
                there = file.get_tensor(shard.name)
        changed = _num_changed(shard.tensor, None if there is None or tuple(there.shape) != shard.shape else there[box])
        if changed:
            before = found.get(shard.name, (0, 0))
            found[shard.name] = before[0] + changed, before[1] + shard.tensor.numel()
    return found


def words_of(found: dict[str, tuple[int, int]], checkpoint: Path) -> str:
    """Which tensors of a seed the trainer's weights do not give, and what follows from that; empty: none."""
    if not found:
        return ""
    largest = sorted(found.items(), key=lambda item: -item[1][0])
    shown = "; ".join(f"{name}: {changed:,} of {total:,}" for name, (changed, total) in largest[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    total = sum(changed for changed, _ in found.values())
    return (
        f"{checkpoint} is not what the trainer's weights are quantised to: {total:,} elements of {len(found)} tensors differ, "
        f"and the next version carries them: {shown}{more}"
    )


def _num_changed(ours: Any, theirs: Any) -> int:
    if theirs is None or theirs.dtype != ours.dtype:
        return int(ours.numel())
    if ours.numel() == 0:
        return 0
    size = ours.element_size()
    a, b = (tensor.cpu().contiguous().reshape(-1).view(torch.uint8).view(-1, size) for tensor in (ours, theirs))
    return int((a != b).any(dim=1).sum())
