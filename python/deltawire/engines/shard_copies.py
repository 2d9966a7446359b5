"""Tensors that an engine alone can load, whole, in a worker's host memory: its loader is given them with every version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from deltawire.engines.checkpoint import DTYPE_NAMES
from deltawire.engines.map import as_bits, bits
from deltawire.errors import BaseMismatch, InvalidArgument, Unsupported
from deltawire.proof import Proof
from deltawire.shards import ShardBox, StagedShard
from deltawire.tensors import readable

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


class HostCopies:
    """Every worker has all of such a tensor: it comes to each of them, as a broadcast does, and the engine's loader cuts it."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    @property
    def names(self) -> Collection[str]:
        """Of all of them."""
        return self._tensors.keys()

    def put(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """What they are from now on."""
        self._tensors |= tensors

    def put_form(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """One that is to come in another form; what it is, the next version says."""
        if dtype not in _DTYPES:
            raise Unsupported(f'tensor "{name}": torch has no dtype {dtype}')
        self._tensors[name] = torch.zeros(shape, dtype=_DTYPES[dtype])

    def items(self, names: Iterable[str]) -> list[tuple[str, torch.Tensor]]:
        """Some of them, as `load_weights` takes them."""
        return [(name, self._tensors[name]) for name in sorted(names)]

    @property
    def boxes(self) -> list[ShardBox]:
        """Of a rank's layout."""
        return [
            ShardBox(name, DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), (0,) * tensor.dim(), tuple(tensor.shape))
            for name, tensor in self._tensors.items()
        ]

    def read(self, name: str, offset: tuple[int, ...], extent: tuple[int, ...], room: Any) -> None:
        """Copy a box to `room`."""
        view = _part(self._tensors[name], offset, extent).contiguous().reshape(-1)
        torch.frombuffer(room, dtype=torch.uint8).copy_(view.view(torch.uint8))

    def changed(self, staged: Iterable[StagedShard], digests: Mapping[str, str], *, anew: bool) -> dict[str, torch.Tensor]:
        """What they become, proven; `anew`: also those that stay what they are. Nothing is changed here."""
        found: dict[str, torch.Tensor] = {}
        for shard in staged:
            if shard.name not in self._tensors:
                continue
            tensor = found.get(shard.name)
            if tensor is None:
                tensor = found[shard.name] = self._tensors[shard.name].clone()
            _write(tensor, shard)
        for name, tensor in found.items():
            _prove(name, tensor, digests)
        return {
            name: tensor for name, tensor in found.items() if anew or not torch.equal(bits(tensor), bits(self._tensors[name]))
        }


def _part(tensor: torch.Tensor, offset: tuple[int, ...], extent: tuple[int, ...]) -> torch.Tensor:
    if any(at + size > most for at, size, most in zip(offset, extent, tensor.shape, strict=True)):
        raise InvalidArgument(f"box {offset} + {extent} is not held here")
    return tensor[tuple(slice(at, at + size) for at, size in zip(offset, extent, strict=True))]


def _write(tensor: torch.Tensor, shard: StagedShard) -> None:
    live = bits(_part(tensor, shard.offset, shard.extent))
    values = torch.from_numpy(as_bits(np.asarray(shard.values), tensor.element_size()))
    if shard.positions is None:
        live.copy_(values.reshape(live.shape))
    elif live.dim() == 0:
        live.copy_(values[0])
    else:
        places = np.unravel_index(np.asarray(shard.positions), tuple(live.shape))
        live[tuple(torch.from_numpy(np.asarray(at)) for at in places)] = values


def _prove(name: str, tensor: torch.Tensor, digests: Mapping[str, str]) -> None:
    """The engine's own bits of it cannot be proven; what its loader is given can."""
    proof = Proof()
    proof._core.add(readable([(name, tensor)]), 1)
    if name in digests and proof.digests[name] != digests[name]:
        raise BaseMismatch(f'tensor "{name}": what has come is not the version\'s')
