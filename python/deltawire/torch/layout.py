"""The boxes of a model that this rank holds."""

from __future__ import annotations

import torch

from deltawire._internal.options import Select
from deltawire._internal.reader import Choice
from deltawire._internal.tensors import Source, Tensor, readable
from deltawire.shards import ShardBox
from deltawire.torch.shards import Piece, piece_of
from deltawire.torch.state import chosen_tensors


def layout_of(source: Source | torch.nn.Module) -> list[ShardBox]:
    """The boxes of a module, a state dict or pairs. The list of all ranks' is a layout.

    >>> import torch, deltawire.torch as dwt
    >>> [(box.name, box.dtype, box.extent) for box in dwt.layout_of(torch.nn.Linear(4, 2))]
    [('weight', 'F32', (2, 4)), ('bias', 'F32', (2,))]
    """
    pieces = (piece_of(name, value) for name, value in chosen_tensors(source, Choice(Select())))
    return [_box_of(piece) for piece in pieces if piece is not None]


def _box_of(piece: Piece) -> ShardBox:
    array = piece.local.array if isinstance(piece.local, Tensor) else piece.local
    nothing = array[..., :0] if array.ndim else array
    form = piece.form
    return ShardBox(
        form.name, readable([(form.name, nothing)])[0].dtype, tuple(form.shape), tuple(form.offset), tuple(form.extent)
    )
