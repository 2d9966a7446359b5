"""A worker whose versions come from the ranks of a trainer, box by box: no folder of the host is between them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltawire.carriers import Carrier
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.group import agree
from deltawire.engines.proof import Boxes, Pieces, boxes_of_all, uncovered
from deltawire.engines.shard_map import ShardMap
from deltawire.engines.worker import Staged, Worker
from deltawire.errors import Error, InternalError, Unavailable, Unsupported
from deltawire.exchange import Exchange
from deltawire.shards import ShardLayout, ShardPlan, ShardReceiver, ShardReport

log = logging.getLogger("deltawire")


@dataclass(frozen=True)
class Outcome:
    """What became of a version here."""

    version: int
    error: str = ""


class ShardWorker(Worker):
    """Keeps a model at what a trainer's ranks send. Swap, proof and taking back are those of any worker.

    The checkpoint that the server was started from is read once, by `attach`: only against bits that are known is it seen which
    tensors the engine keeps as they are. Such tensors alone can come as shards.

    A thread of `ShardLink` calls `begin`, `receive`, `take` and `drop`; the engine's own calls are the others.
    """

    refusal: Error | None = None
    """Why this engine takes no shards."""
    outcome: Outcome | None = None
    """Of the version that was taken last."""
    _shards: ShardMap | None = None
    _receiver: ShardReceiver | None = None
    _is_unknown = False  # what the live weights are, after an update that could not be taken back
    _known: Mapping[int, dict[str, str]] = {}  # digests of what is served and of what is staged

    # ---- what the engine calls

    def attach(self) -> int:
        """Find the map, once; then go to the first version. `Unavailable` until it has come, `Unsupported` if none ever can."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal
            if self._shards is None:
                self._find_shards()
        return self.update() if self.version is None else self.version

    def stage(self, version: int | None = None) -> bool:
        """Nothing: versions come by themselves."""
        return False

    @property
    def is_mapped(self) -> bool:
        """Whether it is known what this worker holds."""
        return self._shards is not None

    def _find_shards(self) -> None:
        boxes = agree(self._group, self._compare_all)
        heard = self._group.tell((sorted(self._the_map.odd), _without_boxes(boxes), boxes))
        shapes = {name: form.shape for name, form in self._the_map.forms.items()}
        self._cut = uncovered([own for _, _, own in heard], shapes)
        for what, names in (
            ("are not kept as they are in the checkpoint", {name for odd, _, _ in heard for name in odd}),
            ("are kept in too many parts", {name for _, parts, _ in heard for name in parts}),
        ):
            if names:
                self.refusal = Unsupported(
                    f"deltawire: shards: {len(names)} tensors {what}: {', '.join(sorted(names)[:8])}; "
                    "without `shards` versions come through the host's folder"
                )
                log.warning("%s", self.refusal)
                raise self.refusal
        self._shards = ShardMap(self._the_map)

    def _compare_all(self) -> Boxes:
        checkpoint = LocalCheckpoint(Path(self.local))
        self._map = self._find_map(checkpoint)
        self._bring_to(checkpoint)
        self._pieces = Pieces(self._map)
        return boxes_of_all(self._map)

    def _update(self, version: int | None, verify: str, began: float) -> int:
        staged = self._staged
        try:
            reached = super()._update(version, verify, began)
        except Error as error:
            if staged is not None and self._staged is None:  # it was written, and taken back
                self.outcome = Outcome(staged.version, str(error))
                if self._is_unknown:
                    self._the_receiver.committed(written=False)
                else:
                    self._the_receiver.discarded()
            raise
        if staged is not None and self._staged is None:
            self._the_receiver.committed()
            self.outcome = Outcome(reached)
        return reached

    @property
    def _nothing_yet(self) -> str:
        return "no version has come from the trainer yet"

    def _local_or_staged(self) -> int | None:
        return self.version if self._staged is None else self._staged.version

    def _stage_for(self, goal: int) -> None:
        if goal not in (self.version, None if self._staged is None else self._staged.version):
            raise Unavailable(f"version {goal} has not come to this worker")

    def _digests_of(self, version: int) -> dict[str, str]:
        if version not in self._known:
            raise Unavailable(f"the trainer has not said what version {version} is")
        return self._known[version]

    def _take_back(self, staged: Staged | None, goal: int, error: Exception) -> None:
        self._is_unknown = False
        try:
            super()._take_back(staged, goal, error)
        except Exception:
            self._is_unknown = True
            raise

    def _repair(self, goal: int, error: Exception) -> None:
        """Only the trainer has the weights."""
        self._is_unknown = True
        log.error("deltawire: version %d: %s; the trainer's next version comes whole", goal, error)

    # ---- what the thread of the link calls

    @property
    def layout(self) -> ShardLayout:
        """What this worker holds."""
        if self._shards is None:
            raise InternalError("the worker has no map")
        return self._shards.layout

    def begin(self, plan: ShardPlan, rank: int, plan_digest: str | None, timeout: float) -> None:
        """Receive by a plan, as that rank of the engine's. With the plan that there was, what is held stays known."""
        assert self._shards is not None
        self.drop()
        if self._receiver is None or plan.digest != plan_digest:
            self._receiver = ShardReceiver(plan, rank, read=self._shards.read, timeout=timeout, threads=self._threads)

    def receive(self, carrier: Carrier) -> ShardReport:
        """The next version, checked, while the engine serves. One that waited to be written is given up."""
        self.drop()
        return self._the_receiver.receive(carrier)

    def take(self, version: int, digests: dict[str, str]) -> None:
        """All workers have it: stage it beside the weights."""
        assert self._shards is not None
        exchange = Exchange(self._shards.lists(self._the_receiver.staged), device_bytes=self._device_bytes, threads=self._threads)
        with self._lock:
            self._known = {held: words for held, words in self._known.items() if held == self.version} | {version: digests}
            self.outcome = None
            self._staged = Staged(version, -1 if self.version is None else self.version, exchange, [], from_feed=False)

    def drop(self) -> None:
        """What has come is not written any more."""
        with self._lock:
            self._staged = None
            if self._receiver is not None:
                self._receiver.discarded()

    @property
    def _the_receiver(self) -> ShardReceiver:
        if self._receiver is None:
            raise InternalError("the worker has no plan")
        return self._receiver


def _without_boxes(boxes: Boxes) -> list[str]:
    return [name for name, own in boxes.items() if not own]
