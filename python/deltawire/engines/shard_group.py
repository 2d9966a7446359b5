"""The group of a trainer's ranks and engines' workers, of which some may not be there; and the plan that all of it agree on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltawire.carriers import Buffer, Carrier
from deltawire.errors import Corruption, InvalidArgument, Unavailable
from deltawire.shards import ShardLayout, ShardPlan, ShardRefusal, gather_texts, plan_shards

Message = dict[str, Any]


def packed(**words: Any) -> bytes:
    """For the other end."""
    return json.dumps(words).encode()


def parsed(message: bytes) -> Message:
    """What the other end said. `Corruption` when it is another program's."""
    try:
        words = json.loads(message)
    except ValueError:
        words = None
    if not isinstance(words, dict):
        raise Corruption(f"not a word about shards: {message[:80]!r}")
    return words


def answer_about(receive: Callable[[float], bytes], did: str, about: int | str, timeout: float) -> Message:
    """That it was done, with what belongs to it, or that it failed. Words about what came before are of no use any more."""
    end = time.monotonic() + timeout
    while True:
        words = parsed(receive(max(0.001, end - time.monotonic())))
        if words.get("about") == about and ("error" in words or words.get("did") == did):
            return words
        if time.monotonic() >= end:
            raise Unavailable(f'timed out waiting for "{did}" of {about}')


_TRIES = 4  # to agree: each makes more tensors come whole

WHOLE = ("other-dtype", "cut-bytes")
"""What stands in the way of boxes, and not of whole tensors that the engine's own loader takes."""


class PartOfGroup(Carrier):
    """Those ranks of a group that are there, by their numbers in all of it. The others count as lost."""

    def __init__(self, inner: Carrier, ranks: Sequence[int], size: int) -> None:
        self._inner, self._ranks, self._size = inner, list(ranks), size
        self._places = {rank: place for place, rank in enumerate(ranks)}
        self.name, self.rank, self.size = inner.name, ranks[inner.rank], size

    def exchange(self, to: Sequence[tuple[int, Buffer]], from_: Sequence[tuple[int, Buffer]], timeout: float) -> None:
        """Among those that are there; then it says who is not."""
        absent = sorted({rank for rank, _ in [*to, *from_] if rank not in self._places})
        try:
            self._inner.exchange(self._inside(to), self._inside(from_), timeout)
        except Unavailable as error:
            raise Unavailable(f"{error}; the group has ranks {', '.join(map(str, self._ranks))} of {self._size}") from None
        if absent:
            raise Unavailable(f"{self.name}: {', '.join(f'rank {rank}' for rank in absent)} not in the group")

    def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
        """To those that are there."""
        if root not in self._places:
            raise Unavailable(f"{self.name}: rank {root} not in the group")
        self._inner.broadcast(self._places[root], data, timeout)

    def lost(self) -> list[int]:
        """Those that are not there, and those that went away."""
        gone = {self._ranks[place] for place in self._inner.lost()}
        return sorted(gone | (set(range(self._size)) - self._places.keys()))

    def abort(self) -> None:
        """End a call of another thread."""
        self._inner.abort()

    def _inside(self, spans: Sequence[tuple[int, Buffer]]) -> list[tuple[int, Buffer]]:
        return [(self._places[rank], span) for rank, span in spans if rank in self._places]


def part_of_group(carrier: Carrier, ranks: Sequence[int], size: int) -> Carrier:
    """The carrier itself where all are there."""
    return carrier if len(ranks) == size else PartOfGroup(carrier, ranks, size)


Adopt = Callable[[list[ShardRefusal], ShardLayout], None]
"""What a worker does with tensors that cannot come in boxes; it is given the trainer's layout too."""


class Meeting:
    """Makes the same plan on all ranks that are there. Rank 0 knows what those that are not there held."""

    def __init__(self, carrier: Carrier, ranks: Sequence[int], trainers: int, timeout: float) -> None:
        self._carrier, self._ranks, self._trainers, self._timeout = carrier, ranks, trainers, timeout
        self.texts: dict[int, str] = {}
        """Of all ranks' layouts, as the plan has them."""

    def plan(self, own: Callable[[], ShardLayout], known: Mapping[int, str], adopt: Adopt | None = None) -> ShardPlan:
        """`known`: layouts of ranks that are not there, on rank 0. Tensors that cannot come in boxes come whole, if they can."""
        rank = self._carrier.rank
        mine = {"trainer_rank": rank} if rank < self._trainers else {"engine_rank": rank - self._trainers}
        for _ in range(_TRIES):
            layouts = self._gather(own(), known if rank == 0 else {})
            trainer = ShardLayout.join(layouts[: self._trainers])
            plan = plan_shards(trainer, ShardLayout.join(layouts[self._trainers :]), **mine)
            refusals = plan.refusals
            if any(one.obstacle not in WHOLE for one in refusals) or not refusals:
                break
            if adopt is not None:
                adopt(refusals, trainer)
        plan.check()
        return plan

    def _gather(self, own: ShardLayout, known: Mapping[int, str]) -> list[ShardLayout]:
        absent = {rank: known.get(rank, "") for rank in range(self._carrier.size) if rank not in self._ranks}
        said = json.dumps({"own": own.text, "absent": absent if self._carrier.rank == 0 else {}})
        answer_about = gather_texts(self._carrier, said, self._ranks, self._timeout)
        words = {rank: _parsed(rank, text) for rank, text in answer_about.items()}
        self.texts = {rank: one["own"] for rank, one in words.items()}
        for rank, text in words[0]["absent"].items():
            self.texts[int(rank)] = text
        if sorted(self.texts) != list(range(self._carrier.size)):
            raise InvalidArgument(f"layouts of ranks {sorted(self.texts)}, not of {self._carrier.size}")
        return [self.layout(rank) for rank in range(self._carrier.size)]

    def layout(self, rank: int) -> ShardLayout:
        """What a rank holds; nothing, of one that never came."""
        return ShardLayout.parse(self.texts[rank]) if self.texts[rank] else ShardLayout.of_boxes([])


def _parsed(rank: int, text: str) -> Message:
    try:
        words: Message = json.loads(text)
        if isinstance(words["own"], str) and all(int(key) >= 0 and isinstance(one, str) for key, one in words["absent"].items()):
            return words
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise Corruption(f"rank {rank}: no layout: {text[:80]!r}")
