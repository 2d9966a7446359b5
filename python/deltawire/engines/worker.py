"""One worker of a serving engine: its live weights at a version of the chain, written in a pause of milliseconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted
from deltawire._internal.ranks import Group
from deltawire.engines.atomic import check_scales, is_scale, kind_of
from deltawire.engines.checkpoint import Form, LocalCheckpoint
from deltawire.engines.copies import Copies
from deltawire.engines.group import Alone, agree, as_error, gather
from deltawire.engines.host import local_identity, reading
from deltawire.engines.loads import LoadFailed, Loads, record_loads, without_threads
from deltawire.engines.map import EngineMap
from deltawire.engines.proof import Beside, Boxes, Pieces, Proven, boxes_of_all, prove, uncovered
from deltawire.engines.undo import Undo, address
from deltawire.errors import BaseMismatch, Error, InternalError, NotFound, Unavailable
from deltawire.live import Exchange

log = logging.getLogger("deltawire")

Reload = Callable[[Iterator[tuple[str, torch.Tensor]]], None]
"""The engine's own way to load tensors, of complete modules, while it is paused."""

_TRIES = 5  # to read a checkpoint that does not change meanwhile


@dataclass
class Staged:
    """A version that waits beside the weights to be written."""

    version: Identity
    base: Identity | None
    exchange: Exchange
    reload: list[tuple[str, torch.Tensor]]  # what the engine has to load itself: the local checkpoint may go on meanwhile
    from_feed: bool  # else found by comparing all weights with the local checkpoint
    from_local: bool = False  # the engine has to load the whole local checkpoint
    written: Collection[int] | None = None  # memory that the exchange writes to; None: what the engine loads is not known
    # What was done with it.
    swapping: bool = False
    swapped: bool = False
    undo: Undo | None = None  # of what the engine loaded

    @property
    def reloads(self) -> bool:
        """Whether the engine's own loader has something to do."""
        return self.from_local or bool(self.reload)

    @property
    def is_lost(self) -> bool:
        """What was there before cannot be put back: a swap ended half-way."""
        return self.swapping != self.swapped

    def take_back(self) -> None:
        """The last step first."""
        if self.undo is not None:
            self.undo.put_back()
        if self.swapped:
            self.exchange.swap()


@dataclass
class Pause:
    """What the last update cost, in seconds. Only `swap`, `reload` and `proof` are work; `wait` is for the other workers."""

    version: int
    staged_before: bool  # else it was staged in the pause
    changed: int
    stage: float = 0.0
    wait: float = 0.0
    swap: float = 0.0
    reload: float = 0.0
    proof: float = 0.0
    total: float = 0.0


@dataclass
class Report:
    """What a worker says of itself."""

    served: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None
    suspect: str | None = None
    """Why what is served may not be what it is said to be: a proof that failed, and was not made up for yet."""
    staged_device_bytes: int = 0
    staged_host_bytes: int = 0
    last_pause: dict[str, Any] | None = None
    error: str | None = None
    proof: dict[str, Any] | None = None
    parameters: int = 0
    tensors: int = 0
    reloaded: list[str] = field(default_factory=list)


class Worker:
    """Keeps a model that an engine serves at a version of the host's replica.

    `attach` finds where the model keeps each tensor and brings it to the local version. `stage` reads the next version while the
    engine serves. `update`, between two steps of the engine, writes and proves it, or leaves everything as it was. Workers of an
    engine call `attach`, `update` and `prove` together; `stage` each by itself.
    """

    reloads_all = False
    """Whether the engine's loader takes all tensors or none. They are not staged, which would be the model in each worker's host
    memory: the loader gets them from the local checkpoint, in the pause."""

    def __init__(
        self,
        model: torch.nn.Module,
        local: str,
        *,
        name: str,
        group: Group | None = None,
        reload: Reload | None = None,
        drafts: Sequence[torch.nn.Module] = (),
        device_bytes: int | None = None,
        threads: int = 0,
    ) -> None:
        self._model, self._drafts, self.local, self.name = model, drafts, str(Path(local)), name
        self._group: Group = group or Alone()
        self._reload = reload
        self._device_bytes, self._threads = device_bytes, threads
        self._lock = threading.RLock()  # staging and writing
        self._map: EngineMap | None = None
        self._staged: Staged | None = None
        self._feed: _core.FeedWorker | None = None
        self.served: Identity | None = None  # None: it is not known
        self._previous: tuple[Identity | None, str | None] = None, None  # served and suspect before `_kept` was written
        self._kept: Staged | None = None  # has what it replaced, until the next version is staged
        self._suspect: str | None = None
        self._num_samples = 0
        self._error: str | None = None
        self._pause: Pause | None = None
        self._proven: Proven | None = None
        self._reloaded: set[str] = set()  # on any worker
        self._cut: set[str] = set()  # tensors that workers do not hold once and whole
        self._pieces: Pieces | None = None
        self._derived: Copies | None = None
        self._digests: tuple[Identity, dict[str, str]] | None = None  # of one version

    @property
    def version(self) -> int | None:
        """The number of what is served."""
        return None if self.served is None else self.served.version

    @property
    def staged(self) -> Identity | None:
        """What waits to be written."""
        staged = self._staged
        return None if staged is None else staged.version

    # ---- attaching

    def attach(self) -> Identity:
        """Find the map, compare all live weights with the local checkpoint, and bring them to it. Returns the version."""
        with self._lock:
            agree(self._group, self._find_copies)
            version, reloaded, cut = self._attach_all()
            self._reloaded, self._cut = reloaded, cut
            if cut and self._group.rank == 0:
                log.warning(
                    "deltawire: %d tensors cannot be proven: the workers' shards do not tile them exactly: %s",
                    len(cut),
                    ", ".join(sorted(cut)[:8]),
                )
            if reloaded and self._group.rank == 0:
                log.warning(
                    "deltawire: %d tensors are not kept as they are in the checkpoint; with a version that changes them the "
                    "engine's own loader reloads their modules: %s",
                    len(reloaded),
                    ", ".join(sorted(reloaded)[:8]),
                )
            agree(self._group, lambda: self._begin(version))
            self._staged, self._kept, self._suspect, self.served = None, None, None, version
            return version

    def _find_copies(self) -> None:
        """Before weights change: then they are equal."""
        self._derived = self._derived or Copies(self._models)

    def _attach_all(self) -> tuple[Identity, set[str], set[str]]:
        """The one version of all workers: the local checkpoint may have gone on between two of them."""
        for _ in range(_TRIES):
            version, boxes = agree(self._group, self._attach)
            gathered = gather(self._group, (version, sorted(self._the_map.reloaded), boxes))
            if all(other == version for other, _, _ in gathered):
                reloaded = {name for _, names, _ in gathered for name in names}
                cut = uncovered(
                    [boxes for _, _, boxes in gathered], {name: form.shape for name, form in self._the_map.forms.items()}
                )
                return version, reloaded, cut - reloaded
        raise Unavailable(f"{self.local}: changes faster than all workers can read it")

    def _begin(self, version: Identity) -> None:
        self._pieces = Pieces(self._the_map)
        for name in self._the_map.plain:
            self._pieces.of(name)
        assert self._derived is not None
        self._derived.reloaded = self._the_map.reloaded_modules
        self._derived.look()
        self._derived.refresh()
        if self._derived.unknown:
            log.warning(
                "deltawire: %d tensors that the engine keeps outside its parameters cannot be proven: %s",
                len(self._derived.unknown), ", ".join(sorted(self._derived.unknown)[:8]),
            )  # fmt: skip
        self.close()  # it may be attached again
        self._feed = _core.FeedWorker(self.local, self.name, version)

    def _attach(self) -> tuple[Identity, Boxes]:
        for _ in range(_TRIES):
            with reading(self.local):
                before = local_identity(self.local)
                if before is None:
                    raise Unavailable(f"{self.local}: holds no version yet")
                checkpoint = LocalCheckpoint(Path(self.local))
                self._map = self._find_map(checkpoint)
                self._bring_to(checkpoint)
                if local_identity(self.local) == before:
                    return before, boxes_of_all(self._the_map)
        raise Unavailable(f"{self.local}: changes faster than it can be read")

    def _find_map(self, checkpoint: LocalCheckpoint) -> EngineMap:
        """Modules that were packed into another shape do not bear a load; the others still say where they keep their weights."""
        left, lost = dict(checkpoint.forms), set[str]()
        while left:
            try:
                return EngineMap(record_loads(self._model, left, self._drafts), checkpoint.forms, lost)
            except LoadFailed as failure:
                kind = kind_of(failure.tensor) if failure.tensor else None
                more = {name for name in left if kind is None or kind_of(name) == kind}
                log.info("deltawire: where the engine keeps %s is not known: %s", kind or "its weights", failure)
                lost |= more
                left = {name: form for name, form in left.items() if name not in more}
        return EngineMap(Loads(), checkpoint.forms, lost)

    def _bring_to(self, checkpoint: LocalCheckpoint) -> None:
        """Weights that differ are of another version, or not kept as they are: after a reload by the engine it shows which."""
        the_map = self._the_map
        differing = the_map.differing(checkpoint, the_map.plain)
        if not differing and not the_map.reloaded:
            return
        params = {window.array for name in differing for window in the_map.windows[name]}
        names = set(the_map.reloaded)
        the_map.set_reloaded(params)
        undo = self._undo()
        try:
            self._engine_reload(checkpoint.items(the_map.reloaded), undo)
        except BaseException:
            undo.put_back()
            raise
        the_map.reloaded = names
        still = the_map.differing(checkpoint, differing)
        the_map.set_reloaded({window.array for name in still for window in the_map.windows[name]})
        the_map.set_reloaded(the_map.moved(self._models))

    @property
    def _models(self) -> list[torch.nn.Module]:
        return [self._model, *self._drafts]

    def _undo(self) -> Undo:
        return Undo(self._models, self._device_bytes)

    def _engine_reload(self, tensors: Iterable[tuple[str, torch.Tensor]], undo: Undo) -> None:
        if self._reload is None:
            names = sorted(name for name, _ in tensors)
            raise BaseMismatch(
                f"{len(names)} tensors are not what {self.local} has, and this engine cannot reload them: {', '.join(names[:5])}"
            )
        if self._reads_local:
            tensors = LocalCheckpoint(Path(self.local)).items()
        with undo, without_threads():
            self._reload(iter(tensors))

    @property
    def _reads_local(self) -> bool:
        return self.reloads_all

    # ---- staging

    def stage(self, version: Identity | None = None) -> bool:
        """Read what leads to the local version, or to this one, while the engine serves; False: there is nothing to do.

        A version that cannot be reached through the feed is found by comparing all weights with the local checkpoint. So is any
        version where what is served is suspect.
        """
        with self._lock, self._reading():
            goal = local_identity(self.local) if version is None or self._suspect else version
            if goal is None or self.served is None or (goal == self.served and not self._suspect):
                return False
            if version is not None and not self._has_come(version):
                return False
            staged = self._staged
            is_trusted = staged is not None and not (self._suspect and staged.from_feed)
            if is_trusted and staged is not None and (staged.base, staged.version) == (self.served, goal):
                return False
            self._staged = self._kept = None  # their memory is free before the next one takes some
            self._staged = self._stage(goal)
            return True

    def _reading(self) -> AbstractContextManager[None]:
        """Where staging reads the checkpoint, and not the feed alone, it must still be there when it is read."""
        needs_files = self._suspect is not None or (self._map is not None and bool(self._map.reloaded))
        return reading(self.local) if needs_files else nullcontext()

    def _stage(self, goal: Identity) -> Staged:
        assert self.served is not None
        the_map, lists = self._the_map, None
        if not self._suspect:
            try:
                lists, changed = the_map.from_feed(self.local, self.served, goal, self._threads)
                reload = the_map.complete(changed & the_map.reloaded)
            except NotFound as error:
                log.info("deltawire: %s; weights are compared with the checkpoint instead", error)
        from_feed = lists is not None
        if lists is None:
            lists, reload, changed = self._compare(goal), the_map.reloaded, set(the_map.forms)
        self._check_scales(goal, changed)
        self._digests_of(goal)
        if self._derived is not None:
            self._derived.rescan()
        from_local = bool(reload) and self._reads_local
        tensors = self._read(goal, () if from_local else reload) if reload else []
        exchange = Exchange(lists, device_bytes=self._device_bytes, threads=self._threads)
        written = None if reload or self._suspect else {address(array) for array, _, _ in lists}
        return Staged(goal, self.served, exchange, tensors, from_feed, from_local, written)

    def _has_come(self, version: Identity) -> bool:
        """Not so on a host whose replica is behind that of another, which has other workers of the engine."""
        held = local_identity(self.local)
        return held is not None and (held.run != version.run or held.version >= version.version)

    def _stage_for(self, goal: Identity) -> None:
        if self.served is None:
            raise Unavailable("it is not known which version is served: attach again")
        self.stage(goal)
        if self.staged != goal and (self.served != goal or self._suspect):
            self._check_local(goal)
            raise Unavailable(f"{goal} is not staged")

    def _compare(self, goal: Identity) -> list[Any]:
        with self._steady(goal) as checkpoint:
            return self._the_map.from_checkpoint(checkpoint, self._the_map.plain)

    def _read(self, goal: Identity, names: Collection[str]) -> list[tuple[str, torch.Tensor]]:
        with self._steady(goal) as checkpoint:
            return list(checkpoint.items(names))

    def _check_scales(self, goal: Identity, changed: Iterable[str]) -> None:
        scales = {name for name in changed if is_scale(name)}
        if scales:
            with self._steady(goal) as checkpoint:
                check_scales(checkpoint.items(scales), goal.version)

    @contextmanager
    def _steady(self, goal: Identity) -> Iterator[LocalCheckpoint]:
        """The local checkpoint, which is that version before it is read and afterwards, so that all of it was of one version."""
        with reading(self.local):
            self._check_local(goal)
            checkpoint = LocalCheckpoint(Path(self.local))
            if _shapes(checkpoint.forms) != _shapes(self._the_map.forms):
                raise BaseMismatch(f"{goal} has other tensors than the model that is served: start the engine anew")
            yield checkpoint
            self._check_local(goal)

    def _check_local(self, goal: Identity) -> None:
        held = local_identity(self.local)
        if held != goal:
            there = "is being patched" if held is None else f"holds {held}"
            raise Unavailable(f"{self.local}: {there}, and {goal} was to be read")

    # ---- writing

    def update(self, wanted: Wanted | Identity | int | None = None, verify: str = "all", *, keep: bool = False) -> Identity:
        """Write a version and prove it; the engine must be between two steps. What is served then is returned.

        That is the version that is staged, if it is what is wanted, else the local one. All workers go there, or none: a failure
        on one of them takes back what the others wrote, and is raised on all. `keep`: `revert` can take it back later, too.
        """
        with self._lock:
            began, self._kept = time.perf_counter(), None
            try:
                reached = self._update(Wanted.of(wanted), verify, began)
                if not keep:
                    self._kept = None
                return reached
            except Error as error:
                self._error = str(error)
                raise
            finally:
                if self._pause is not None:
                    self._pause.total = time.perf_counter() - began

    def _update(self, wanted: Wanted, verify: str, began: float) -> Identity:
        # One of them decides, so that no two workers mean two versions.
        words = gather(self._group, (self._offered(wanted), self.served, self._suspect, self._num_samples))
        goal: Identity | None = words[0][0]
        if goal is None:
            raise Unavailable(self._nothing_to_offer(wanted))
        suspect = self._suspect = next((suspect for _, _, suspect, _ in words if suspect), None)
        if all(served == goal for _, served, _, _ in words) and not self._suspect:
            return goal
        before = self._staged is not None and self._staged.version == goal
        agree(self._group, lambda: self._stage_for(goal))
        staged = None if self.served == goal and not self._suspect else self._staged
        pause = Pause(goal.version, before, 0 if staged is None else staged.exchange.num_changed)
        pause.stage = pause.wait = time.perf_counter() - began
        if before:
            pause.stage = 0.0
        else:
            pause.wait = 0.0
        self._pause = pause
        try:
            agree(self._group, lambda: self._write(staged, pause))
            clock = time.perf_counter()
            written = None if staged is None or self._suspect else staged.written
            proven = self._prove(goal, "all" if self._suspect else verify, words[0][3], written)
            pause.proof = time.perf_counter() - clock
            if proven.wrong:
                raise BaseMismatch(f"after the update {proven.words}")
        except Exception as error:  # whatever it was: no half of a version stays
            self._take_back(staged, goal, error)
            if isinstance(error, Error):
                raise
            raise as_error(error) from error
        self._previous, self._kept = (self.served, suspect), staged
        self.served, self._staged, self._error = goal, None, None
        self._note_in_feed()
        return goal

    def _note_in_feed(self) -> None:
        """The feed keeps what a worker may need. That it could not be told changes nothing of what is served."""
        if self._feed is None or self.served is None:
            return
        try:
            self._feed.took(self.served)
        except Error as error:
            log.warning("deltawire: the feed in %s: %s", self.local, error)

    def revert(self) -> Identity | None:
        """Back to what was served before the last update, if that is still possible: another engine of the server failed.

        Between two steps, on all workers. Returns what is served then.
        """
        with self._lock:
            kept, self._kept = self._kept, None
            if all(gather(self._group, kept is not None)):
                self.served, self._staged = None, None  # nobody knows, if it fails
                agree(self._group, lambda: self._put_back(kept))
                self.served, self._suspect = self._previous
                self._note_in_feed()
            return self.served

    def _nothing_to_offer(self, wanted: Wanted) -> str:
        held = local_identity(self.local)
        there = "holds no version yet, or is being patched" if held is None else f"holds {held}, and not {wanted}"
        return f"{self.local}: {there}"

    def _offered(self, wanted: Wanted) -> Identity | None:
        """What this worker would go to. What is suspect is compared with the checkpoint, and so goes to what that holds."""
        staged = None if self._staged is None or self._suspect else self._staged.version
        served = None if wanted.version is None else self.served
        return next((one for one in (staged, local_identity(self.local), served) if wanted.is_met_by(one)), None)

    def _write(self, staged: Staged | None, pause: Pause) -> None:
        if staged is None:
            return
        if staged.from_local:
            self._check_local(staged.version)
        if self._derived is not None:
            self._derived.rescan()  # some may be new since it was staged
        clock = time.perf_counter()
        staged.swapping = True
        staged.exchange.swap()
        staged.swapped = True
        self._refresh_derived(staged.written)
        pause.swap = time.perf_counter() - clock
        if staged.reloads:
            clock = time.perf_counter()
            staged.undo = self._undo()
            with reading(self.local, patience=0) if staged.from_local else nullcontext():
                self._engine_reload(staged.reload, staged.undo)
                if staged.from_local:  # the host's replica waits for readers, but not for ever
                    self._check_local(staged.version)
            if moved := self._the_map.moved(self._models):
                names = [name for array in moved for name in self._the_map.names[array]]
                raise InternalError(f"the engine gave other memory to weights that it did not load: {', '.join(names[:5])}")
            if self._derived is not None:
                self._derived.look()
            self._refresh_derived(staged.written)
            pause.reload = time.perf_counter() - clock

    def _take_back(self, staged: Staged | None, goal: Identity, error: Exception) -> None:
        """The old version is served on. Where it cannot be put back, there is only the way ahead."""
        held, self.served, self._staged = self.served, None, None
        if not any(gather(self._group, staged is not None and staged.is_lost)):
            agree(self._group, lambda: self._put_back(staged))
            self.served = held
            log.error("deltawire: %s: %s; %s is served on", goal, error, held)
            return
        self._repair(goal, error)

    def _put_back(self, staged: Staged | None) -> None:
        if staged is not None:
            staged.take_back()
            self._refresh_derived(staged.written)

    def _refresh_derived(self, written: Collection[int] | None) -> None:
        if self._derived is not None:
            self._derived.refresh(written)

    def _repair(self, goal: Identity, error: Exception) -> None:
        """Nobody knows what is served."""
        log.error("deltawire: %s: %s; all weights are loaded from %s", goal, error, self.local)
        checkpoint = LocalCheckpoint(Path(self.local))
        self._the_map.copy_in(checkpoint, self._the_map.plain)
        if self._the_map.reloaded:
            self._engine_reload(checkpoint.items(self._the_map.reloaded), self._undo())
        self._refresh_derived(None)

    # ---- looking

    def prove(self, mode: str = "all") -> Proven:
        """Prove that what is served is the version it is said to be; between two steps of the engine, on all workers."""
        with self._lock:
            if self.served is None:  # on all workers, or on none
                raise Unavailable("no version is known to be served")
            (sample, *_) = gather(self._group, self._num_samples)
            proven = self._prove(self.served, mode, sample, None)
            if proven.wrong:
                self._staged = None  # it leads on from weights that are not these
            return proven

    def _prove(self, version: Identity, mode: str, sample: int, written: Collection[int] | None) -> Proven:
        """What it finds wrong stays suspect until a proof of all tensors finds it right. `sample`: the same on all workers."""
        assert self._pieces is not None
        known = lambda: self._digests_of(version)  # noqa: E731
        derived = self._derived
        beside = None if derived is None else Beside(derived.unknown, lambda: derived.wrong(written))
        reloaded = self._reloaded | self._cut
        proven = prove(
            self._pieces,
            self._group,
            known,
            version,
            mode,
            sample=sample,
            reloaded=reloaded,
            beside=beside,
            threads=self._threads,
        )
        self._num_samples = sample + (mode == "sample")
        if proven.wrong:
            self._suspect = proven.words
        elif mode == "all":
            self._suspect = None
        if mode != "off":
            self._proven = proven
        return proven

    def _digests_of(self, version: Identity) -> dict[str, str]:
        """What the version says of its tensors: read while the engine serves, when it is staged."""
        if self._digests is None or self._digests[0] != version:
            self._digests = (version, _core.feed_digests(self.local, version))
        return self._digests[1]

    @property
    def report(self) -> Report:
        """How things are, without waiting for anything."""
        staged, the_map = self._staged, self._map
        served = self.served
        return Report(
            served=None if served is None else served._asdict(),
            staged=None if staged is None else staged.version._asdict(),
            suspect=self._suspect,
            staged_device_bytes=0 if staged is None else staged.exchange.device_bytes,
            staged_host_bytes=0 if staged is None else staged.exchange.host_bytes,
            last_pause=None if self._pause is None else asdict(self._pause),
            error=self._error,
            proof=None if self._proven is None else asdict(self._proven),
            parameters=0 if the_map is None else len(the_map.arrays),
            tensors=0 if the_map is None else len(the_map.windows),
            reloaded=[] if the_map is None else sorted(the_map.reloaded),
        )

    def close(self) -> None:
        """Say that this worker needs the feed no more."""
        if self._feed is not None:
            self._feed.leave()
            self._feed = None

    @property
    def _the_map(self) -> EngineMap:
        if self._map is None:
            raise InternalError("the worker is not attached")
        return self._map


def _shapes(forms: Mapping[str, Form]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (form.dtype, form.shape) for name, form in forms.items()}
