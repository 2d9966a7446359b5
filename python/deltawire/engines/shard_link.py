"""A worker's connection to the trainer: joins, receives and stages while the engine serves, and says what became of it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted
from deltawire.carriers import Carrier, Member, enter_group
from deltawire.engines.settings import Settings
from deltawire.engines.shard_group import Meeting, Message, packed, parsed, part_of_group
from deltawire.engines.shard_worker import Outcome, ShardWorker
from deltawire.engines.transport import secret_of
from deltawire.errors import Error, InvalidArgument, Unavailable

log = logging.getLogger("deltawire")

_SLICE = 0.1  # seconds, within which a thread that waits notices that there is something to say, or that it is to end
_JOIN_SECONDS = 5.0


class ShardLink:
    """In place of a host's replica. One for each worker; a trainer that is away is looked for again and again."""

    def __init__(self, settings: Settings, rank: int, workers: int, worker: Callable[[], ShardWorker | None]) -> None:
        """`rank` is the worker's in the group of trainer and engines; its engine has so many `workers`."""
        self._settings, self._rank, self._workers, self._find_worker = settings, rank, workers, worker
        self._secret = secret_of(settings.secret, settings.secret_file)
        self._stop = threading.Event()
        self._carrier: Carrier | None = None
        self._plan_digest: str | None = None
        self._reported: Outcome | None = None
        self._is_refused = False  # by the trainer: it is asked again and again, and may say so again
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, name="deltawire-shards", daemon=True)
        self._thread.start()

    is_blocked = False
    """A trainer that is away may come back."""

    def wait_for(self, wanted: Wanted, timeout: float) -> Identity:
        """What has come, as soon as that is what is wanted; without a version, whatever there is."""
        end = time.monotonic() + timeout
        while True:
            worker = self._find_worker()
            held = None if worker is None else worker.newest
            if wanted.is_met_by(held):
                assert held is not None
                return held
            if time.monotonic() >= end:
                why = f": {self.error}" if self.error else ""
                raise Unavailable(f"{self._settings.source}: {wanted} did not come in {timeout:g} s{why}")
            time.sleep(0.02)

    def look(self) -> None:
        """What there is to say is seen soon enough."""

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        carrier = self._carrier
        if carrier is not None:
            carrier.abort()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set() and not _core.is_ending():
            worker = self._find_worker()
            if worker is None or not worker.is_mapped:
                self._stop.wait(_SLICE)
                continue
            try:
                self._follow(worker)
            except Exception as error:  # a thread's last words would be lost
                self._say(error)
            self._leave()
            self._stop.wait(self._settings.interval)

    def _follow(self, worker: ShardWorker) -> None:
        newest = worker.newest
        first, size = self._settings.rank_offset, self._settings.world_size
        place = {"rank": self._rank, "first": first, "workers": self._workers, "world_size": size, "server": worker.server}
        hello = packed(role="engine", version=None if newest is None else newest.version, **place)
        name = f"{socket.gethostname()}-{os.getpid()} rank {self._rank}"
        address = f"{self._settings.master_address}:{self._settings.master_port}"
        with Member(address, secret=self._secret, name=name, hello=hello, timeout=_JOIN_SECONDS) as member:
            if not self._is_refused:
                self.error = None
            while not self._stop.is_set() and not _core.is_ending():
                self._tell_outcome(member, worker)
                try:
                    message = member.receive(_SLICE)
                except Unavailable:
                    if member.lost:
                        raise
                    continue
                words = parsed(message)
                self._is_refused = words.get("do") == "refuse"
                if self._is_refused:
                    raise InvalidArgument(f"the trainer refuses this server: {words.get('error')}")
                try:
                    self._do(words, worker)
                    answer = {"did": words.get("do")}
                    self.error = None
                except Error as failure:  # the trainer hears of it too, and the connection stays
                    self._say(failure)
                    worker.drop()
                    answer = {"error": str(failure)}
                member.send(packed(about=words.get("about"), **answer))

    def _do(self, words: Message, worker: ShardWorker) -> None:
        """What the trainer's rank 0 says."""
        if words.get("do") == "enter":
            self._enter(words, worker)
        elif words.get("do") == "receive":
            self._receive(worker)
        elif words.get("do") == "take":
            worker.take(words["about"], words["digests"])
        else:  # the version came not to all
            worker.drop()

    def _enter(self, words: Message, worker: ShardWorker) -> None:
        self._leave()
        trainers, timeout = words["trainers"], words["timeout"]
        ranks, size = words["ranks"], words["size"]
        options = {"backend": words["backend"], "secret": self._secret, "timeout": timeout}
        carrier = enter_group(words["ticket"], ranks.index(self._rank), len(ranks), **options)
        self._carrier = part_of_group(carrier, ranks, size)
        meeting = Meeting(self._carrier, ranks, trainers, timeout)
        plan = meeting.plan(lambda: worker.layout, {}, worker.adopt)
        first = self._settings.rank_offset or 0
        layouts = [meeting.layout(rank) for rank in range(first, first + self._workers)]
        worker.begin(plan, self._rank - trainers, plan.digest == self._plan_digest, timeout, layouts)
        self._plan_digest = plan.digest

    def _receive(self, worker: ShardWorker) -> None:
        if self._carrier is None:
            raise Unavailable(f"rank {self._rank} is in no group")
        try:
            worker.receive(self._carrier)
        except Error:
            self._leave()
            raise

    def _tell_outcome(self, member: Member, worker: ShardWorker) -> None:
        outcome = worker.outcome
        if outcome is None or outcome is self._reported:
            return
        answer = {"error": outcome.error} if outcome.error else {"did": "update"}
        member.send(packed(about=outcome.version, **answer))
        self._reported = outcome

    def _leave(self) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()

    def _say(self, error: Exception) -> None:
        words = str(error)
        if words != self.error and not self._stop.is_set():
            log.warning("deltawire: %s: %s; what is served is served on", self._settings.source, words)
        self.error = words
