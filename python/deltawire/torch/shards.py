"""The part of a tensor that this rank holds: all of it, or a box of a `DTensor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from deltawire._internal.tensors import Tensor
from deltawire.errors import InternalError, Unsupported


@dataclass(frozen=True)
class Form:
    """A box of a tensor, comparable across ranks."""

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
    """The part of a tensor that is in this process."""

    form: Form
    whole: Any
    """The model's tensor: a parameter, a `DTensor`, any array."""
    local: Any
    """Its part in this process's memory."""

    @property
    def name(self) -> str:
        """Its name in the chain."""
        return self.form.name

    def placed(self, local: Any) -> Any:
        """`local`, with its place in the tensor."""
        return local if self.form.whole else Tensor(local, shape=self.form.shape, offset=self.form.offset)


def piece_of(name: str, value: Any) -> Piece | None:
    """This process's part of a tensor; None: it holds nothing."""
    if is_sharded(value):
        return _piece_of_dtensor(name, value)
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    extent = tuple(getattr(tensor.array, "shape", ()))
    shape = extent if tensor.shape is None else tuple(tensor.shape)
    offset = (0,) * len(shape) if tensor.offset is None else tuple(tensor.offset)
    return Piece(Form(name, shape, offset, extent), value, value)


def held_of(name: str, value: Any) -> Any:
    """This process's part of a tensor, to be written in place."""
    if not is_sharded(value):
        return value
    piece = piece_of(name, value)
    if piece is None:  # a box without elements
        shape = tuple(value.shape)
        return Tensor(torch.empty((0, *shape[1:]), dtype=value.dtype), shape=shape, offset=(0,) * len(shape))
    return piece.placed(piece.local)


def is_sharded(value: Any) -> bool:
    """Whether it is a `DTensor`; does not import its module."""
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
        raise InternalError(
            f'tensor "{name}": this rank holds {tuple(local.shape)}, expected {tuple(extent)} from {value.placements}'
        )
    return Piece(Form(name, shape, tuple(offset), tuple(extent)), value, local)


def local_of(value: Any) -> Any:
    """The local shard of a `DTensor`."""
    with torch.no_grad():
        local = value.to_local()
    return local.wait() if hasattr(local, "wait") else local
