"""One worker of a serving engine: its live weights at a version of the chain, written in a pause of milliseconds."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted, as_dict, is_before
from deltawire._internal.ranks import Group
from deltawire.engines.atomic import check_scales, is_scale, kind_of
from deltawire.engines.checkpoint import Form, LocalCheckpoint
from deltawire.engines.copies import Copies
from deltawire.engines.group import Alone, agree, as_error, gather
from deltawire.engines.host import local_identity, newest_here, reading, spooled_identity
from deltawire.engines.loads import LoadFailed, Loads, record_loads, without_threads
from deltawire.engines.map import EngineMap, HeldTensor, bits, place_of
from deltawire.engines.proof import Beside, Boxes, Pieces, Proven, Sums, add_up, boxes_of_all, prove, uncovered
from deltawire.engines.staged import Margins, Pause, Report, Staged, read_margins
from deltawire.engines.undo import Undo, address
from deltawire.engines.workers import WorkerFile
from deltawire.errors import BaseMismatch, Error, InternalError, Unavailable
from deltawire.live import Exchange

log = logging.getLogger("deltawire")

Reload = Callable[[Iterator[tuple[str, torch.Tensor]]], None]
"""The engine's own way to load tensors, of complete modules, while it is paused."""

_DISCARDED = "the engine has discarded its weights"
_TRIES = 5  # to read a checkpoint that does not change meanwhile


class Worker:
    """Keeps a model that an engine serves at a version of the host's replica.

    `attach` finds where the model keeps each tensor and brings it to the local version. `stage` reads the next version while the
    engine serves. `update`, between two steps of the engine, writes and proves it, or leaves everything as it was. Workers of an
    engine call `attach`, `update` and `prove` together; `stage` each by itself.
    """

    reloads_all = False
    """Whether the engine's loader takes all tensors or none. They are not staged, which would be the model in each worker's host
    memory: the loader gets them from the local checkpoint, in the pause."""
    by_boxes = False
    """Whether its host fetches just what it holds, and keeps no checkpoint that follows, until it says that it needs one."""

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
        self._held: tuple[list[HeldTensor], set[str]] = [], set()
        self._margins: Margins = {}
        self._stager = _core.DeltaStager()
        self._file: WorkerFile | None = None
        self._boxes = ""  # the digest of what it holds, where that is all that its host fetches
        self._reads_checkpoint = False  # to stage: deltas alone are not enough for this model
        self.served: Identity | None = None  # None: it is not known
        self._previous: tuple[Identity | None, str | None, Margins] = None, None, {}  # before `_kept` was written
        self._kept: Staged | None = None  # has what it replaced, until the next version is staged: to free it makes the GPU wait
        self._may_revert = False
        self._suspect: str | None = None
        self._num_samples = 0
        self._error: str | None = None
        self._pause: Pause | None = None
        self._proven: Proven | None = None
        self._is_asleep = False
        self._is_unproven = False  # written with verify="behind"
        self._sums: Sums | None = None  # of what is served, while it is unproven
        self._reloaded: set[str] = set()  # on any worker
        self._cut: set[str] = set()  # tensors that workers do not hold once and whole
        self._pieces: Pieces | None = None
        self._derived: Copies  # from the first `attach` on
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
            if not hasattr(self, "_derived"):  # weights and their copies are equal until weights change
                self._derived = agree(self._group, lambda: Copies(self._models))
            version, reloaded, cut = self._attach_all()
            self._reloaded, self._cut = reloaded, cut
            if self._group.rank == 0:
                _warn(cut, "cannot be proven: the workers' shards do not tile them exactly")
                _warn(
                    reloaded,
                    "are stored differently than in the checkpoint; the engine's own loader loads versions that change them",
                )
            agree(self._group, lambda: self._begin(version))
            self._staged, self._kept, self._suspect, self.served = None, None, None, version
            self._is_unproven, self._sums = False, None
            return version

    def _attach_all(self) -> tuple[Identity, set[str], set[str]]:
        """The common version of all workers: the local checkpoint may have changed between two of them."""
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
        self._derived.reloaded = self._the_map.reloaded_modules
        self._derived.look()
        self._derived.refresh()
        _warn(self._derived.unknown, "that the engine keeps outside its parameters cannot be proven")
        self._held, self._margins = self._the_map.held(), {}
        self._reads_checkpoint = bool(self._the_map.reloaded)
        self.close()  # it may be attached again
        layout = self._layout() if self.by_boxes else None
        self._boxes = "" if not layout else sha256(layout.encode()).hexdigest()
        self._file = WorkerFile(self.local, self.name, layout=layout, served=version, reads_local=self._reads_checkpoint)

    def _layout(self) -> str:
        """What this worker holds, for its host; empty: it needs whole versions."""
        if self._cut:
            self._fall_back(f"{len(self._cut)} tensors cannot be proven: {_some(self._cut)}")
            return ""
        if self._reads_checkpoint:
            names = self._the_map.reloaded
            self._fall_back(f"{len(names)} tensors are stored differently than in the checkpoint: {_some(names)}")
        boxes = {
            (name, dtype, shape, offset, extent) for name, dtype, shape, _, own in self._held[0] for offset, extent, *_ in own
        }
        return json.dumps(sorted(boxes))

    def _fall_back(self, why: str) -> None:
        log.warning("deltawire: shards.fallback: %s: whole versions are fetched to this host: %s", self.name, why)

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
                log.info("deltawire: the memory of %s in the engine is unknown: %s", kind or "its weights", failure)
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
        if self.reloads_all:
            tensors = LocalCheckpoint(Path(self.local)).items()
        with undo, without_threads():
            self._reload(iter(tensors))

    # ---- staging

    def stage(self, version: Identity | None = None) -> bool:
        """Make the newest version ready, or this one, while the engine serves; False: there is nothing to do.

        Its deltas are decoded against the live weights. A version that they do not lead to is found by comparing all weights with
        the local checkpoint. So is any version where what is served is suspect.
        """
        with self._lock, self._reading():
            goal = self.newest if version is None or self._suspect else version
            if self._is_asleep or goal is None or self.served is None or (goal == self.served and not self._suspect):
                return False
            if version is not None and not self._has_come(version):
                return False
            staged = self._staged
            is_trusted = staged is not None and not (self._suspect and staged.from_deltas)
            if is_trusted and staged is not None and (staged.base, staged.version) == (self.served, goal):
                return False
            if staged is not None:
                self.say(staged=None)
            self._staged = self._kept = staged = None  # their memory is free before the next one takes some
            began = time.time()
            self._staged = self._stage(goal)
            if self._staged is None:
                return False
            self.say(staged=goal, staging_at=began, staged_at=time.time())
            return True

    def _has_files_for(self, goal: Identity) -> bool:
        """Whether the checkpoint has come to the version; it is waited for beside serving. `Unavailable`: it is past."""
        held = local_identity(self.local)
        if held is not None and (held.run != goal.run or held.version > goal.version):
            self._check_local(goal)
        return held == goal

    @property
    def newest(self) -> Identity | None:
        """What this worker would go to: the newest version that deltas lead to, or else what the local checkpoint holds."""
        served, held = self.served, local_identity(self.local)
        if served is None:
            return held
        if not self._suspect and not self._reads_checkpoint:
            newest = spooled_identity(self.local, self._boxes)
            if newest is not None and newest.run == served.run and newest.version >= served.version:
                return newest
        return served if is_before(held, served) else held  # it follows

    @property
    def reads_checkpoint(self) -> bool:
        """Whether deltas alone are not enough for this worker."""
        return self._reads_checkpoint or self._suspect is not None

    def _reading(self) -> AbstractContextManager[None]:
        """Where staging reads the checkpoint, it must still be there when it is read."""
        return reading(self.local) if self.reads_checkpoint else nullcontext()

    def _stage(self, goal: Identity) -> Staged | None:
        """None: the checkpoint, which it takes for this version, has not come so far yet."""
        assert self.served is not None
        the_map = self._the_map
        if self._reads_checkpoint and not self._has_files_for(goal):
            return None
        found = None if self._suspect else self._from_deltas(goal)
        margins: Margins = {}
        if found is None:
            self._read_checkpoint(True, f"no deltas lead from {self.served} to {goal}, or they are suspect")
            if not self._has_files_for(goal):
                return None
            lists, reload, changed = self._compare(goal, the_map.plain), the_map.reloaded, set(the_map.forms)
            if self.by_boxes:  # the next version may come by boxes again
                self._read_checkpoint(bool(reload))
            exchanges: list[Exchange] = []
        else:
            exchange, changed, missing = found
            others = set(missing) | (self._held[1] & changed)
            exchanges, reload = [exchange], the_map.complete(changed & the_map.reloaded)
            needed = changed & the_map.reloaded | others | {name for name in changed if is_scale(name)}
            self._read_checkpoint(bool(the_map.reloaded or needed), f"{len(needed)} tensors cannot be decoded: {_some(needed)}")
            if self._reads_checkpoint and not self._has_files_for(goal):
                return None
            lists = self._compare(goal, others) if others else []
            margins = self._read_margins(goal, missing) if missing else {}
        self._check_scales(goal, changed)
        self._digests_of(goal)
        self._derived.rescan()
        from_local = bool(reload) and self.reloads_all
        tensors = self._read(goal, () if from_local else reload) if reload else []
        if lists:
            exchanges.append(Exchange(lists, device_bytes=self._device_bytes, threads=self._threads))
        written = None if reload or self._suspect else self._written(changed)
        undecoded = () if found is None else tuple(found[2])
        return Staged(goal, self.served, exchanges, tensors, found is not None, from_local, written, margins, undecoded)

    def _from_deltas(self, goal: Identity) -> tuple[Exchange, set[str], dict[str, list[Any]]] | None:
        """What the deltas change, in which tensors, and what this worker lacks to decode some. None: they do not lead there."""
        assert self.served is not None
        tensors = [  # by offset: copies of boxes that continue each other are one, whose tiles nothing cuts
            (name, dtype, shape, is_cuda, sorted([*boxes, *(place_of(*one) for one in self._margins.get(name, ()))]))
            for name, dtype, shape, is_cuda, boxes in self._held[0]
        ]
        try:
            deltas = _core.spooled_deltas(self.local, self.served, goal, self._boxes)
            core, changed, missing = self._stager.stage(deltas, tensors, self._device_bytes, self._threads)
            if missing and self.by_boxes and self._has_margins(missing):
                return self._from_deltas(goal)
        except BaseMismatch:
            raise
        except Error as error:
            log.info("deltawire: %s; weights are compared with the checkpoint instead", error)
            self._margins = {}
            return None
        margins = [array for boxes in self._margins.values() for _, array in boxes]
        return Exchange._of(core, [*self._the_map.arrays, *margins]), set(changed), missing

    def _has_margins(self, missing: Mapping[str, list[Any]]) -> bool:
        """Whether some of what is missing came out of a checkpoint that is still the version that is served."""
        new = {name: boxes for name, boxes in missing.items() if name not in self._margins}
        if self.served is None or local_identity(self.local) != self.served:
            return False
        try:
            found = self._read_margins(self.served, new)
        except Unavailable:  # it goes on
            return False
        self._margins = self._margins | found
        return bool(found)

    def _read_margins(self, goal: Identity, missing: Mapping[str, list[Any]]) -> Margins:
        """So that the next version can be decoded here. They go from version to version with the weights."""
        held = [name for name, *_ in self._held[0]]
        # In a draft model too: which of them lacks what is not told.
        alone = {name: more for name, more in missing.items() if held.count(name) <= 1}
        with self._steady(goal) as checkpoint:
            return read_margins(checkpoint, self._the_map, self._margins, alone)

    def _written(self, changed: Collection[str]) -> set[int]:
        """Memory of the arrays that have something of these tensors."""
        the_map = self._the_map
        numbers = {window.array for name in changed for window in the_map.windows.get(name, ())}
        return {address(the_map.arrays[number]) for number in numbers}

    def _read_checkpoint(self, is_needed: bool, why: str = "") -> None:
        """Say whether this worker needs the local checkpoint to follow at once."""
        if is_needed != self._reads_checkpoint:
            if is_needed and self.by_boxes:
                self._fall_back(why)
            self._reads_checkpoint = is_needed
            self.say(reads_local=is_needed)

    def _has_come(self, version: Identity) -> bool:
        """Not so on a host that is behind another, which has other workers of the engine."""
        here = newest_here(self.local, self._boxes)
        return here is not None and (here.run != version.run or here.version >= version.version)

    def _stage_for(self, goal: Identity) -> None:
        if self.served is None:
            raise Unavailable("the served version is unknown: attach again")
        self.stage(goal)
        if self.staged != goal and (self.served != goal or self._suspect):
            self._check_local(goal)
            raise Unavailable(f"{goal} is not staged")

    def _compare(self, goal: Identity, names: Iterable[str]) -> list[Any]:
        with self._steady(goal) as checkpoint:
            return self._the_map.from_checkpoint(checkpoint, names)

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
                raise BaseMismatch(f"{goal} has other tensors than the served model: restart the engine")
            yield checkpoint
            self._check_local(goal)

    def _check_local(self, goal: Identity) -> None:
        held = local_identity(self.local)
        if held != goal:
            there = "is being patched" if held is None else f"holds {held}"
            raise Unavailable(f"{self.local}: {there}, and {goal} was expected")

    # ---- writing

    def update(self, wanted: Wanted | Identity | int | None = None, verify: str = "all", *, keep: bool = False) -> Identity:
        """Write a version and prove it; the engine must be between two steps. What is served then is returned.

        That is the version that is staged, if it is what is wanted, else the local one. All workers go there, or none: a failure
        on one of them takes back what the others wrote, and is raised on all. `keep`: `revert` can take it back later, too.
        """
        with self._lock:
            began, self._may_revert = time.perf_counter(), False
            try:
                self._check_awake()
                return self._update(Wanted.of(wanted), verify, began, keep)
            except Error as error:
                self._error = str(error)
                raise
            finally:
                if self._pause is not None:
                    self._pause.total = time.perf_counter() - began

    def _update(self, wanted: Wanted, verify: str, began: float, keep: bool) -> Identity:
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
        pause = Pause(goal.version, before, 0 if staged is None else staged.num_changed)
        seconds = time.perf_counter() - began
        pause.wait, pause.stage = (seconds, 0.0) if before else (0.0, seconds)
        self._pause = pause
        try:
            agree(self._group, lambda: self._write(staged, pause))
            clock = time.perf_counter()
            written = None if staged is None or self._suspect else staged.written
            mode = "all" if self._suspect else verify
            if mode != "behind":
                proven = self._prove(self._add_up(goal, mode, words[0][3], written), mode)
                if proven.wrong:
                    raise BaseMismatch(f"after the update {proven.words}")
            pause.proof = time.perf_counter() - clock
        except Exception as error:  # whatever it was: no half of a version stays
            self._take_back(staged, goal, error)
            if isinstance(error, Error):
                raise
            raise as_error(error) from error
        self._previous, self._kept, self._may_revert = (self.served, suspect, self._margins), staged, keep
        self._take_margins(staged)
        self.served, self._staged, self._error = goal, None, None
        self._is_unproven, self._sums = mode == "behind", None
        self.say(served=goal, staged=None, summed=False, suspect=False, pause=time.perf_counter() - began)
        return goal

    def say(self, **words: Any) -> None:
        """In this worker's file, if there is something new. That it could not be written changes nothing of what is served."""
        if self._file is None:
            return
        try:
            self._file.note(**words) if words else self._file.keep()
        except (Error, OSError) as error:
            log.warning("deltawire: %s: %s", self.local, error)

    def _take_margins(self, staged: Staged | None) -> None:
        """Those that there were have gone to the version with the weights, if deltas led there."""
        if staged is None:
            return
        kept = {name: boxes for name, boxes in self._margins.items() if staged.from_deltas and name not in staged.undecoded}
        self._margins = kept | staged.margins
        if staged.margins and not set(staged.undecoded) - set(staged.margins):
            self._read_checkpoint(bool(self._the_map.reloaded))

    def revert(self) -> Identity | None:
        """Back to what was served before the last update, if that is still possible: another engine of the server failed.

        Between two steps, on all workers. Returns what is served then.
        """
        with self._lock:
            kept, self._kept = self._kept if self._may_revert else None, None
            if all(gather(self._group, kept is not None)):
                self.served, self._staged = None, None  # nobody knows, if it fails
                agree(self._group, lambda: self._put_back(kept))
                self.served, self._suspect, self._margins = self._previous
                self._is_unproven, self._sums = False, None
                self.say(served=self.served, staged=None, summed=False)
            return self.served

    def _nothing_to_offer(self, wanted: Wanted) -> str:
        held = newest_here(self.local, self._boxes)
        there = "holds no version yet, or is being patched" if held is None else f"holds {held}, and not {wanted}"
        return f"{self.local}: {there}"

    def _offered(self, wanted: Wanted) -> Identity | None:
        """What this worker would go to. What is suspect is compared with the checkpoint, and so goes to what that holds."""
        staged = None if self._staged is None or self._suspect else self._staged.version
        if wanted.is_met_by(staged):  # in a pause nothing more is looked at
            return staged
        served = None if wanted.version is None else self.served
        return next((one for one in (self.newest, served) if wanted.is_met_by(one)), None)

    def _write(self, staged: Staged | None, pause: Pause) -> None:
        if staged is None:
            return
        if staged.from_local:
            self._check_local(staged.version)
        self._derived.rescan()  # some may be new since it was staged
        clock = time.perf_counter()
        staged.write()
        self._derived.refresh(staged.written)
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
                raise InternalError(f"the engine moved weights that it did not load: {', '.join(names[:5])}")
            self._derived.look()
            self._derived.refresh(staged.written)
            pause.reload = time.perf_counter() - clock

    def _take_back(self, staged: Staged | None, goal: Identity, error: Exception) -> None:
        """The old version is still served. Where it cannot be put back, there is only the way ahead."""
        held, self.served, self._staged = self.served, None, None
        self.say(staged=None)
        if not any(gather(self._group, staged is not None and staged.is_lost)):
            agree(self._group, lambda: self._put_back(staged))
            self.served = held
            log.error("deltawire: %s: %s; %s is still served", goal, error, held)
            return
        self._repair(goal, error)

    def _put_back(self, staged: Staged | None) -> None:
        if staged is not None:
            staged.take_back()
            self._derived.refresh(staged.written)

    def _repair(self, goal: Identity, error: Exception) -> None:
        """Nobody knows what is served."""
        log.error("deltawire: %s: %s; all weights are loaded from %s", goal, error, self.local)
        checkpoint = LocalCheckpoint(Path(self.local))
        self._the_map.copy_in(checkpoint, self._the_map.plain)
        if self._the_map.reloaded:
            self._engine_reload(checkpoint.items(self._the_map.reloaded), self._undo())
        self._derived.refresh()

    # ---- looking

    def prove(self, mode: str = "all") -> Proven:
        """Prove that what is served is the version it is said to be; between two steps of the engine, on all workers.

        `behind`: all tensors, with what was added up beside serving.
        """
        with self._lock:
            self._check_awake()
            if self.served is None:  # on all workers, or on none
                raise Unavailable("no version is known to be served")
            (sample, *_) = gather(self._group, self._num_samples)
            sums, self._sums = self._sums if mode == "behind" else None, None
            proven = self._prove(sums or self._add_up(self.served, mode, sample, None), mode)
            if mode != "sample":
                self._is_unproven = False
                self.say(summed=False)
            if proven.wrong:
                self._staged = None  # it leads on from weights that are not these
                self.say(staged=None)
            return proven

    def sum_up(self) -> None:
        """Add up what an update has written without a proof, while the engine serves. `prove` compares it."""
        with self._lock:
            if self._is_unproven and not self._is_asleep and self._sums is None and self.served is not None:
                self._sums = self._add_up(self.served, "behind", 0, None)
                self.say(summed=True)

    def _add_up(self, version: Identity, mode: str, sample: int, written: Collection[int] | None) -> Sums:
        """`sample`: the same on all workers."""
        assert self._pieces is not None
        beside = Beside(self._derived.unknown, lambda: self._derived.wrong(written))
        self._num_samples = sample + (mode == "sample")
        return add_up(
            self._pieces,
            lambda: self._digests_of(version),
            version,
            mode,
            sample=sample,
            reloaded=self._reloaded | self._cut,
            beside=beside,
            threads=self._threads,
        )

    def _prove(self, sums: Sums, mode: str) -> Proven:
        """What it finds wrong stays suspect until a proof of all tensors finds it right."""
        proven = prove(sums, self._group, mode)
        if proven.wrong:
            self._suspect = proven.words
        elif mode in ("all", "behind"):
            self._suspect = None
        if mode != "off":
            self._proven = proven
        return proven

    def _digests_of(self, version: Identity) -> dict[str, str]:
        """What the version says of its tensors: read while the engine serves, when it is staged."""
        if self._digests is None or self._digests[0] != version:
            self._digests = (version, _core.spooled_digests(self.local, version))
        return self._digests[1]

    @property
    def report(self) -> Report:
        """How things are, without waiting for anything."""
        staged, the_map = self._staged, self._map
        return Report(
            served=as_dict(self.served),
            staged=as_dict(self.staged),
            suspect=self._suspect,
            staged_device_bytes=0 if staged is None else sum(one.device_bytes for one in staged.exchanges),
            staged_host_bytes=0 if staged is None else sum(one.host_bytes for one in staged.exchanges),
            last_pause=None if self._pause is None else asdict(self._pause),
            error=self._error,
            proof=None if self._proven is None else asdict(self._proven),
            summed=self._sums is not None,
            parameters=0 if the_map is None else len(the_map.arrays),
            tensors=0 if the_map is None else len(the_map.windows),
            reloaded=[] if the_map is None else sorted(the_map.reloaded),
        )

    def sleep(self, *, loses_weights: bool) -> None:
        """The engine takes its weights out of memory: from the end of this call until `wake` nothing reads them."""
        with self._lock:
            self._is_asleep = True
            if loses_weights and self.served is not None:
                self._suspect = _DISCARDED

    def wake(self) -> None:
        """They are there again; those that were lost are compared with the checkpoint, like all that is suspect."""
        with self._lock:
            self._is_asleep = False
            if self._suspect == _DISCARDED:
                for array in self._the_map.arrays:
                    bits(array).zero_()  # padding is in no checkpoint
            self.say(suspect=self._suspect is not None)

    def _check_awake(self) -> None:
        if self._is_asleep:
            raise Unavailable("the engine sleeps: its weights are not in memory")

    def close(self) -> None:
        """Say that this worker needs nothing of its host any more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _the_map(self) -> EngineMap:
        if self._map is None:
            raise InternalError("the worker is not attached")
        return self._map


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:8])


def _warn(names: Collection[str], why: str) -> None:
    if names:
        log.warning("deltawire: %d tensors %s: %s", len(names), why, _some(names))


def _shapes(forms: Mapping[str, Form]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (form.dtype, form.shape) for name, form in forms.items()}
