"""Who of a group is there: what trainer rank 0 knows of the other ranks and of the workers of engines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from deltawire.carriers import Hub
from deltawire.engines.shard_group import Message, packed, parsed
from deltawire.errors import Corruption, Error, Unavailable

log = logging.getLogger("deltawire")


@dataclass(frozen=True)
class _Caller:
    """One that has joined as a worker of an engine."""

    id: int
    name: str
    rank: int
    first: int  # rank of its engine's first worker
    workers: int
    server: str  # the same for all workers of an engine
    world_size: int | None

    @property
    def ranks(self) -> range:
        """Of its engine."""
        return range(self.first, self.first + self.workers)


class Roll:
    """By rank of the group, which member of the hub it is. Engines are there with all of their workers, or not at all."""

    def __init__(self, hub: Hub, address: str, trainers: int, size: int) -> None:
        self._hub, self._address, self._trainers, self._size = hub, address, trainers, size
        self.members: dict[int, int] = {}
        """Who is there."""
        self.newest = -1
        """Version that any of them said it holds."""
        self.refused: dict[int, str] = {}
        """Members that cannot be meant, and why."""
        self._engine_of: dict[int, range] = {}
        self._given_up: set[int] = set()  # ranks that are not waited for any more
        self._silent: set[int] = set()  # members that did not answer

    def wait(self, timeout: float, patience: float) -> None:
        """Until all are there: the trainer's ranks, for `timeout` seconds, else `Unavailable`; engines that were there before,
        for `patience` seconds; others for `timeout`, once.
        """
        begin = time.monotonic()
        while True:
            self.look()
            missing = self.missing
            waited = time.monotonic() - begin
            known = {rank for rank in missing if rank in self._engine_of}
            if waited >= patience:
                self._give_up(known)
            if waited >= timeout:
                self._give_up(missing)
            if not set(missing) - self._given_up and not self._is_alone:
                return
            if waited >= timeout:
                names = ", ".join(map(self.name, missing))
                raise Unavailable(f"{self._address}: {names} did not join in {timeout:g} s{self._why}")
            time.sleep(0.02)

    def look(self) -> None:
        """Who is there now. Those who cannot be meant are told so."""
        members: dict[int, int] = {}
        engines: dict[int, _Caller] = {}  # by rank
        refused: dict[int, str] = {}
        for info in sorted(self._hub.members(), key=lambda info: info.id):  # who joined again has a higher one
            words = hello_of(info.hello)
            self.newest = max(self.newest, -1 if words.get("version") is None else words["version"])
            if words.get("role") == "trainer" and 0 < words["rank"] < self._trainers:
                members[words["rank"]] = info.id
            caller = _caller(info.id, info.name, words)
            if caller is None or info.id in self._silent:
                continue
            why = self._objection(caller, engines)
            if why:
                refused[info.id] = why
                continue
            engines[caller.rank] = caller
        self._refuse(refused)
        for rank, caller in engines.items():
            self._engine_of[rank] = caller.ranks
            if all(other in engines and engines[other].server == caller.server for other in caller.ranks):
                members[rank] = caller.id
        self._given_up -= members.keys()
        self.members = members

    @property
    def missing(self) -> list[int]:
        """Ranks that are not there."""
        return [rank for rank in range(1, self._size) if rank not in self.members]

    @property
    def ranks(self) -> list[int]:
        """Those that are there, and rank 0."""
        return [0, *sorted(self.members)]

    @property
    def engines(self) -> list[int]:
        """Ranks of workers that are there."""
        return [rank for rank in sorted(self.members) if rank >= self._trainers]

    def with_others(self, ranks: Iterable[int]) -> set[int]:
        """These, and all other workers of their engines."""
        return {other for rank in ranks for other in self._engine_of.get(rank, (rank,))}

    def forget(self, ranks: Iterable[int]) -> None:
        """They did not answer: they are there again when they have joined again."""
        self._silent |= {self.members[rank] for rank in ranks if rank in self.members}
        self._give_up(self.with_others(ranks))

    def name(self, rank: int) -> str:
        """For people."""
        return f"trainer rank {rank}" if rank < self._trainers else f"engine worker {rank - self._trainers}"

    @property
    def _is_alone(self) -> bool:
        return not self.engines

    @property
    def _why(self) -> str:
        return "".join(f"; {why}" for why in self.refused.values())

    def _give_up(self, ranks: Iterable[int]) -> None:
        """The trainer's own ranks are never given up."""
        new = sorted(rank for rank in ranks if rank >= self._trainers and rank not in self._given_up)
        self._given_up |= set(new)
        if new:
            log.warning("deltawire: %s: not there; versions go to the others", ", ".join(map(self.name, new)))

    def _objection(self, caller: _Caller, engines: dict[int, _Caller]) -> str:
        workers = self._size - self._trainers
        if caller.world_size != self._size:
            count = f"{self._trainers} ranks of the trainer and {workers} engine workers"
            return f"{caller.name}: world_size={caller.world_size}: the trainer counts {self._size}, {count}"
        if caller.rank not in caller.ranks or caller.first < self._trainers or caller.ranks.stop > self._size:
            last = caller.ranks.stop - 1
            words = f"ranks {caller.first} to {last} are not among those of engine workers, {self._trainers} to {self._size - 1}"
            return f"{caller.name}: rank_offset={caller.first}: {words}"
        for other in engines.values():
            if other.server != caller.server and set(other.ranks) & set(caller.ranks):
                words = f"{other.name} came first with rank_offset={other.first}; each server needs ranks of its own"
                return f"{caller.name}: rank_offset={caller.first}: {words}"
        return ""

    def _refuse(self, refused: dict[int, str]) -> None:
        for member, why in refused.items():
            if member in self.refused:
                continue
            log.warning("deltawire: %s", why)
            try:
                self._hub.send(member, packed(do="refuse", error=why), 1)
            except Error as error:
                log.warning("deltawire: %s", error)
        self.refused = refused


def hello_of(message: bytes) -> Message:
    """Nothing, of a member that is here for something else."""
    try:
        words = parsed(message)
    except Corruption:
        return {}
    numbers = [words.get("rank"), words.get("version") or 0]
    return words if all(type(number) is int for number in numbers) else {}


def _caller(member: int, name: str, words: Message) -> _Caller | None:
    if words.get("role") != "engine":
        return None
    first, workers, server = words.get("first"), words.get("workers"), words.get("server")
    if type(first) is not int or type(workers) is not int or not 0 < workers < 1 << 16 or not isinstance(server, str):
        return None
    return _Caller(member, name, words["rank"], first, workers, server, words.get("world_size"))
