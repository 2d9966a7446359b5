"""A trainer whose versions go from its ranks straight into the workers of serving engines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from deltawire.carriers import Carrier, Hub, Member, enter_group, open_group
from deltawire.engines.shard_words import Words, heard, packed, parsed
from deltawire.errors import Corruption, Error, InvalidArgument, Unavailable, Unsupported
from deltawire.proof import Proof
from deltawire.shards import ShardReport, ShardSender, gather_layouts, plan_shards
from deltawire.tensors import Source
from deltawire.torch.moves import HeldShards

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
        threads: int = 0,
    ) -> None:
        """`source`: a module, a state dict or pairs, with the names and dtypes of the engines' checkpoint.

        `engine_workers` is the number of them in all engines. `rank` and `ranks` are torch's own unless they are given. `address`
        is one by which others reach rank 0. Every wait ends after `timeout` seconds.
        """
        self.rank, self._ranks = _own_rank(rank, ranks)
        if engine_workers < 1:
            raise InvalidArgument(f"engine_workers={engine_workers}: must be at least 1")
        if address.rpartition(":")[0].strip("[]") in ("", "0.0.0.0", "::"):
            raise InvalidArgument(f'address "{address}": must be one by which the others reach rank 0, host:port')
        self._size = self._ranks + engine_workers
        self._held = HeldShards(source)
        self._secret, self._backend, self._timeout, self._threads = secret, backend, timeout, threads
        self._hub = Hub(address, secret=secret) if self.rank == 0 else None
        self._member: Member | None = None
        self._address = address if self._hub is None else self._hub.address
        self._members: dict[int, int] = {}  # of the hub, by rank of the group
        self._carrier: Carrier | None = None
        self._sender: ShardSender | None = None
        self._plan_digest: str | None = None
        self._meetings = 0
        self._last = -1

    @property
    def address(self) -> str:
        """Where engines and the other ranks join: `host:port`."""
        return self._address

    def publish(self, *, wait: bool = True) -> PublishedShards:
        """Send a version to all workers; with `wait`, until they serve it. The tensors must stay as they are meanwhile.

        Without `wait` it is `settle` that says what became of it. `Unavailable` names ranks that are not there.
        """
        if self._hub is None:
            return self._follow()
        try:
            published = self._publish(self._hub)
            if wait and not published.errors:
                published = PublishedShards(published.version, published.report, self.settle())
        except Exception as error:  # the other ranks wait
            self._leave()
            self._tell(self._hub, range(1, self._ranks), do="end", error=str(error))
            raise
        self._tell(self._hub, range(1, self._ranks), do="end", about=published.version, **_end(published, self._carrier))
        return published

    def settle(self, timeout: float | None = None) -> dict[int, str]:
        """Wait until the last version is served; by engine worker, why it is not. On rank 0."""
        if self._hub is None:
            raise InvalidArgument(f"rank {self.rank}: rank 0 knows")
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        errors: dict[int, str] = {}
        for rank in self._engines:
            words = self._heard(self._hub, rank, "update", self._last, end - time.monotonic())
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
    def _engines(self) -> range:
        return range(self._ranks, self._size)

    def _publish(self, hub: Hub) -> PublishedShards:
        if self._carrier is None:
            self._meet(hub)
        assert self._carrier is not None
        assert self._sender is not None
        version = self._last + 1
        self._last = version
        self._tell(hub, range(1, self._size), do="receive", about=version)
        report = self._sender.send(self._carrier, version)
        proof = self._sender.proof()
        for rank in range(1, self._ranks):
            proof += Proof.parse(self._checked(hub, rank, "receive", version)["proof"])
        answers = {rank: self._heard(hub, rank, "receive", version, self._timeout) for rank in self._engines}
        errors = {rank - self._ranks: words["error"] for rank, words in answers.items() if "error" in words}
        if errors:  # whoever has it drops it: no engine is given a version that came to half of its workers
            self._tell(hub, self._engines, do="drop", about=version)
            self._leave()
        else:
            self._tell(hub, self._engines, do="take", about=version, digests=proof.digests)
        return PublishedShards(version, report, errors)

    def _meet(self, hub: Hub) -> None:
        """A new group of all ranks."""
        self._wait_for_all(hub)
        self._meetings += 1
        about = f"group {self._meetings}"
        host = self._address.rpartition(":")[0].strip("[]")
        gathering = open_group(self._size, backend=self._backend, host=host, secret=self._secret, timeout=self._timeout)
        words = {"ticket": gathering.ticket, "backend": self._backend, "size": self._size, "trainers": self._ranks}
        self._tell(hub, range(1, self._size), do="enter", about=about, timeout=self._timeout, **words)
        self._carrier = gathering.finish(self._timeout)
        self._plan(self._carrier)
        for rank in range(1, self._size):
            self._checked(hub, rank, "enter", about)

    def _wait_for_all(self, hub: Hub) -> None:
        end = time.monotonic() + self._timeout
        while True:
            self._members = {}
            for info in sorted(hub.members(), key=lambda info: info.id):
                words = _hello(info.hello)
                if words.get("refusal"):
                    raise Unsupported(f"engine worker {words['rank'] - self._ranks}: {words['refusal']}")
                self._members[words.get("rank", 0)] = info.id  # who joined again has a higher one
                self._last = max(self._last, -1 if words.get("version") is None else words["version"])
            missing = [rank for rank in range(1, self._size) if rank not in self._members]
            if not missing:
                return
            if time.monotonic() >= end:
                raise Unavailable(f"{self._address}: {', '.join(map(self._name, missing))} did not join in {self._timeout:g} s")
            time.sleep(0.02)

    def _tell(self, hub: Hub, ranks: Iterable[int], **words: Any) -> None:
        """Who cannot be told is noticed when it does not answer."""
        for rank in ranks:
            try:
                hub.tell(self._members.get(rank, 0), packed(**words), self._timeout)
            except Error as error:
                log.warning("deltawire: %s: %s", self._name(rank), error)

    def _heard(self, hub: Hub, rank: int, did: str, about: int | str, timeout: float) -> Words:
        try:
            return heard(lambda most: hub.hear(self._members.get(rank, 0), most), did, about, timeout)
        except Error as error:
            return {"error": str(error)}

    def _checked(self, hub: Hub, rank: int, did: str, about: int | str) -> Words:
        words = self._heard(hub, rank, did, about, self._timeout)
        if "error" in words:
            raise Unavailable(f"{self._name(rank)}: {words['error']}")
        return words

    def _name(self, rank: int) -> str:
        return f"trainer rank {rank}" if rank < self._ranks else f"engine worker {rank - self._ranks}"

    # ---- the other ranks

    def _follow(self) -> PublishedShards:
        if self._member is None or self._member.lost:
            hello = packed(role="trainer", rank=self.rank)
            self._member = Member(
                self._address, secret=self._secret, name=f"trainer rank {self.rank}", hello=hello, timeout=self._timeout
            )
        report = None
        while True:
            words = parsed(self._member.hear(2 * self._timeout))
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
            self._member.tell(packed(about=words.get("about"), **answer))

    def _enter(self, words: Words) -> None:
        self._leave()
        options = {"backend": words["backend"], "secret": self._secret, "timeout": words["timeout"]}
        self._carrier = enter_group(words["ticket"], self.rank, words["size"], **options)
        self._plan(self._carrier)

    def _send(self, version: int) -> ShardReport:
        if self._carrier is None or self._sender is None:
            raise Unavailable(f"trainer rank {self.rank} is in no group")
        return self._sender.send(self._carrier, version)

    # ---- all ranks

    def _plan(self, carrier: Carrier) -> None:
        """The same on all. With the plan that there was, workers get changes against what they hold."""
        layouts = gather_layouts(carrier, self._held.layout, self._ranks, self._timeout)
        plan = plan_shards(*layouts, trainer_rank=self.rank)
        plan.check()
        if self._sender is None or plan.digest != self._plan_digest:
            self._sender = ShardSender(plan, self.rank, read=self._held.read, timeout=self._timeout, threads=self._threads)
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


def _end(published: PublishedShards, carrier: Carrier | None) -> Words:
    return {"errors": published.errors, "leave": carrier is None}


def _hello(message: bytes) -> Words:
    """Nothing, of a member that is here for something else."""
    try:
        words = parsed(message)
    except Corruption:
        return {}
    return words if isinstance(words.get("rank"), int) else {}
