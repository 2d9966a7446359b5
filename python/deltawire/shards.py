"""From a trainer's shards to an engine's, rank to rank: layouts, the plan between two of them, and what moves along it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltawire import _core
from deltawire._internal.output import plural
from deltawire._internal.tensors import Source, readable, writable
from deltawire.carriers import Carrier, carrier_handle
from deltawire.errors import InvalidArgument
from deltawire.live import Proof

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

Read = Callable[[str, tuple[int, ...], tuple[int, ...], Buffer], None]
"""Fills a room with a box, row by row: name of the tensor, offset, extent, room."""


@dataclass(frozen=True)
class ShardBox:
    """A box of a tensor that a rank holds."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]


class ShardLayout:
    """Which boxes of which tensors each rank holds.

    >>> import numpy as np, deltawire as dw
    >>> from deltawire.shards import ShardLayout, plan_shards
    >>> whole = np.zeros((4, 6), np.float32)
    >>> trainer = ShardLayout.of_rank({"w": whole})
    >>> halves = [dw.Tensor(whole[:, :3], shape=(4, 6), offset=(0, 0)), dw.Tensor(whole[:, 3:], shape=(4, 6), offset=(0, 3))]
    >>> engine = ShardLayout.join([ShardLayout.of_rank({"w": half}) for half in halves])
    >>> plan_shards(trainer, engine)
    ShardPlan(1 trainer rank -> 2 engine ranks, 2 edges)
    """

    def __init__(self, core: _core.ShardLayout) -> None:
        """Use the class methods."""
        self._core = core

    @classmethod
    def of_rank(cls, tensors: Source) -> ShardLayout:
        """What one rank holds: arrays, or `Tensor` for boxes. `deltawire.torch.HeldShards` knows modules and `DTensor`."""
        return cls.of_boxes(_box_of(tensor) for tensor in readable(tensors))

    @classmethod
    def of_boxes(cls, boxes: Iterable[ShardBox]) -> ShardLayout:
        """The same from words alone."""
        words = [(one.name, one.dtype, list(one.shape), list(one.offset), list(one.extent)) for one in boxes]
        return cls(_core.ShardLayout.of_boxes(words))

    @classmethod
    def join(cls, parts: Sequence[ShardLayout]) -> ShardLayout:
        """The ranks of all of them, in this order."""
        return cls(_core.ShardLayout.join([part._core for part in parts]))

    @classmethod
    def of_spec(cls, spec: str, checkpoint: str | os.PathLike[str]) -> ShardLayout:
        """All ranks, from words such as "tp=4" or "tp=2,ep=2" and a checkpoint's tensors."""
        return cls(_core.ShardLayout.of_spec(spec, Path(checkpoint)))

    @classmethod
    def parse(cls, text: str) -> ShardLayout:
        """From the text of another process. `Corruption` when it is none."""
        return cls(_core.ShardLayout.parse(text))

    @property
    def text(self) -> str:
        """For other processes and files, as JSON."""
        return self._core.text()

    @property
    def num_ranks(self) -> int:
        """How many there are."""
        return self._core.num_ranks

    def boxes(self, rank: int) -> list[ShardBox]:
        """What a rank holds, by tensor."""
        return [
            ShardBox(name, dtype, tuple(shape), tuple(offset), tuple(extent))
            for name, dtype, shape, offset, extent in self._core.boxes(rank)
        ]

    def rank_bytes(self, rank: int) -> int:
        """Bytes of what a rank holds."""
        return self._core.rank_bytes(rank)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardLayout) and self._core.equals(other._core)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ShardLayout({plural(self.num_ranks, 'rank')})"


@dataclass(frozen=True)
class ShardRefusal:
    """Why a layout cannot be served shard to shard."""

    obstacle: str
    """missing-tensor, other-dtype, other-shape, gap or cut-bytes."""
    tensor: str
    words: str


class ShardPlan:
    """Who sends which boxes to whom: the same on every rank that made it of the same layouts."""

    def __init__(self, core: _core.ShardPlan) -> None:
        """Use `plan_shards`."""
        self._core = core

    @property
    def digest(self) -> str:
        """What both ends compare before anything moves."""
        return self._core.digest

    @property
    def num_trainers(self) -> int:
        """Ranks of the trainer: ranks 0 and up of a group."""
        return self._core.num_trainers

    @property
    def num_engines(self) -> int:
        """Ranks of the engine, which follow in a group."""
        return self._core.num_engines

    @property
    def edges(self) -> dict[tuple[int, int], int]:
        """Bytes of weights from trainer rank to engine rank."""
        return {(trainer, engine): size for trainer, engine, size in self._core.edges()}

    @property
    def model_bytes(self) -> int:
        """Of all tensors: what a broadcast would send to each engine rank."""
        return self._core.model_bytes

    @property
    def refusals(self) -> list[ShardRefusal]:
        """What stands in the way; none: the plan can be used."""
        return [ShardRefusal(*words) for words in self._core.refusals()]

    def check(self) -> None:
        """`Unsupported`, naming obstacle and tensor, when there are refusals: broadcast versions instead."""
        self._core.check()

    def __repr__(self) -> str:
        trainers, engines = plural(self.num_trainers, "trainer rank"), plural(self.num_engines, "engine rank")
        return f"ShardPlan({trainers} -> {engines}, {plural(len(self._core.edges()), 'edge')})"


def plan_shards(
    trainer: ShardLayout, engine: ShardLayout, *, trainer_rank: int | None = None, engine_rank: int | None = None
) -> ShardPlan:
    """Plan once, on every rank. A rank that names itself keeps what it needs alone."""
    return ShardPlan(_core.plan_shards(trainer._core, engine._core, trainer_rank, engine_rank))


ShardReport = _core.ShardReport
"""What a version took on one rank."""


class ShardSender:
    """A trainer rank's side: sends what changed since the version that each receiver holds, and all where that is too old.

    >>> import threading, numpy as np
    >>> from deltawire.carriers import local_group
    >>> from deltawire.shards import ShardLayout, ShardReceiver, ShardSender, plan_shards
    >>> weights, mine = {"w": np.arange(8.0)}, {"w": np.zeros(8)}
    >>> layout = ShardLayout.of_rank(weights)
    >>> plan = plan_shards(layout, layout)
    >>> sender, receiver = ShardSender(plan, 0, weights), ShardReceiver(plan, 0, mine)
    >>> trainer, engine = local_group(2)
    >>> sending = threading.Thread(target=sender.send, args=(trainer, 1))
    >>> sending.start()
    >>> receiver.receive(engine).version
    1
    >>> receiver.commit()
    >>> sending.join()
    >>> mine["w"]
    array([0., 1., 2., 3., 4., 5., 6., 7.])
    """

    def __init__(
        self,
        plan: ShardPlan,
        rank: int,
        tensors: Source = (),
        *,
        read: Read | None = None,
        timeout: float = 300,
        bucket_bytes: int = 512 << 20,
        slice_bytes: int = 16 << 20,
        threads: int = 0,
        history_bytes: int | None = None,
    ) -> None:
        """Send `tensors`, in host memory, or what `read` gives of them.

        A snapshot of what is sent is kept in host memory, and `history_bytes` (None: an eighth of it) of what leads back to
        versions before, for receivers that missed some. The tensors must stay as they are while `send` is at work.
        """
        self._tensors = [] if read is not None else writable(tensors)
        self._core = _core.ShardSender(
            plan._core, rank, self._tensors, read, float(timeout), bucket_bytes, slice_bytes, threads, history_bytes
        )

    def send(self, carrier: Carrier, version: int) -> ShardReport:
        """Every rank of the group sends, or receives. Ranks that were lost are in the report; others have the version."""
        return self._core.send(carrier_handle(carrier), version)

    def proof(self) -> Proof:
        """What this rank holds, for `prove_shards`."""
        return _proof(self._core.proof())

    @property
    def version(self) -> int | None:
        """That was sent last."""
        return self._core.version

    @property
    def snapshot_bytes(self) -> int:
        """Of host memory."""
        return self._core.snapshot_bytes


@dataclass(frozen=True)
class StagedShard:
    """What has come of one box, checked and not yet written."""

    name: str
    dtype: str
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    positions: Any
    """Elements of the box, ascending, as uint64; None: all of them."""
    values: Any
    """Their bytes, as uint8."""


class ShardReceiver:
    """An engine rank's side: receives and checks, then writes; or lets an engine swap in what is `staged`."""

    def __init__(
        self,
        plan: ShardPlan,
        rank: int,
        tensors: Source = (),
        *,
        read: Read | None = None,
        timeout: float = 300,
        bucket_bytes: int = 512 << 20,
        slice_bytes: int = 16 << 20,
        threads: int = 0,
    ) -> None:
        """Receive into `tensors`, in host memory; or decode against what `read` gives, and leave writing to the caller."""
        self._tensors = [] if read is not None else writable(tensors)
        self._core = _core.ShardReceiver(
            plan._core, rank, self._tensors, read, float(timeout), bucket_bytes, slice_bytes, threads
        )

    def receive(self, carrier: Carrier) -> ShardReport:
        """Get the next version and check all of it. Nothing is written; after a failure everything is as it was."""
        return self._core.receive(carrier_handle(carrier))

    @property
    def staged(self) -> list[StagedShard]:
        """What `receive` got, copied."""
        return [StagedShard(*words) for words in self._core.staged()]

    def commit(self) -> None:
        """Write it to the tensors."""
        self._core.commit(self._tensors)

    def committed(self, *, written: bool = True) -> None:
        """The caller has written what was staged. Not `written`: nobody knows what there is, and the next version comes whole."""
        self._core.committed(written)

    def discarded(self) -> None:
        """The caller has not written it."""
        self._core.discarded()

    def proof(self) -> Proof:
        """What this rank holds, for `prove_shards`."""
        return _proof(self._core.proof())

    @property
    def version(self) -> int | None:
        """That was committed."""
        return self._core.version


def prove_shards(carrier: Carrier, plan: ShardPlan, proof: Proof, timeout: float = 300) -> int:
    """Whether engine ranks hold what trainer ranks hold, by sums alone; how many tensors were compared. All ranks call it.

    `BaseMismatch`, on every rank, names tensors that differ.
    """
    return _core.prove_shards(carrier_handle(carrier), plan._core, proof._core, float(timeout))


def gather_layouts(carrier: Carrier, own: ShardLayout, num_trainers: int, timeout: float = 60) -> tuple[ShardLayout, ShardLayout]:
    """Layouts of trainer and engine from what each rank of a group says of itself. All ranks call it, once."""
    texts = gather_texts(carrier, own.text, range(carrier.size), timeout)
    layouts = [own if rank == carrier.rank else ShardLayout.parse(texts[rank]) for rank in range(carrier.size)]
    return ShardLayout.join(layouts[:num_trainers]), ShardLayout.join(layouts[num_trainers:])


def gather_texts(carrier: Carrier, own: str, ranks: Iterable[int], timeout: float) -> dict[int, str]:
    """What each of these ranks says, this one too. All of them call it."""
    text = own.encode()
    others = [rank for rank in ranks if rank != carrier.rank]
    sizes = {rank: bytearray(8) for rank in others}
    head = len(text).to_bytes(8, "little")
    carrier.exchange([(rank, head) for rank in others], list(sizes.items()), timeout)
    rooms = {}
    for rank, words in sizes.items():
        size = int.from_bytes(words, "little")
        if not 0 < size <= _MOST_LAYOUT_BYTES:
            raise InvalidArgument(f"rank {rank}: a layout of {size} bytes")
        rooms[rank] = bytearray(size)
    carrier.exchange([(rank, text) for rank in others], list(rooms.items()), timeout)
    try:
        return {rank: room.decode() for rank, room in rooms.items()} | {carrier.rank: own}
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"a layout that is no text: {error}") from None


_MOST_LAYOUT_BYTES = 256 << 20


def _box_of(tensor: _core.Tensor) -> ShardBox:
    offset, extent = tensor.box
    return ShardBox(tensor.name, tensor.dtype, tuple(tensor.shape), tuple(offset), tuple(extent))


def _proof(core: _core.Proof) -> Proof:
    proof = Proof.__new__(Proof)
    proof._core = core
    return proof
