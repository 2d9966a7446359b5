"""A worker whose versions come from the ranks of a trainer, box by box: no folder of the host is between them."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from deltawire._internal.identity import Identity, Wanted
from deltawire.carriers import Carrier
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.group import agree, gather
from deltawire.engines.proof import Boxes, Pieces, Proven, boxes_of_all, uncovered
from deltawire.engines.shard_map import HostCopies, ShardMap
from deltawire.engines.worker import Staged, Worker
from deltawire.errors import Error, InternalError, Unavailable
from deltawire.live import Exchange
from deltawire.shards import ShardBox, ShardLayout, ShardPlan, ShardReceiver, ShardRefusal, ShardReport

log = logging.getLogger("deltawire")


@dataclass(frozen=True)
class Outcome:
    """What became of a version here."""

    version: int
    error: str = ""


class ShardWorker(Worker):
    """Keeps a model at what a trainer's ranks send. Swap, proof and taking back are those of any worker.

    The checkpoint that the server was started from is read once, by `attach`: only against bits that are known is it seen which
    tensors the engine keeps as they are. Of such this worker's boxes come; all others come whole, and the engine loads them.

    A thread of `ShardLink` calls `adopt`, `begin`, `receive`, `take` and `drop`; the engine's own calls are the others.
    """

    outcome: Outcome | None = None
    """Of the version that was taken last."""
    server = ""
    """A name that all workers of this engine have, and no others."""
    _shards: ShardMap | None = None
    _receiver: ShardReceiver | None = None
    _is_unknown = False  # what the live weights are, after an update that could not be taken back
    _known: Mapping[Identity, dict[str, str]] = {}  # digests of what is served and of what is staged
    _copies: HostCopies
    _next_copies: Mapping[str, torch.Tensor] = {}  # of the version that is staged

    # ---- what the engine calls

    def attach(self) -> Identity:
        """Find the map, once; then go to the first version. `Unavailable` until it has come."""
        with self._lock:
            if self._shards is None:
                self._find_shards()
        return self.update() if self.served is None else self.served

    def stage(self, version: Identity | None = None) -> bool:
        """Nothing: versions come by themselves."""
        return False

    @property
    def is_mapped(self) -> bool:
        """Whether it is known what this worker holds."""
        return self._shards is not None

    def _find_shards(self) -> None:
        self._copies = HostCopies()
        agree(self._group, self._find_copies)
        boxes = agree(self._group, self._compare_all)
        the_map = self._the_map
        scattered = {name for name, own in boxes.items() if not own}
        self._come_whole(the_map.reloaded, "are not kept as they are in the checkpoint")
        self._come_whole(scattered, "are kept in too many parts")
        gathered = gather(self._group, (sorted(the_map.reloaded), uuid.uuid4().hex))
        self._reloaded = {name for reloaded, _ in gathered for name in reloaded}
        self.server = gathered[0][1]
        self._shards = ShardMap(the_map, self._copies)
        assert self._derived is not None
        self._derived.reloaded = the_map.reloaded_modules
        self._derived.look()

    def _come_whole(self, tensors: Collection[str], why: str) -> None:
        """These, and the rest of their modules, go through the engine's own loader, from copies in host memory."""
        if not tensors:
            return
        the_map = self._the_map
        names = the_map.complete(tensors) | set(tensors)
        if self.reloads_all:
            names |= the_map.windows.keys()
        log.warning(
            "deltawire: shards.fallback: %d tensors %s: %s; %d come whole to each worker, as by a broadcast, and the engine's "
            "own loader loads them",
            len(tensors), why, ", ".join(sorted(tensors)[:8]), len(names),
        )  # fmt: skip
        the_map.reloaded |= names
        checkpoint = LocalCheckpoint(Path(self.local))
        self._copies.put({name: checkpoint.read(name) for name in names if name not in self._copies})

    def _compare_all(self) -> Boxes:
        checkpoint = LocalCheckpoint(Path(self.local))
        self._map = self._find_map(checkpoint)
        self._bring_to(checkpoint)
        self._pieces = Pieces(self._map)
        return boxes_of_all(self._map)

    @property
    def _reads_local(self) -> bool:
        return self.reloads_all and self._shards is None  # what the server was started from is what it serves

    def _update(self, wanted: Wanted, verify: str, began: float) -> Identity:
        staged = self._staged
        try:
            reached = super()._update(wanted, verify, began)
        except Error as error:
            if staged is not None and self._staged is None:  # it was written, and taken back
                self.outcome = Outcome(staged.version.version, str(error))
                if self._is_unknown or self._suspect:
                    self._the_receiver.committed(written=False)
                else:
                    self._the_receiver.discarded()
                self._next_copies = {}
            raise
        if staged is not None and self._staged is None:
            self._copies.put(self._next_copies)
            self._next_copies = {}
            self._the_receiver.committed()
            self.outcome = Outcome(reached.version)
        return reached

    def prove(self, mode: str = "all") -> Proven:
        """Wrong weights are made right by the trainer's next version, which comes whole."""
        proven = super().prove(mode)
        if proven.wrong and self._receiver is not None:
            self.drop()
            self._receiver.committed(written=False)
        return proven

    @property
    def newest(self) -> Identity | None:
        """What has come last."""
        staged = self._staged
        return self.served if staged is None else staged.version

    def _nothing_to_offer(self, wanted: Wanted) -> str:
        return f"no version has come from the trainer yet{'' if wanted.version is None else f' that is {wanted}'}"

    def _offered(self, wanted: Wanted) -> Identity | None:
        return self.newest if wanted.is_met_by(self.newest) else None

    def _stage_for(self, goal: Identity) -> None:
        if goal not in (self.served, self.newest):
            raise Unavailable(f"version {goal.version} has not come to this worker")
        if self._suspect and self.staged != goal:
            raise Unavailable("weights are wrong, and only the trainer has them: its next version comes whole")

    def _digests_of(self, version: Identity) -> dict[str, str]:
        if version not in self._known:
            raise Unavailable(f"the trainer has not said what version {version.version} is")
        return self._known[version]

    def _take_back(self, staged: Staged | None, goal: Identity, error: Exception) -> None:
        self._is_unknown = False
        try:
            super()._take_back(staged, goal, error)
        except Exception:
            self._is_unknown = True
            raise

    def _repair(self, goal: Identity, error: Exception) -> None:
        """A worker has weights that were written by half: only the trainer has what they were."""
        self._is_unknown = True
        log.error("deltawire: %s: %s; weights were written by half; the trainer's next version comes whole", goal, error)

    # ---- what the thread of the link calls

    @property
    def layout(self) -> ShardLayout:
        """What this worker holds."""
        if self._shards is None:
            raise InternalError("the worker has no map")
        return self._shards.layout

    def adopt(self, refusals: Iterable[ShardRefusal], trainer: ShardLayout) -> None:
        """These tensors cannot come in boxes: they come whole, as the trainer has them."""
        whys: dict[str, set[str]] = {}
        for one in refusals:
            if one.tensor in self._the_map.forms:
                whys.setdefault(one.obstacle, set()).add(one.tensor)
        forms = {box.name: box for rank in range(trainer.num_ranks) for box in trainer.boxes(rank)}
        with self._lock:
            for why, names in sorted(whys.items()):
                self._come_whole(names, f"have no boxes that fit ({why})")
                for name in names:
                    self._copies.put_form(name, forms[name].dtype, forms[name].shape)
            self._reloaded |= self._the_map.reloaded
            self._shards = ShardMap(self._the_map, self._copies)
            self._receiver = None

    def begin(self, plan: ShardPlan, rank: int, is_same: bool, timeout: float, workers: Iterable[ShardLayout]) -> None:
        """Receive by a plan, as that rank of the engine's. With the plan that there was, what is held stays known.

        `workers`: what those of this engine hold. Tensors that their shards do not tile exactly cannot be proven.
        """
        assert self._shards is not None
        self.drop()
        held = [layout.boxes(0) for layout in workers]
        boxes = [{name: [(one.offset, one.extent) for one in own] for name, own in _by_name(worker).items()} for worker in held]
        self._cut = uncovered(boxes, {one.name: one.shape for worker in held for one in worker})
        if self._receiver is None or not is_same:
            self._receiver = ShardReceiver(plan, rank, read=self._shards.read, timeout=timeout, threads=self._threads)

    def receive(self, carrier: Carrier) -> ShardReport:
        """The next version, checked, while the engine serves. One that waited to be written is given up."""
        self.drop()
        return self._the_receiver.receive(carrier)

    def take(self, version: int, digests: dict[str, str]) -> None:
        """All workers have it: stage it beside the weights."""
        assert self._shards is not None
        staged = self._the_receiver.staged
        exchange = Exchange(self._shards.lists(staged), device_bytes=self._device_bytes, threads=self._threads)
        copies = self._copies.changed(staged, digests, anew=self.version is None)
        names = self._the_map.complete(copies) if copies else set()
        if self.reloads_all and copies:
            names |= set(self._copies.names)
        reload = [(name, copies.get(name, tensor)) for name, tensor in self._copies.items(names | copies.keys())]
        with self._lock:
            # There is no manifest, and no run: what the version holds identifies it.
            identity = Identity("", version, sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest())
            self._next_copies = copies
            self._known = {held: words for held, words in self._known.items() if held == self.served} | {identity: digests}
            self.outcome = None
            self._staged = Staged(identity, self.served, exchange, reload, from_feed=False)

    def drop(self) -> None:
        """What has come is not written any more."""
        with self._lock:
            self._staged, self._next_copies = None, {}
            if self._receiver is not None:
                self._receiver.discarded()

    @property
    def _the_receiver(self) -> ShardReceiver:
        if self._receiver is None:
            raise InternalError("the worker has no plan")
        return self._receiver


def _by_name(boxes: Iterable[ShardBox]) -> dict[str, list[ShardBox]]:
    found: dict[str, list[ShardBox]] = {}
    for box in boxes:
        found.setdefault(box.name, []).append(box)
    return found
