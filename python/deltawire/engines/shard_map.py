"""A worker's live weights as a rank's shards: its boxes, how they are read, and what becomes of those that have come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from deltawire._internal.tensors import readable
from deltawire.engines.checkpoint import DTYPE_NAMES
from deltawire.engines.map import BoxView, EngineMap, Lists, Window, as_bits, bits, differences, ordered
from deltawire.errors import BaseMismatch, InvalidArgument, Unsupported
from deltawire.live import Proof
from deltawire.shards import ShardBox, ShardLayout, StagedShard

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


class ShardMap:
    """The boxes of a map: of tensors that are kept as they are. The others are `copies`, whole."""

    def __init__(self, engine_map: EngineMap, copies: HostCopies) -> None:
        self._map, self._copies = engine_map, copies
        self._boxes: dict[str, list[BoxView]] = {name: engine_map.boxes(name) or [] for name in engine_map.plain}

    @property
    def layout(self) -> ShardLayout:
        """Of this worker alone. A box that is kept in two places is one."""
        plain = [
            ShardBox(name, self._map.forms[name].dtype_name, self._map.forms[name].shape, offset, extent)
            for name, boxes in self._boxes.items()
            for offset, extent in dict.fromkeys((box.offset, box.extent) for box in boxes)
        ]
        return ShardLayout.of_boxes(plain + self._copies.boxes)

    def read(self, name: str, offset: tuple[int, ...], extent: tuple[int, ...], room: Any) -> None:
        """Copy a box to `room`, as `ShardReceiver` asks for it."""
        if name in self._copies:
            self._copies.read(name, offset, extent, room)
            return
        box = self._inside(name, offset, extent)[0]
        view = box.of_array(self._map.arrays[box.array]).contiguous().reshape(-1)
        torch.frombuffer(room, dtype=torch.uint8).copy_(view.view(torch.uint8))

    def lists(self, staged: Iterable[StagedShard]) -> Lists:
        """What has come, as elements of the engine's own arrays; of whole boxes, what is other than it is there."""
        found: dict[int, list[tuple[Any, Any]]] = {}
        for shard in staged:
            if shard.name in self._copies:
                continue
            for box in self._inside(shard.name, shard.offset, shard.extent):
                offsets, values = self._changes(box, shard)
                if len(offsets):
                    found.setdefault(box.array, []).append((offsets, values))
        return [(bits(self._map.arrays[array]), *ordered(pairs)) for array, pairs in sorted(found.items())]

    def _changes(self, box: BoxView, shard: StagedShard) -> tuple[Any, Any]:
        array, values = self._map.arrays[box.array], np.asarray(shard.values)
        if shard.positions is None:
            rows = tuple(prod(box.extent[d + 1 :]) for d in range(len(box.extent)))
            window = Window(box.extent, 0, rows, box.array, box.array_first, box.array_strides)
            return differences(window, array, torch.from_numpy(values).view(array.dtype))
        offsets = np.full(len(shard.positions), box.array_first, np.int64)
        if box.extent:
            for index, stride in zip(np.unravel_index(shard.positions, box.extent), box.array_strides, strict=True):
                offsets += index * stride
        return offsets.astype(np.uint32), as_bits(values, array.element_size())

    def _inside(self, name: str, offset: tuple[int, ...], extent: tuple[int, ...]) -> list[BoxView]:
        """Where that part of a box lies: in one place, mostly."""
        found = []
        for box in self._boxes.get(name, ()):
            inside = [at - begin for at, begin in zip(offset, box.offset, strict=True)]
            if all(at >= 0 and at + size <= most for at, size, most in zip(inside, extent, box.extent, strict=True)):
                first = box.array_first + sum(at * stride for at, stride in zip(inside, box.array_strides, strict=True))
                found.append(replace(box, offset=offset, extent=extent, array_first=first))
        if not found:
            raise InvalidArgument(f'tensor "{name}": box {offset} + {extent} is not held here')
        return found
