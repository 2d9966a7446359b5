"""Converts pieces of a model to tensors of a quantised checkpoint."""

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
_LEAST_KEPT = 4  # several tensors are read at the same time


class RecentTensors:
    """Cache of computed tensors: a publisher reads each in pieces, and some more than once."""

    def __init__(self, num_bytes: int = RECENT_BYTES) -> None:
        self._most_bytes = num_bytes
        self._kept: OrderedDict[int, list[_core.Tensor]] = OrderedDict()
        self._lock = Lock()  # one thread computes what several need

    def get(self, key: int, make: Callable[[], list[_core.Tensor]]) -> list[_core.Tensor]:
        """The cached tensors of this key; computes them if needed."""
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
    """Tensors that are computed while the library reads them, in host memory or `on_gpu`. `reach` moves results there."""
    if plan.blocks is not None:
        elements, scales = plan.forms
        yield plan.blocks.publishable(elements.shard.name, *_place(elements.shard))
        yield from readable([(scales.shard.name, boxed(scales, plan.blocks.scales()))])
        return

    coded = plan.make
    assert coded is not None

    def make() -> list[_core.Tensor]:
        tensors = readable((one.shard.name, boxed(one, reach(one))) for one in coded())
        if on_gpu:  # the library reads them on another stream
            torch.cuda.current_stream(plan.device).synchronize()
        return tensors

    for number, form in enumerate(plan.forms):
        shard = form.shard
        shape, offset = _place(shard)
        assert form.dtype is not None  # computed tensors have one
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
    """A piece as a torch tensor, for the quantizer; numpy arrays are converted."""
    local = piece.local
    if isinstance(local, Tensor) and local.dtype is None and local.cast is None:
        local = local.array
    if not isinstance(local, torch.Tensor):
        try:
            if isinstance(local, np.ndarray):
                local = np.asarray(local, order="C")  # torch does not support negative strides
            local = torch.from_numpy(local)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f'tensor "{piece.name}": only torch tensors, and arrays that torch can convert, can be quantised: {error}'
            ) from None
    return Shard(piece.name, local.detach(), piece.form.shape, piece.form.offset)


def boxed(coded: Quantised, local: Any) -> Any:
    """For the library: with its dtype, which prevents a cast, and its place in the tensor."""
    shard = coded.shard
    if shard.is_whole:
        return local if coded.dtype is None else Tensor(local, dtype=coded.dtype)
    return Tensor(local, dtype=coded.dtype, shape=shard.shape, offset=shard.offset)


def agreed_amaxes(quantizer: Quantizer, held: list[Piece], ranks: Ranks) -> Agreed | None:
    """The amaxes of all ranks, for scales that cover more than one rank's shard; None: not needed.

    All ranks call it. They exchange a number per tensor or row, no weights.
    """
    if not quantizer.agrees:
        return None

    def own() -> list[Amax]:
        return [replace(amax, values=amax.values.cpu()) for amax in quantizer.amaxes(map(shard_of, held))]

    return by_name(ranks.gather("scales", ranks.all_or_none(own)))
