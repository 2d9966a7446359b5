"""Pieces of a model as those of a quantised checkpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import InvalidArgument
from deltawire.quantize.amax import Agreed
from deltawire.quantize.quantizer import Planned, Quantised, Quantizer, Shard
from deltawire.tensors import Tensor, readable
from deltawire.torch.shards import Piece

if TYPE_CHECKING:
    from deltawire.torch.old_scales import OldScales

WINDOW_BYTES = 256 << 20
_LEAST_KEPT = 4  # tensors are hashed while others are put, and these are read in pieces


def quantised(
    quantizer: Quantizer,
    pieces: list[Piece],
    held: list[Piece],
    first: bool,
    agreed: Agreed | None = None,
    old: OldScales | None = None,
    elsewhere: Collection[str] = (),
) -> Iterator[Quantised]:
    """What is to be published in place of `pieces`; `held` is all that this rank has, `first` whether it is rank 0.

    `agreed`: see `agreed_amaxes`. `old`: for hysteresis. `elsewhere`: names that other ranks have.
    """
    shards, beside = map(shard_of, pieces), map(shard_of, held)
    if old is not None:
        old.begin()
    return quantizer.quantised(shards, beside, first, agreed, old, elsewhere)


def planned(
    quantizer: Quantizer,
    pieces: list[Piece],
    held: list[Piece],
    first: bool,
    agreed: Agreed | None,
    there: Callable[[Any], bool],
    elsewhere: Collection[str],
) -> Iterator[Planned]:
    """The same, not made yet. `there`: the library works on tensors of that device where they are."""
    return quantizer.planned(map(shard_of, pieces), map(shard_of, held), first, agreed, there, elsewhere)


class Window:
    """The last tensors that were made: a publisher reads each in pieces, and some more than once."""

    def __init__(self, num_bytes: int = WINDOW_BYTES) -> None:
        self._room = num_bytes
        self._kept: OrderedDict[int, list[_core.Tensor]] = OrderedDict()
        self._lock = Lock()  # of two threads that want the same, one makes it

    def get(self, key: int, make: Callable[[], list[_core.Tensor]]) -> list[_core.Tensor]:
        """What was made under this key, or is made now."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
                self._shrink()
            self._kept.move_to_end(key)
            return self._kept[key]

    def _shrink(self) -> None:
        sizes = [sum(tensor.size_bytes for tensor in made) for made in self._kept.values()]
        total = sum(sizes)
        for size in sizes[:-_LEAST_KEPT]:
            if total <= self._room:
                break
            self._kept.popitem(last=False)
            total -= size


def publishable(
    plan: Planned, key: int, window: Window, reach: Callable[[Quantised], Any], on_gpu: bool
) -> Iterator[_core.Tensor]:
    """For the library: tensors that are made as it reads them, in host memory or `on_gpu`.

    `reach` brings what was made there.
    """
    if plan.blocks is not None:
        elements, scales = plan.forms
        yield plan.blocks.publishable(elements.shard.name, *_place(elements.shard))
        yield from readable([(scales.shard.name, boxed(scales, plan.blocks.scales()))])
        return

    made = plan.make
    assert made is not None

    def make() -> list[_core.Tensor]:
        tensors = readable((one.shard.name, boxed(one, reach(one))) for one in made())
        if on_gpu:  # in a thread of the library, whose stream is another
            torch.cuda.current_stream(plan.device).synchronize()
        return tensors

    for number, form in enumerate(plan.forms):
        shard = form.shard
        shape, offset = _place(shard)
        assert form.dtype is not None  # what is made has one
        yield _core.made(
            shard.name,
            form.dtype,
            list(shard.tensor.shape),
            shape,
            offset,
            on_gpu=on_gpu,
            make=lambda number=number: window.get(key, make)[number],
        )


def _place(shard: Shard) -> tuple[list[int] | None, list[int] | None]:
    return (None, None) if shard.is_whole else (list(shard.shape), list(shard.offset))


def shard_of(piece: Piece) -> Shard:
    """What a quantiser works on: a tensor of torch, or an array of numpy as one."""
    local = piece.local
    if isinstance(local, Tensor) and local.dtype is None and local.cast is None:
        local = local.array
    if not isinstance(local, torch.Tensor):
        try:
            if isinstance(local, np.ndarray):
                local = np.asarray(local, order="C")  # torch has no strides that are negative
            local = torch.from_numpy(local)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f'tensor "{piece.name}": to be quantised it must be a tensor of torch, or what torch makes one of: {error}'
            ) from None
    return Shard(piece.name, local.detach(), piece.form.shape, piece.form.offset)


def boxed(made: Quantised, local: Any) -> Any:
    """For the library: with the dtype that it has, so that it is not cast, and with its place."""
    shard = made.shard
    if shard.is_whole:
        return local if made.dtype is None else Tensor(local, dtype=made.dtype)
    return Tensor(local, dtype=made.dtype, shape=shard.shape, offset=shard.offset)
