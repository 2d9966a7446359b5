"""Pieces of a model as those of a quantised checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from deltawire.errors import InvalidArgument
from deltawire.quantize.quantizer import Quantised, Quantizer, Shard
from deltawire.tensors import Tensor
from deltawire.torch.shards import Piece


def quantised(quantizer: Quantizer, pieces: list[Piece], held: list[Piece], first: bool) -> Iterator[Quantised]:
    """What is to be published in place of `pieces`; `held` is all that this rank has, `first` whether it is rank 0."""
    return quantizer.quantised(map(shard_of, pieces), beside=map(shard_of, held), constants=first)


def shard_of(piece: Piece) -> Shard:
    """What a quantiser works on: a tensor of torch, or an array of numpy as one."""
    local = piece.local
    if isinstance(local, Tensor) and local.dtype is None and local.cast is None:
        local = local.array
    if not isinstance(local, torch.Tensor):
        try:
            local = torch.from_numpy(local)
        except TypeError:
            raise InvalidArgument(f'tensor "{piece.name}": to be quantised it must be a tensor of torch') from None
    return Shard(piece.name, local.detach(), piece.form.shape, piece.form.offset)


def boxed(made: Quantised, local: Any) -> Any:
    """For the library: with the dtype that it has, so that it is not cast, and with its place."""
    shard = made.shard
    if shard.is_whole:
        return local if made.dtype is None else Tensor(local, dtype=made.dtype)
    return Tensor(local, dtype=made.dtype, shape=shard.shape, offset=shard.offset)
