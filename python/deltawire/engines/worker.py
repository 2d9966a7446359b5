"""A worker of a serving engine: keeps its live weights at a version of the chain."""

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
"""The engine's own loader, for tensors of complete modules, while it is paused."""

_DISCARDED = "the engine has discarded its weights"
_TRIES = 5  # to read a checkpoint while it does not change


class Worker:
    """Keeps a served model at a version of the host.

    `attach` finds the memory of each tensor and loads the local version. `stage` decodes the next version while the engine
    serves. `update`, between two steps of the engine, writes and verifies it, or restores the old version. All workers of an
    engine call `attach`, `update` and `prove` together, `stage` independently.
    """

    reloads_all = False
    """Whether the engine's loader needs all tensors. They are not staged, which would need host memory for the whole model:
    the loader reads the local checkpoint during the pause."""
    by_boxes = False
    """Whether the host fetches only the worker's boxes, and updates the checkpoint only on demand."""

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
        self._lock = threading.RLock()  # held while staging and writing
        self._map: EngineMap | None = None
        self._staged: Staged | None = None
        self._held: tuple[list[HeldTensor], set[str]] = [], set()
        self._margins: Margins = {}
        self._stager = _core.DeltaStager()
        self._file: WorkerFile | None = None
        self._boxes = ""  # digest of its layout, with `by_boxes`
        self._reads_checkpoint = False  # staging needs the checkpoint, not only deltas
        self.served: Identity | None = None  # None: unknown
        self._previous: tuple[Identity | None, str | None, Margins] = (
            None,
            None,
            {},
        )  # before the last update
        self._kept: Staged | None = None  # replaced weights; freed by the next `stage`, since freeing blocks the GPU
        self._may_revert = False
        self._suspect: str | None = None
        self._num_samples = 0
        self._error: str | None = None
        self._pause: Pause | None = None
        self._proven: Proven | None = None
        self._is_asleep = False
        self._is_unproven = False  # written with verify="behind"
        self._sums: Sums | None = None  # sums of the served version, while it is unproven
        self._reloaded: set[str] = set()  # on any worker
        self._cut: set[str] = set()  # tensors that the workers' boxes do not tile exactly
        self._pieces: Pieces | None = None
        self._derived: Copies  # from the first `attach` on
        self._digests: tuple[Identity, _core.SpooledDigests] | None = None  # of the last version

    @property
    def version(self) -> int | None:
        """The number of the served version."""
        return None if self.served is None else self.served.version

    @property
    def staged(self) -> Identity | None:
        """The staged version."""
        staged = self._staged
        return None if staged is None else staged.version

    # ---- attaching

    def attach(self) -> Identity:
        """Find the memory of all tensors, compare it with the local checkpoint and update it. Returns the version."""
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
        """Attach until all workers have the same version: the local checkpoint may change meanwhile."""
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
        self._pieces.of(self._the_map.plain)
        self._derived.reloaded = self._the_map.reloaded_modules
        self._derived.look()
        self._derived.refresh()
        _warn(self._derived.unknown, "that the engine keeps outside its parameters cannot be proven")
        self._held, self._margins = self._the_map.held(), {}
        self._reads_checkpoint = bool(self._the_map.reloaded)
        self.close()  # of an earlier `attach`
        layout = self._layout() if self.by_boxes else None
        self._boxes = "" if not layout else sha256(layout.encode()).hexdigest()
        self._file = WorkerFile(self.local, self.name, layout=layout, served=version, reads_local=self._reads_checkpoint)

    def _layout(self) -> str:
        """The boxes of this worker, as JSON for its host; "": it needs whole versions."""
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
        log.warning("deltawire: shards.fallback: %s: fetching whole versions to this host: %s", self.name, why)

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
        """Record loads; leave out kinds of modules whose loader fails, because they were packed into other shapes."""
        left, lost = dict(checkpoint.forms), set[str]()
        while left:
            try:
                return EngineMap(record_loads(self._model, left, self._drafts), checkpoint.forms, lost)
            except LoadFailed as failure:
                kind = kind_of(failure.tensor) if failure.tensor else None
                more = {name for name in left if kind is None or kind_of(name) == kind}
                log.info("deltawire: cannot find the memory of %s in the engine: %s", kind or "any weights", failure)
                lost |= more
                left = {name: form for name, form in left.items() if name not in more}
        return EngineMap(Loads(), checkpoint.forms, lost)

    def _bring_to(self, checkpoint: LocalCheckpoint) -> None:
        """Reload weights that differ from the checkpoint. If they still differ, they are not plain copies."""
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
                f"{len(names)} tensors differ from {self.local}, and this engine cannot reload them: {', '.join(names[:5])}"
            )
        if self.reloads_all:
            tensors = LocalCheckpoint(Path(self.local)).items()
        with undo, without_threads():
            self._reload(iter(tensors))

    # ---- staging

    def stage(self, version: Identity | None = None) -> bool:
        """Stage a version (default: the newest) while the engine serves; returns False if there is nothing to do.

        Deltas are decoded against the live weights. Without deltas, or if the served weights are suspect, all weights are
        compared with the local checkpoint.
        """
        with self._lock, self._reading():
            goal = self.newest if version is None or self._suspect else version
            if self._is_asleep or goal is None or self.served is None or (goal == self.served and not self._suspect):
                return False
            staged = self._staged
            is_trusted = staged is not None and not (self._suspect and staged.from_deltas)
            if is_trusted and staged is not None and (staged.base, staged.version) == (self.served, goal):
                return False  # without reading files, which takes time during the pause
            if version is not None and not self._has_come(version):
                return False
            if staged is not None:
                self.say(staged=None)
            self._staged = self._kept = staged = None  # free their memory first
            began = time.time()
            self._staged = self._stage(goal)
            if self._staged is None:
                return False
            self.say(staged=goal, staging_at=began, staged_at=time.time())
            return True

    def _has_files_for(self, goal: Identity) -> bool:
        """Whether the checkpoint is at the version; False: not yet. `Unavailable`: it is past the version."""
        held = local_identity(self.local)
        if held is not None and (held.run != goal.run or held.version > goal.version):
            self._check_local(goal)
        return held == goal

    @property
    def newest(self) -> Identity | None:
        """The newest version that deltas lead to, or else that of the local checkpoint."""
        served, held = self.served, local_identity(self.local)
        if served is None:
            return held
        if not self._suspect and not self._reads_checkpoint:
            newest = spooled_identity(self.local, self._boxes)
            if newest is not None and newest.run == served.run and newest.version >= served.version:
                return newest
        return served if is_before(held, served) else held  # the checkpoint may lag

    @property
    def reads_checkpoint(self) -> bool:
        """Whether this worker needs the checkpoint, not only deltas."""
        return self._reads_checkpoint or self._suspect is not None

    def _reading(self) -> AbstractContextManager[None]:
        """Keep the host from patching the checkpoint, if staging reads it."""
        return reading(self.local) if self.reads_checkpoint else nullcontext()

    def _stage(self, goal: Identity) -> Staged | None:
        """Stage a version; None: it needs the checkpoint, which is not at this version yet."""
        assert self.served is not None
        the_map = self._the_map
        if self._reads_checkpoint and not self._has_files_for(goal):
            return None
        found = None if self._suspect else self._from_deltas(goal)
        margins: Margins = {}
        if found is None:
            self._read_checkpoint(True, f"no usable deltas from {self.served} to {goal}")
            if not self._has_files_for(goal):
                return None
            lists, reload, changed = self._compare(goal, the_map.plain), the_map.reloaded, set(the_map.forms)
            if self.by_boxes:  # boxes may be enough for the next version
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
        """Decode deltas. Returns the exchange, changed tensors, and missing boxes by tensor; None: no usable deltas."""
        assert self.served is not None
        tensors = [  # sorted by offset, so that adjacent boxes are merged and tiles are not cut
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
            log.info("deltawire: %s; comparing weights with the checkpoint instead", error)
            self._margins = {}
            return None
        margins = [array for boxes in self._margins.values() for _, array in boxes]
        return Exchange._of(core, [*self._the_map.arrays, *margins]), set(changed), missing

    def _has_margins(self, missing: Mapping[str, list[Any]]) -> bool:
        """Read missing margins from the checkpoint, if it still holds the served version; returns whether any were read."""
        new = {name: boxes for name, boxes in missing.items() if name not in self._margins}
        if self.served is None or local_identity(self.local) != self.served:
            return False
        try:
            found = self._read_margins(self.served, new)
        except Unavailable:  # the checkpoint has changed
            return False
        self._margins = self._margins | found
        return bool(found)

    def _read_margins(self, goal: Identity, missing: Mapping[str, list[Any]]) -> Margins:
        """Read margins that the next version needs to be decoded. They are updated along with the weights."""
        held = [name for name, *_ in self._held[0]]
        # Skip tensors that a draft model holds too: it is unknown which copy lacks a box.
        alone = {name: more for name, more in missing.items() if held.count(name) <= 1}
        with self._steady(goal) as checkpoint:
            return read_margins(checkpoint, self._the_map, self._margins, alone)

    def _written(self, changed: Collection[str]) -> set[int]:
        """Memory of the arrays that hold parts of these tensors."""
        the_map = self._the_map
        numbers = {window.array for name in changed for window in the_map.windows.get(name, ())}
        return {address(the_map.arrays[number]) for number in numbers}

    def _read_checkpoint(self, is_needed: bool, why: str = "") -> None:
        """Report whether this worker needs the local checkpoint to be updated immediately."""
        if is_needed != self._reads_checkpoint:
            if is_needed and self.by_boxes:
                self._fall_back(why)
            self._reads_checkpoint = is_needed
            self.say(reads_local=is_needed)

    def _has_come(self, version: Identity) -> bool:
        """Whether the version is on this host; another host of the engine may be ahead."""
        here = newest_here(self.local, self._boxes)
        return here is not None and (here.run != version.run or here.version >= version.version)

    def _stage_for(self, goal: Identity) -> None:
        if self.served is None:
            raise Unavailable("the served version is unknown; attach again")
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
        """The local checkpoint. It must be at this version before and after the block."""
        with reading(self.local):
            self._check_local(goal)
            checkpoint = LocalCheckpoint(Path(self.local))
            if _shapes(checkpoint.forms) != _shapes(self._the_map.forms):
                raise BaseMismatch(f"{goal} has other tensors than the served model; restart the engine")
            yield checkpoint
            self._check_local(goal)

    def _check_local(self, goal: Identity) -> None:
        held = local_identity(self.local)
        if held != goal:
            there = "is being patched" if held is None else f"holds {held}"
            raise Unavailable(f"{self.local}: {there}, but {goal} was expected")

    # ---- writing

    def update(self, wanted: Wanted | Identity | int | None = None, verify: str = "all", *, keep: bool = False) -> Identity:
        """Write and verify a version, between two steps of the engine. Returns the version served afterwards.

        It is the staged version if that is the wanted one, else the local one. If a worker fails, all workers restore their
        weights and raise. `keep`: allow `revert` afterwards.
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
        # Rank 0 decides, so that all workers choose the same version.
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
        except Exception as error:  # never leave a version partly written
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
        """Update this worker's file. A failure to write it is only logged."""
        if self._file is None:
            return
        try:
            self._file.note(**words) if words else self._file.keep()
        except (Error, OSError) as error:
            log.warning("deltawire: %s: %s", self.local, error)

    def _take_margins(self, staged: Staged | None) -> None:
        """Keep margins that deltas have updated, and take those of the staged version."""
        if staged is None:
            return
        kept = {name: boxes for name, boxes in self._margins.items() if staged.from_deltas and name not in staged.undecoded}
        self._margins = kept | staged.margins
        if staged.margins and not set(staged.undecoded) - set(staged.margins):
            self._read_checkpoint(bool(self._the_map.reloaded))

    def revert(self) -> Identity | None:
        """Restore the weights before the last update, if possible, because another engine of the server failed.

        Called on all workers, between two steps. Returns the version served afterwards.
        """
        with self._lock:
            kept, self._kept = self._kept if self._may_revert else None, None
            if all(gather(self._group, kept is not None)):
                self.served, self._staged = None, None  # unknown, if restoring fails
                agree(self._group, lambda: self._put_back(kept))
                self.served, self._suspect, self._margins = self._previous
                self._is_unproven, self._sums = False, None
                self.say(served=self.served, staged=None, summed=False)
            return self.served

    def _nothing_to_offer(self, wanted: Wanted) -> str:
        held = newest_here(self.local, self._boxes)
        there = "holds no version yet, or is being patched" if held is None else f"holds {held}, not {wanted}"
        return f"{self.local}: {there}"

    def _offered(self, wanted: Wanted) -> Identity | None:
        """The version that this worker can go to. Suspect weights can only go to the version of the checkpoint."""
        staged = None if self._staged is None or self._suspect else self._staged.version
        if wanted.is_met_by(staged):  # fast path, during the pause
            return staged
        served = None if wanted.version is None else self.served
        return next((one for one in (self.newest, served) if wanted.is_met_by(one)), None)

    def _write(self, staged: Staged | None, pause: Pause) -> None:
        if staged is None:
            return
        if staged.from_local:
            self._check_local(staged.version)
        self._derived.rescan()  # new copies since it was staged
        clock = time.perf_counter()
        staged.write()
        self._derived.refresh(staged.written)
        pause.swap = time.perf_counter() - clock
        if staged.reloads:
            clock = time.perf_counter()
            staged.undo = self._undo()
            with reading(self.local, patience=0) if staged.from_local else nullcontext():
                self._engine_reload(staged.reload, staged.undo)
                if staged.from_local:  # the host may have patched it: it waits for readers only for a while
                    self._check_local(staged.version)
            if moved := self._the_map.moved(self._models):
                names = [name for array in moved for name in self._the_map.names[array]]
                raise InternalError(f"the engine has moved weights that it did not load: {', '.join(names[:5])}")
            self._derived.look()
            self._derived.refresh(staged.written)
            pause.reload = time.perf_counter() - clock

    def _take_back(self, staged: Staged | None, goal: Identity, error: Exception) -> None:
        """Restore the old version on all workers; if that is impossible on one, load the local checkpoint on all."""
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
        """Load all weights from the local checkpoint."""
        log.error("deltawire: %s: %s; loading all weights from %s", goal, error, self.local)
        checkpoint = LocalCheckpoint(Path(self.local))
        self._the_map.copy_in(checkpoint, self._the_map.plain)
        if self._the_map.reloaded:
            self._engine_reload(checkpoint.items(self._the_map.reloaded), self._undo())
        self._derived.refresh()

    # ---- verification

    def prove(self, mode: str = "all") -> Proven:
        """Compare the served weights with their version, between two steps of the engine, on all workers.

        `behind`: all tensors, with sums that were computed while the engine served.
        """
        with self._lock:
            self._check_awake()
            if self.served is None:  # on all workers, or on none
                raise Unavailable("the served version is unknown")
            (sample, *_) = gather(self._group, self._num_samples)
            sums, self._sums = self._sums if mode == "behind" else None, None
            proven = self._prove(sums or self._add_up(self.served, mode, sample, None), mode)
            if mode != "sample":
                self._is_unproven = False
                self.say(summed=False)
            if proven.wrong:
                self._staged = None  # it was decoded against wrong weights
                self.say(staged=None)
            return proven

    def sum_up(self) -> None:
        """Compute sums of unverified weights, while the engine serves, for `prove`."""
        with self._lock:
            if self._is_unproven and not self._is_asleep and self._sums is None and self.served is not None:
                self._sums = self._add_up(self.served, "behind", 0, None)
                self.say(summed=True)

    def _add_up(self, version: Identity, mode: str, sample: int, written: Collection[int] | None) -> Sums:
        """`sample` must be the same on all workers."""
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
        """Compare sums. Wrong weights stay suspect until a proof of all tensors succeeds."""
        proven = prove(sums, self._group, mode)
        if proven.wrong:
            self._suspect = proven.words
        elif mode in ("all", "behind"):
            self._suspect = None
        if mode != "off":
            self._proven = proven
        return proven

    def _digests_of(self, version: Identity) -> _core.SpooledDigests:
        """Digests of a version's tensors; cached when it is staged."""
        if self._digests is None or self._digests[0] != version:
            self._digests = (version, _core.spooled_digests(self.local, version))
        return self._digests[1]

    @property
    def report(self) -> Report:
        """The current state; does not block."""
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
        """Stop reading weights until `wake`: the engine removes them from memory."""
        with self._lock:
            self._is_asleep = True
            if loses_weights and self.served is not None:
                self._suspect = _DISCARDED

    def wake(self) -> None:
        """Weights are in memory again. Lost weights are suspect, and will be compared with the checkpoint."""
        with self._lock:
            self._is_asleep = False
            if self._suspect == _DISCARDED:
                for array in self._the_map.arrays:
                    bits(array).zero_()  # padding is not in the checkpoint
            self.say(suspect=self._suspect is not None)

    def _check_awake(self) -> None:
        if self._is_asleep:
            raise Unavailable("the engine sleeps; its weights are not in memory")

    def close(self) -> None:
        """Remove this worker's file: it no longer needs its host."""
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
