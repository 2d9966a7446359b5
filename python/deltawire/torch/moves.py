"""A model's shards, wherever they are, for `deltawire.shards`: what this rank holds, how it is read, how it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from deltawire._internal.options import Select
from deltawire._internal.reader import Choice
from deltawire._internal.tensors import Source, Tensor, readable
from deltawire.errors import InvalidArgument, Unsupported
from deltawire.shards import ShardBox, ShardLayout, StagedShard
from deltawire.torch.shards import Piece, local_of, piece_of
from deltawire.torch.state import chosen_tensors

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class HeldShards:
    """What this rank holds of a module, a state dict or pairs: whole tensors, boxes (`Tensor`) and shards of `DTensor`.

    Tensors on a GPU are copied box by box, no more than a slice at a time.

    >>> import torch, deltawire.torch as dwt
    >>> held = dwt.HeldShards(torch.nn.Linear(4, 2))
    >>> [(box.name, box.dtype, box.extent) for box in held.layout.boxes(0)]
    [('bias', 'F32', (2,)), ('weight', 'F32', (2, 4))]
    """

    def __init__(self, source: Source | torch.nn.Module) -> None:
        """Tensors are read and written where they are then; a parameter that is replaced by another object is not noticed."""
        self._pieces: dict[str, list[Piece]] = {}
        for name, value in chosen_tensors(source, Choice(Select())):
            piece = piece_of(name, value)
            if piece is not None:
                self._pieces.setdefault(name, []).append(piece)

    @property
    def layout(self) -> ShardLayout:
        """Of this rank alone; `gather_layouts` makes one of all."""
        return ShardLayout.of_boxes(_box_of(piece) for pieces in self._pieces.values() for piece in pieces)

    def read(self, name: str, offset: tuple[int, ...], extent: tuple[int, ...], room: Any) -> None:
        """Copy a box to `room`: what `ShardSender` and `ShardReceiver` take as `read`."""
        view = self._view(name, offset, extent).detach().contiguous().reshape(-1)
        torch.frombuffer(room, dtype=torch.uint8).copy_(view.view(torch.uint8))

    def write(self, staged: Iterable[StagedShard]) -> None:
        """Write what a receiver has staged; then tell it by `committed()`."""
        with torch.no_grad():
            for shard in staged:
                self._write(shard)

    def _write(self, shard: StagedShard) -> None:
        if shard.dtype == "C64":
            raise Unsupported(f'tensor "{shard.name}": complex numbers are not written in place')
        view = self._view(shard.name, shard.offset, shard.extent)
        if view.dim() == 0:
            view = view.reshape(1)  # of the same memory
        live = view.view(_BITS[view.element_size()])
        values = torch.from_numpy(np.asarray(shard.values)).view(live.dtype).to(live.device)
        if shard.positions is None:
            live.copy_(values.reshape(live.shape))
            return
        places = np.unravel_index(np.asarray(shard.positions), tuple(live.shape))
        live[tuple(torch.from_numpy(np.asarray(at)).to(live.device) for at in places)] = values

    def _view(self, name: str, offset: tuple[int, ...], extent: tuple[int, ...]) -> torch.Tensor:
        for piece in self._pieces.get(name, ()):
            inside = [at - begin for at, begin in zip(offset, piece.form.offset, strict=True)]
            ends = zip(inside, extent, piece.form.extent, strict=True)
            if all(at >= 0 and at + size <= most for at, size, most in ends):
                local = _array(piece)
                return local[tuple(slice(at, at + size) for at, size in zip(inside, extent, strict=True))]
        raise InvalidArgument(f'tensor "{name}": box {offset} + {extent} is not held here')


def _array(piece: Piece) -> torch.Tensor:
    local = local_of(piece.whole) if hasattr(piece.whole, "to_local") else piece.local
    array = local.array if isinstance(local, Tensor) else local
    if not isinstance(array, torch.Tensor):
        raise InvalidArgument(f'tensor "{piece.name}": is no tensor of torch')
    return array


def _box_of(piece: Piece) -> ShardBox:
    form = piece.form
    dtype = readable([(form.name, _array(piece)[..., :0] if _array(piece).dim() else _array(piece))])[0].dtype
    return ShardBox(form.name, dtype, form.shape, form.offset, form.extent)
