"""A worker's live weights as a rank's shards: its boxes, how they are read, and what becomes of those that have come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from deltawire.engines.map import EngineMap, Lists, as_bits, bits, differences, ordered
from deltawire.engines.shard_copies import HostCopies
from deltawire.engines.windows import BoxView, Window
from deltawire.errors import InvalidArgument
from deltawire.shards import ShardBox, ShardLayout, StagedShard


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
