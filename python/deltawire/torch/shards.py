"""What this rank holds of a tensor: all of it, or a box of a `DTensor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from deltawire._internal.tensors import Tensor
from deltawire.errors import InternalError, Unsupported


@dataclass(frozen=True)
class Form:
    """A box of a tensor, in words that ranks can compare."""

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.extent == self.shape


@dataclass(frozen=True)
class Piece:
    """A tensor of the model, as far as it is here."""

    form: Form
    whole: Any
    """As the model has it: a parameter, a `DTensor`, any array."""
    local: Any
    """What of it lies in this process's memory."""

    @property
    def name(self) -> str:
        """In the chain."""
        return self.form.name

    def placed(self, local: Any) -> Any:
        """`local`, with its place in the tensor."""
        return local if self.form.whole else Tensor(local, shape=self.form.shape, offset=self.form.offset)


def piece_of(name: str, value: Any) -> Piece | None:
    """What is here of a tensor; None: nothing, other ranks hold it."""
    if is_sharded(value):
        return _piece_of_dtensor(name, value)
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    extent = tuple(getattr(tensor.array, "shape", ()))
    shape = extent if tensor.shape is None else tuple(tensor.shape)
    offset = (0,) * len(shape) if tensor.offset is None else tuple(tensor.offset)
    return Piece(Form(name, shape, offset, extent), value, value)


def held_of(name: str, value: Any) -> Any:
    """What of a tensor lies here, to be written in place: the value itself, or the box that is this rank's shard."""
    if not is_sharded(value):
        return value
    piece = piece_of(name, value)
    if piece is None:  # a box without elements: nothing of it
        shape = tuple(value.shape)
        return Tensor(torch.empty((0, *shape[1:]), dtype=value.dtype), shape=shape, offset=(0,) * len(shape))
    return piece.placed(piece.local)


def is_sharded(value: Any) -> bool:
    """Whether it is a `DTensor`: the module that has it is not imported to find out."""
    return isinstance(value, torch.Tensor) and hasattr(value, "placements") and hasattr(value, "device_mesh")


def _piece_of_dtensor(name: str, value: Any) -> Piece | None:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in value.placements):
        raise Unsupported(f'tensor "{name}": is a partial sum on each rank ({value.placements}); redistribute it first')
    if value.device_mesh.get_coordinate() is None:
        return None
    local = local_of(value)
    shape = tuple(value.shape)
    if local.numel() == 0 and value.numel() != 0:
        return None
    extent, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    if tuple(local.shape) != tuple(extent):
        raise InternalError(f'tensor "{name}": this rank holds {tuple(local.shape)}, {value.placements} say {tuple(extent)}')
    return Piece(Form(name, shape, tuple(offset), tuple(extent)), value, local)


def local_of(value: Any) -> Any:
    """The shard of a `DTensor` that lies here."""
    with torch.no_grad():
        local = value.to_local()
    return local.wait() if hasattr(local, "wait") else local
