"""Pieces of a model as those of a quantised checkpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
import torch

from deltawire import _core
from deltawire._internal.ranks import Ranks
from deltawire._internal.tensors import Tensor, readable
from deltawire.errors import InvalidArgument
from deltawire.quantize.quantizer import Planned, Quantised, Quantizer, Shard
from deltawire.quantize.scheme import Agreed, Amax, by_name
from deltawire.torch.shards import Piece

RECENT_BYTES = 256 << 20
_LEAST_KEPT = 4  # tensors are hashed while others are put, and these are read in pieces


class RecentTensors:
    """The last tensors that were made: a publisher reads each in pieces, and some more than once."""

    def __init__(self, num_bytes: int = RECENT_BYTES) -> None:
        self._most_bytes = num_bytes
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
        sizes = [sum(tensor.size_bytes for tensor in coded) for coded in self._kept.values()]
        total = sum(sizes)
        for size in sizes[:-_LEAST_KEPT]:
            if total <= self._most_bytes:
                break
            self._kept.popitem(last=False)
            total -= size


def publishable(
    plan: Planned, key: int, recent: RecentTensors, reach: Callable[[Quantised], Any], on_gpu: bool
) -> Iterator[_core.Tensor]:
    """For the library: tensors that are made as it reads them, in host memory or `on_gpu`.

    `reach` brings what was made there.
    """
    if plan.blocks is not None:
        elements, scales = plan.forms
        yield plan.blocks.publishable(elements.shard.name, *_place(elements.shard))
        yield from readable([(scales.shard.name, boxed(scales, plan.blocks.scales()))])
        return

    coded = plan.make
    assert coded is not None

    def make() -> list[_core.Tensor]:
        tensors = readable((one.shard.name, boxed(one, reach(one))) for one in coded())
        if on_gpu:  # in a thread of the library, whose stream is another
            torch.cuda.current_stream(plan.device).synchronize()
        return tensors

    for number, form in enumerate(plan.forms):
        shard = form.shard
        shape, offset = _place(shard)
        assert form.dtype is not None  # what is made has one
        yield _core.computed(
            shard.name,
            form.dtype,
            list(shard.tensor.shape),
            shape,
            offset,
            on_gpu=on_gpu,
            make=lambda number=number: recent.get(key, make)[number],
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
                f'tensor "{piece.name}": only torch tensors, and arrays that torch can convert, can be quantised: {error}'
            ) from None
    return Shard(piece.name, local.detach(), piece.form.shape, piece.form.offset)


def boxed(coded: Quantised, local: Any) -> Any:
    """For the library: with the dtype that it has, so that it is not cast, and with its place."""
    shard = coded.shard
    if shard.is_whole:
        return local if coded.dtype is None else Tensor(local, dtype=coded.dtype)
    return Tensor(local, dtype=coded.dtype, shape=shard.shape, offset=shard.offset)


def agreed_amaxes(quantizer: Quantizer, held: list[Piece], ranks: Ranks) -> Agreed | None:
    """Those of all ranks, where a scale may be of what two of them hold; None: there is nothing to agree on.

    All ranks call it. They send a number for each tensor that is cut, or one for each row, and no weights.
    """
    if not quantizer.agrees:
        return None

    def own() -> list[Amax]:
        return [replace(amax, values=amax.values.cpu()) for amax in quantizer.amaxes(map(shard_of, held))]

    return by_name(ranks.gather("scales", ranks.all_or_none(own)))
