"""Whether a quantised checkpoint is what the trainer's weights are quantised to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from deltawire.quantize.like import specs_of, weight_files
from deltawire.quantize.quantizer import Quantised

_SHOWN = 8


def differences(made: Iterable[Quantised], checkpoint: Path) -> dict[str, tuple[int, int]]:
    """Elements that differ, and all elements, of each tensor that is not the checkpoint's, bit for bit.

    One that the checkpoint does not have, or has in another dtype or shape, differs everywhere. Tensors are read and compared one
    after the other.
    """
    from safetensors import safe_open

    files = {name: file for file in weight_files(checkpoint) for name, _, _ in specs_of(file)}
    found: dict[str, tuple[int, int]] = {}
    for one in made:
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
