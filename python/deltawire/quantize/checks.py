"""Checks a quantised checkpoint: weights have their scales, and the bytes match the trainer's weights."""

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
"""Returns how a weight of the model is quantised, by its name."""

_CODES = (".weight", ".weight_packed")
_OF_CODES = (*(f".{scale}" for scale in SCALES), ".weight_shape", ".weight_zero_point")


def check_whole(checkpoint: Path, scheme_of: Schemes) -> None:
    """`InvalidArgument` names a missing tensor and the one that it belongs to."""
    tensors = {name: dtype for file in weight_files(checkpoint) for name, dtype, _ in specs_of(file)}
    missing = missing_of(tensors, scheme_of)
    if missing is not None:
        there, absent = missing
        raise InvalidArgument(f"{checkpoint}: has {there} but no {absent}; publish a weight together with its scales")


def missing_of(tensors: Mapping[str, str], scheme_of: Schemes = lambda name: None) -> tuple[str, str] | None:
    """A tensor whose counterpart is missing, and the possible names of the counterpart. `tensors` maps names to dtypes.

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
    """Tensors that this one requires; of each tuple at least one."""
    dtype = tensors[name]
    if name.endswith(".weight"):
        if dtype in ("F8_E4M3", "F8_E5M2", "I8"):
            yield f"{name}_scale_inv", f"{name}_scale"
        # U8 may also be a mask: it is a code only if it has a scale, or if the publisher would quantise it.
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
    """Number of different elements and of all elements, by tensor that differs from the checkpoint.

    A tensor that the checkpoint lacks, or has in another dtype or shape, differs completely. Reads one tensor at a time.
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
    """A warning that the checkpoint differs from the quantised weights; "" if it does not."""
    if not found:
        return ""
    largest = sorted(found.items(), key=lambda item: -item[1][0])
    shown = "; ".join(f"{name}: {changed:,} of {total:,}" for name, (changed, total) in largest[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    total = sum(changed for changed, _ in found.values())
    return (
        f"{checkpoint} differs from the trainer's quantised weights: {total:,} elements of {len(found)} tensors differ, "
        f"and will be part of the next version: {shown}{more}"
    )


def _num_changed(ours: Any, theirs: Any) -> int:
    if theirs is None or theirs.dtype != ours.dtype:
        return int(ours.numel())
    if ours.numel() == 0:
        return 0
    size = ours.element_size()
    a, b = (tensor.cpu().contiguous().reshape(-1).view(torch.uint8).view(-1, size) for tensor in (ours, theirs))
    return int((a != b).any(dim=1).sum())
