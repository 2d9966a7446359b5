"""A trainer whose versions go from its ranks straight into the workers of serving engines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from deltawire._internal.tensors import Source
from deltawire.carriers import Carrier, Hub, Member, enter_group, open_group
from deltawire.engines.shard_group import Meeting, Message, answer_about, packed, parsed, part_of_group
from deltawire.errors import Error, InvalidArgument, Unavailable
from deltawire.live import Proof
from deltawire.shards import ShardReport, ShardSender
from deltawire.torch.moves import HeldShards
from deltawire.torch.shard_roll import Roll

log = logging.getLogger("deltawire")

_AFTER_FAILURE_SECONDS = 5.0  # in which workers of one engine take a version back


@dataclass(frozen=True)
class PublishedShards:
    """A version, and what became of it."""

    version: int
    report: ShardReport
    """Of this rank."""
    errors: dict[int, str]
    """By engine worker, from 0: why it does not serve the version. Where one fails, none of its engine takes it."""
    warnings: tuple[str, ...] = ()
    """Servers that were refused, on rank 0."""


class ShardPublisher:
    """Sends what changed in a trainer's shards to the workers of engines whose settings say `shards` (docs/carriers.md).

    One on each rank of the trainer; rank 0 listens at `address`, where all others join. All ranks make the same calls.
    """

    def __init__(
        self,
        source: Source | torch.nn.Module,
        address: str = "127.0.0.1:0",
        *,
        engine_workers: int,
        rank: int | None = None,
        ranks: int | None = None,
        secret: str = "",
        backend: str = "gloo",
        timeout: float = 300,
        patience: float = 30,
        threads: int = 0,
        history_bytes: int | None = None,
    ) -> None:
        """`source`: a module, a state dict or pairs, with the names and dtypes of the engines' checkpoint.

        `engine_workers` is the number of them in all engines. `rank` and `ranks` are torch's own unless they are given. `address`
        is one by which others reach rank 0. Every wait ends after `timeout` seconds.

        Engines that went away are waited for once, for `patience` seconds; then versions go to the others. `history_bytes` of
        host memory are for those that missed versions (`ShardSender`).
        """
        self.rank, self._ranks = _own_rank(rank, ranks)
        if engine_workers < 1:
            raise InvalidArgument(f"engine_workers={engine_workers}: must be at least 1")
        if address.rpartition(":")[0].strip("[]") in ("", "0.0.0.0", "::"):
            raise InvalidArgument(f'address "{address}": must be one by which the others reach rank 0, host:port')
        self._size = self._ranks + engine_workers
        self._held = HeldShards(source)
        self._secret, self._backend, self._timeout, self._threads = secret, backend, timeout, threads
        self._patience, self._history_bytes = min(patience, timeout), history_bytes
        self._hub = Hub(address, secret=secret) if self.rank == 0 else None
        self._member: Member | None = None
        self._address = address if self._hub is None else self._hub.address
        self._roll = None if self._hub is None else Roll(self._hub, self._address, self._ranks, self._size)
        self._members: dict[int, int] = {}  # of the hub, by rank of the group: those that have met
        self._taking: list[int] = []  # ranks of workers that were given the last version
        self._layouts: dict[int, str] = {}  # of all ranks, as they were when they met last
        self._carrier: Carrier | None = None
        self._sender: ShardSender | None = None
        self._plan_digest: str | None = None
        self._meetings = 0
        self._entered: set[int] = set()  # ranks that were heard of the last group
        self._last = -1

    @property
    def address(self) -> str:
        """Where engines and the other ranks join: `host:port`."""
        return self._address

    def publish(self, *, wait: bool = True) -> PublishedShards:
        """Send a version to all workers; with `wait`, until they serve it. The tensors must stay as they are meanwhile.

        Without `wait` it is `settle` that says what became of it. Workers that are not there are in `errors`; `Unavailable` names
        ranks of the trainer that are not, or that there is no engine at all.
        """
        if self._hub is None:
            return self._follow()
        try:
            published = self._publish(self._hub)
            if wait:
                published = replace(published, errors=published.errors | self.settle())
        except Exception as error:  # the other ranks wait
            self._leave()
            self._the_roll.look()  # who has joined again is told too
            self._members = dict(self._the_roll.members)
            self._send_message(self._hub, range(1, self._ranks), do="end", error=str(error))
            raise
        self._send_message(self._hub, range(1, self._ranks), do="end", about=published.version, **_end(published, self._carrier))
        return published

    def settle(self, timeout: float | None = None) -> dict[int, str]:
        """Wait until the last version is served; by engine worker, why it is not. On rank 0."""
        if self._hub is None:
            raise InvalidArgument(f"rank {self.rank}: rank 0 knows")
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        errors: dict[int, str] = {}
        for rank in self._taking:
            words = self._answer(self._hub, rank, "update", self._last, end - time.monotonic())
            if "error" in words:
                errors[rank - self._ranks] = words["error"]
                end = min(end, time.monotonic() + _AFTER_FAILURE_SECONDS)
        return errors

    def close(self) -> None:
        """Say goodbye: engines serve on."""
        self._leave()
        for end in (self._hub, self._member):
            if end is not None:
                end.close()

    # ---- rank 0

    @property
    def _the_roll(self) -> Roll:
        assert self._roll is not None
        return self._roll

    def _publish(self, hub: Hub) -> PublishedShards:
        self._taking = []
        self._come_together(hub)
        assert self._carrier is not None
        assert self._sender is not None
        roll = self._the_roll
        version = self._last + 1
        self._last = version
        self._send_message(hub, self._members, do="receive", about=version)
        report = self._sender.send(self._carrier, version)
        proof = self._sender.proof()
        for rank in range(1, self._ranks):
            proof += Proof.parse(self._checked(hub, rank, "receive", version)["proof"])
        answers = {rank: self._answer(hub, rank, "receive", version, self._timeout) for rank in roll.engines}
        errors = {rank: words["error"] for rank, words in answers.items() if "error" in words}
        if errors:  # no engine is given a version that came to half of its workers
            broken = roll.with_others(errors)
            self._send_message(hub, broken & self._members.keys(), do="drop", about=version)
            errors |= dict.fromkeys(broken - errors.keys(), "it came not to all workers of its engine")
            self._leave()
        self._taking = [rank for rank in roll.engines if rank not in errors]
        self._send_message(hub, self._taking, do="take", about=version, digests=proof.digests)
        errors |= dict.fromkeys(roll.missing, "is not there; it gets what it missed when it is back")
        by_worker = {rank - self._ranks: words for rank, words in sorted(errors.items())}
        return PublishedShards(version, report, by_worker, tuple(roll.refused.values()))

    def _come_together(self, hub: Hub) -> None:
        """A new group when somebody has come or gone. A worker that does not enter is left out of the next try; one that has
        joined again, or a rank, is in it.
        """
        roll = self._the_roll
        roll.wait(self._timeout, self._patience)
        self._last = max(self._last, roll.newest)
        if self._carrier is not None and self._members == roll.members:
            return
        end = time.monotonic() + self._timeout
        while True:
            self._leave()
            self._members = dict(roll.members)
            try:
                self._meet(hub, roll)
                return
            except Unavailable:
                silent = [rank for rank in roll.engines if not self._answers(hub, rank)]
                roll.forget(silent)
                roll.look()
                if not silent and (roll.members == self._members or time.monotonic() >= end):
                    raise
                roll.wait(self._timeout, self._patience)

    def _meet(self, hub: Hub, roll: Roll) -> None:
        self._meetings += 1
        self._entered = set()
        ranks, host = roll.ranks, self._address.rpartition(":")[0].strip("[]")
        gathering = open_group(len(ranks), backend=self._backend, host=host, secret=self._secret, timeout=self._timeout)
        words = {"ticket": gathering.ticket, "backend": self._backend, "size": self._size, "trainers": self._ranks}
        self._send_message(hub, self._members, do="enter", about=self._meeting, timeout=self._timeout, ranks=ranks, **words)
        self._carrier = part_of_group(gathering.finish(self._timeout), ranks, self._size)
        self._plan(self._carrier, ranks)
        for rank in self._members:
            words = self._said_of_group(hub, rank, self._timeout)
            if "error" in words:
                raise Unavailable(f"{roll.name(rank)}: {words['error']}")

    def _said_of_group(self, hub: Hub, rank: int, timeout: float) -> Message:
        try:
            words = answer_about(lambda most: hub.receive(self._members[rank], most), "enter", self._meeting, timeout)
        except Error as error:
            return {"error": str(error)}
        self._entered.add(rank)  # whatever it says
        return words

    def _answers(self, hub: Hub, rank: int) -> bool:
        """Whether it says anything of the group, be it that it failed. One whose connection has ended does not."""
        if rank not in self._entered:
            self._said_of_group(hub, rank, _AFTER_FAILURE_SECONDS)
        return rank in self._entered

    @property
    def _meeting(self) -> str:
        return f"group {self._meetings}"

    def _send_message(self, hub: Hub, to: Iterable[int], **words: Any) -> None:
        """Who cannot be told is noticed when it does not answer."""
        for rank in to:
            try:
                hub.send(self._members.get(rank, 0), packed(**words), self._timeout)
            except Error as error:
                log.warning("deltawire: %s: %s", self._the_roll.name(rank), error)

    def _answer(self, hub: Hub, rank: int, did: str, about: int | str, timeout: float) -> Message:
        try:
            return answer_about(lambda most: hub.receive(self._members.get(rank, 0), most), did, about, timeout)
        except Error as error:
            return {"error": str(error)}

    def _checked(self, hub: Hub, rank: int, did: str, about: int | str) -> Message:
        words = self._answer(hub, rank, did, about, self._timeout)
        if "error" in words:
            raise Unavailable(f"{self._the_roll.name(rank)}: {words['error']}")
        return words

    # ---- the other ranks

    def _follow(self) -> PublishedShards:
        member = self._member
        if member is None or member.lost:
            member = self._join(self._timeout)
        report = None
        while True:
            try:
                words = parsed(member.receive(2 * self._timeout))
            except Unavailable as error:
                member = self._joined_again(member, report, error)
                continue
            if words.get("do") == "end":
                if report is None or "error" in words:
                    self._leave()
                    raise Unavailable(f"trainer rank 0: {words.get('error', 'it has sent no version')}")
                errors = {int(rank): error for rank, error in words["errors"].items()}
                if words["leave"]:
                    self._leave()
                return PublishedShards(words["about"], report, errors)
            try:
                if words.get("do") == "enter":
                    self._enter(words)
                    answer = {"did": "enter"}
                else:
                    report = self._send(words["about"])
                    assert self._sender is not None
                    answer = {"did": "receive", "proof": self._sender.proof().text}
            except Error as error:
                answer = {"error": str(error)}
            try:
                member.send(packed(about=words.get("about"), **answer))
            except Unavailable as error:
                member = self._joined_again(member, report, error)

    def _join(self, timeout: float) -> Member:
        name, hello = f"trainer rank {self.rank}", packed(role="trainer", rank=self.rank)
        self._member = Member(self._address, secret=self._secret, name=name, hello=hello, timeout=timeout)
        return self._member

    def _joined_again(self, member: Member, report: ShardReport | None, error: Unavailable) -> Member:
        """As engines do when a connection ends: rank 0 waits for this rank, and makes another group. Not in a version's midst."""
        if report is not None or not member.lost:
            raise error
        log.warning("deltawire: trainer rank %d: %s; it joins again", self.rank, error)
        return self._join(self._patience)

    def _enter(self, words: Message) -> None:
        self._leave()
        options = {"backend": words["backend"], "secret": self._secret, "timeout": words["timeout"]}
        ranks = words["ranks"]
        carrier = enter_group(words["ticket"], ranks.index(self.rank), len(ranks), **options)
        self._carrier = part_of_group(carrier, ranks, words["size"])
        self._plan(self._carrier, ranks)

    def _send(self, version: int) -> ShardReport:
        if self._carrier is None or self._sender is None:
            raise Unavailable(f"trainer rank {self.rank} is in no group")
        return self._sender.send(self._carrier, version)

    # ---- all ranks

    def _plan(self, carrier: Carrier, ranks: Sequence[int]) -> None:
        """The same on all. With the plan that there was, workers get changes against what they hold."""
        meeting = Meeting(carrier, ranks, self._ranks, self._timeout)
        plan = meeting.plan(lambda: self._held.layout, self._layouts)
        self._layouts = meeting.texts
        if self._sender is None or plan.digest != self._plan_digest:
            self._sender = ShardSender(
                plan,
                self.rank,
                read=self._held.read,
                timeout=self._timeout,
                threads=self._threads,
                history_bytes=self._history_bytes,
            )
            self._plan_digest = plan.digest

    def _leave(self) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()


def _own_rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise InvalidArgument("`rank` and `ranks` go together")
    if rank is None or ranks is None:
        known = torch.distributed.is_available() and torch.distributed.is_initialized()
        return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if known else (0, 1)
    if not 0 <= rank < ranks:
        raise InvalidArgument(f"rank={rank}: must be one of {ranks}")
    return rank, ranks


def _end(published: PublishedShards, carrier: Carrier | None) -> Message:
    return {"errors": published.errors, "leave": carrier is None}
