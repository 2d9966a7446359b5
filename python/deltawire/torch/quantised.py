"""Pieces of a model as those of a quantised checkpoint."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

import deltawire as dw
from deltawire import _core
from deltawire._internal.ranks import Ranks
from deltawire._internal.tensors import Tensor, readable
from deltawire.errors import InvalidArgument, NotFound
from deltawire.quantize.hysteresis import Old
from deltawire.quantize.like import specs_of, weight_files
from deltawire.quantize.quantizer import Planned, Quantised, Quantizer, Shard
from deltawire.quantize.scheme import SCALES, Agreed, Amax, by_name
from deltawire.torch.shards import Piece

RECENT_BYTES = 256 << 20
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
                f'tensor "{piece.name}": to be quantised it must be a tensor of torch, or what torch makes one of: {error}'
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


class OldScales(Old):
    """Those of the chain's newest version, so that a publisher that was restarted goes on with the same bytes.

    They are read from it when a publisher begins, and after whatever went wrong; from then on what is published is remembered.
    """

    def __init__(self, store: Any) -> None:
        """`store` is what the publisher was given."""
        super().__init__(lambda name: (self._known or {}).get(name))
        self._store = store
        self._known: dict[str, Any] | None = None
        self._used: list[tuple[str, Any, tuple[int, ...], tuple[int, ...]]] = []

    def begin(self) -> None:
        """A version is about to be made."""
        self._used = []
        if self._known is None:
            self._known = _read(self._store)

    def use(self, name: str, tensor: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
        """Remembers it until it is known whether it is published."""
        self._used.append((name, tensor, shape, offset))

    def published(self) -> None:
        """What was used is the newest version's."""
        for used in self._used:
            self._remember(*used)
        self._used = []

    def forget(self) -> None:
        """The chain knows better."""
        self._known, self._used = None, []

    def _remember(self, name: str, tensor: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
        assert self._known is not None
        if tuple(tensor.shape) == shape:
            self._known[name] = tensor
            return
        before = self._known.get(name)
        if before is None or tuple(before.shape) != shape or before.dtype != tensor.dtype:
            before = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        before[tuple(slice(begin, begin + size) for begin, size in zip(offset, tensor.shape, strict=True))] = tensor
        self._known[name] = before


def _read(store: Any) -> dict[str, Any]:
    """From the chain's newest version, by way of a checkpoint in a temporary folder."""
    from safetensors import safe_open

    try:
        if dw.Chain(store).head is None:
            return {}
    except NotFound:  # the first publish makes it
        return {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="deltawire-scales-") as folder:
        with dw.Replica(store, folder, heartbeat=False) as replica:
            replica.pull()
        for file in weight_files(Path(folder)):
            names = [name for name, _, _ in specs_of(file) if name.rpartition(".")[2] in SCALES]
            with safe_open(file, framework="pt") as opened:
                found.update((name, opened.get_tensor(name).clone()) for name in names)
    return found
