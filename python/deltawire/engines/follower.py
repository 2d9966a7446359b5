"""Lets an engine follow a chain: when and how it is updated, and what operators see."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from deltawire import _core
from deltawire._internal.identity import ANY, Identity, Wanted, as_dict, is_before
from deltawire.engines.host import look_now, newest_here
from deltawire.engines.settings import Settings
from deltawire.engines.workers import read_workers, served_by, workers_folder
from deltawire.errors import Error

log = logging.getLogger("deltawire")

_LOOK_SECONDS = 0.5  # maximum time between checks of the local folder; workers also wake the follower
_CHECKS_PER_QUESTION = 6  # a question keeps idle vLLM workers busy for a second
_MOST_SECONDS = 60.0  # maximum time between attempts to heal, each of which pauses the engine
_HINT_SECONDS = 0.1  # minimum time between queries of the store on behalf of callers
_STAGE_SECONDS = 0.02  # between checks, while workers of other hosts stage a version


class EngineCalls(Protocol):
    """Calls of an engine. They return an answer of each worker of all engines of the server."""

    @property
    def num_engines(self) -> int:
        """Number of data-parallel engines, each with its own workers."""

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """Call `attach`, `stage`, `status`, `update`, `revert` or `prove` on all workers, between two steps."""

    async def pause(self, keep_cache: bool) -> None:
        """Pause requests, so that no step starts."""

    async def resume(self) -> None:
        """Resume requests, unless another caller has paused the engine too."""

    async def set_version(self, served: Identity) -> None:
        """Set the weight version that the engine reports."""


@dataclass
class Seen:
    """State of a follower."""

    served: Identity | None = None  # None: none yet, or unknown
    held: Identity | None = None  # by the host's replica
    state: str = "starting"  # starting, serving, updating
    error: str | None = None
    problems: dict[str, str] = field(default_factory=dict)
    """Why the engine is not ready, by kind: host, store, workers, proof, label, pause."""
    updates: int = 0
    failures: int = 0
    heals: int = 0  # failed proofs after which weights were repaired
    pause_seconds: float | None = None  # of the last update, from first to last call
    pause_seconds_total: float = 0.0
    updated: float | None = None  # time.time()
    timeline: dict[str, float] = field(default_factory=dict)
    """Times of the last update, by time.time(): staging, staged (by the last worker), pause, written, served."""
    workers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def named(self) -> dict[str, Any]:
        """Run, version and manifest of what is served."""
        return dict.fromkeys(Identity._fields) if self.served is None else self.served._asdict()

    def why_not_ready(self, wanted: Wanted) -> str | None:
        """Why the engine is not ready; None: it serves the wanted version without problems."""
        if self.served is None:
            return self.error or "no version is served yet"
        if self.problems:
            return "; ".join(self.problems.values())
        return None if wanted.is_met_by(self.served) else f"{self.served} is served"


class Follower:
    """Updates the engine to each new version of the host until the engine ends."""

    def __init__(self, settings: Settings, engine: EngineCalls, *, alive: Callable[[], bool] = lambda: True) -> None:
        self.settings, self._engine, self._alive = settings, engine, alive
        self.busy = asyncio.Lock()  # one update at a time
        self._checked = float("-inf")  # time of the last check of the store
        self._num_checks = 0
        self._hinted = float("-inf")
        self._events = _core.FolderEvents()  # changes of the files of this host's workers
        self.seen = Seen()

    async def run(self) -> None:
        """Run until the engine ends."""
        failures = 0
        while self._alive():
            try:
                await self._go_on()
                failures = 0
                await self._wait()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += 1
                self._note(error)
                most = _MOST_SECONDS if "proof" in self.seen.problems else self.settings.interval
                await asyncio.sleep(min(most, 0.5 * 2 ** min(failures, 7)))

    async def _wait(self, seconds: float = _LOOK_SECONDS) -> None:
        """Wait until a worker of this host reports a change, at most `seconds`."""
        self._events.watch(workers_folder(self.settings.local), writes=True)
        await asyncio.to_thread(self._events.wait, seconds)

    async def _go_on(self) -> None:
        """Take the next step, if there is one."""
        if "pause" in self.seen.problems:
            await self._resume()
        elif "label" in self.seen.problems and self.seen.served is not None:
            await self._label(self.seen.served)
        elif self.seen.served is None:
            await self._attach()
        elif await self._is_due():
            await self.update()
        elif await self._is_summed():
            await self.prove("behind")
        elif time.monotonic() - self._checked >= self.settings.interval:
            self._num_checks += 1
            await self.check(ask_workers=self._num_checks % _CHECKS_PER_QUESTION == 0)

    async def _is_due(self) -> bool:
        """Whether to update without a request. If callers choose versions, only to repair weights."""
        if "proof" not in self.seen.problems and any(words.get("suspect") for words in (await self._stagings())[0]):
            await self._look_at_workers()
        is_behind = await self._is_behind()
        if self.settings.follow:
            return is_behind or self._must_update
        return "workers" in self.seen.problems or ("proof" in self.seen.problems and self.seen.held == self.seen.served)

    @property
    def _must_update(self) -> bool:
        """Whether weights must be repaired, or workers brought to the same version."""
        return bool(self.seen.problems.keys() & {"proof", "workers"})

    async def update(self, wanted: Wanted = ANY) -> Identity:
        """Go to the version that all workers have staged, one call at a time. Returns the served version."""
        async with self.busy:
            goal = await self._staged_goal(wanted)
            suspect = self.seen.problems.get("proof")
            if await self._is_summed():  # verify a version before replacing it
                await self._prove("behind")
                if "proof" in self.seen.problems and not suspect:
                    raise RuntimeError(self.seen.problems["proof"])
            if goal == self.seen.served and not self._must_update:
                return goal
            self.seen.state = "updating"
            began = time.perf_counter()
            try:
                self.seen.timeline["pause"] = time.time()
                try:
                    await self._engine.pause(
                        self.settings.keep_cache and not suspect
                    )  # drop caches that wrong weights have computed
                    reached = await self._write(goal)
                    self.seen.timeline["written"] = time.time()
                finally:
                    await self._resume()
                self._serve(reached)
                self.seen.timeline["served"] = time.time()
            finally:
                known = getattr(self._engine, "paused_seconds", None)
                self.seen.pause_seconds = time.perf_counter() - began if known is None else known
                self.seen.pause_seconds_total += self.seen.pause_seconds
                self.seen.state = "serving"
                await self._look_at_workers()
            self.seen.updates += 1
            if suspect and "proof" not in self.seen.problems:
                self.seen.heals += 1
                log.warning("deltawire: healed: all weights were compared with %s and match %s", self.settings.local, reached)
            log.info("deltawire: %s, pause %.1f ms", reached, 1e3 * self.seen.pause_seconds)
            if not wanted.is_met_by(reached):
                raise RuntimeError(f"{wanted} was requested, but {reached} is served")
            return reached

    async def _write(self, goal: Identity) -> Identity:
        reached = await update_engines(self._engine, wanted=list(Wanted.of(goal)), verify=self.settings.verify)
        await self._label(reached)
        return reached

    async def _label(self, served: Identity) -> None:
        """Label outputs with the version; the engine is not ready if this fails."""
        try:
            await self._engine.set_version(served)
        except Exception as error:
            self._problem("label", f"cannot label outputs as {served}: {error}")
        else:
            self.seen.problems.pop("label", None)

    async def _resume(self) -> None:
        try:
            await self._engine.resume()
        except Exception as error:
            self.seen.problems["pause"] = f"cannot resume the paused engine: {error}"
            raise
        self.seen.problems.pop("pause", None)

    async def prove(self, mode: str) -> dict[str, Any]:
        """Compare the weights of all workers with the version."""
        async with self.busy:
            return await self._prove(mode)

    async def _prove(self, mode: str) -> dict[str, Any]:
        answers = await self._engine.call("prove", mode=mode)
        await self._look_at_workers()
        return _added_up(answers)

    async def _is_summed(self) -> bool:
        """Whether all workers have computed sums of unverified weights (verify="behind")."""
        workers, _ = await self._stagings() if self.settings.verify == "behind" else ([], True)
        return bool(workers) and all(worker.get("summed") for worker in workers)

    def hint(self, wanted: Wanted) -> None:
        """A caller waits for that version: query the store now, unless it is served."""
        now = time.monotonic()
        if not wanted.is_met_by(self.seen.served) and now - self._hinted >= _HINT_SECONDS:
            self._hinted = now
            look_now(self.settings.local)

    async def check(self, *, ask_workers: bool = True) -> None:
        """Check workers and store for problems."""
        if ask_workers:
            await self._look_at_workers()
        await self._look_at_store()
        self._checked = time.monotonic()

    async def status(self) -> dict[str, Any]:
        """Everything known, with the reports of the workers."""
        await self._look_at_workers()
        self.seen.held = await self._held()
        troubles = [worker.get(key) for worker in self.seen.workers for key in ("host_error", "staging_error", "error")]
        error = next(filter(None, [*self.seen.problems.values(), self.seen.error, *troubles]), None)
        settings = self.settings
        told = {"store": settings.source, "local_folder": settings.local, "verify": settings.verify}
        is_ready = self.seen.why_not_ready(ANY) is None
        known = {key: value for key, value in vars(self.seen).items() if key != "served"}
        return told | self.seen.named | known | {"held": as_dict(self.seen.held), "ready": is_ready, "error": error}

    async def _attach(self) -> None:
        served = Identity(*_first(await self._engine.call("attach")))
        await self._look_at_workers()
        self._serve(served)
        self.seen.state = "serving"
        await self.check()
        if "workers" not in self.seen.problems:  # otherwise they are brought to the same version first
            await self._label(served)
            log.info("deltawire: %s is served, compared with %s", served, self.settings.local)

    def _serve(self, served: Identity) -> None:
        self.seen.served, self.seen.error, self.seen.updated = served, None, time.time()

    async def held(self) -> Identity | None:
        """The newest version on this host, or the served one if that is newer; the checkpoint may lag behind."""
        held, served = await self._held(), self.seen.served
        return served if is_before(held, served) else held

    async def _held(self) -> Identity | None:
        """The newest version on this host."""
        return await asyncio.to_thread(newest_here, self.settings.local)

    async def _is_behind(self) -> bool:
        held = self.seen.held = await self._held()
        served = self.seen.served
        return None not in (held, served) and held != served and not is_before(held, served)  # the checkpoint may lag

    async def _staged_goal(self, wanted: Wanted) -> Identity:
        """Wait until all workers have staged the same version, while the engine serves. Staging errors are raised by the update.

        The goal does not change until it is staged, even if newer versions arrive.
        """
        end = time.monotonic() + self.settings.timeout
        asked: Identity | None = None
        while True:
            workers, all_here = await self._stagings()
            is_suspect = "proof" in self.seen.problems  # then the served version is staged again
            staged = {
                _identity(worker.get("staged") or (None if worker.get("suspect") else worker.get("served"))) for worker in workers
            }
            (common,) = staged if len(staged) == 1 else (None,)
            if common is not None and (is_suspect or common != self.seen.served) and wanted.is_met_by(common):
                self.seen.timeline = {
                    "staging": min((worker.get("staging_at") or 0.0 for worker in workers), default=0.0),
                    "staged": max((worker.get("staged_at") or 0.0 for worker in workers), default=0.0),
                }
                return common
            held = await self.held()
            is_failing = any(worker.get("staging_error") or worker.keys() == {"error"} for worker in workers)
            if held is not None and wanted.is_met_by(held):
                if (is_failing and asked == held) or (held == self.seen.served and not is_suspect):
                    return held
                ready = [one for one in staged if one is not None and one != self.seen.served and wanted.is_met_by(one)]
                # Choose the oldest version that a worker has staged; the newest if weights are suspect.
                if is_failing or len(ready) > (0 if is_suspect else 1):
                    choose = max if is_suspect else min
                    goal = held if is_failing else choose(ready, key=lambda one: one.version)
                    if goal != asked:
                        asked = goal
                        await self._engine.call("stage", goal=list(asked))
            if time.monotonic() >= end:
                there = "no version" if held is None else str(held)
                raise RuntimeError(
                    f"{wanted} was not staged within {self.settings.timeout:g} s; {self.settings.local} holds {there}"
                )
            await self._wait(_LOOK_SECONDS if all_here else _STAGE_SECONDS)

    async def _stagings(self) -> tuple[list[dict[str, Any]], bool]:
        """What workers serve and have staged, and whether all are on this host.

        If so it is read from their files; a call would wait for the engine's current step.
        """
        files = read_workers(self.settings.local)
        names = [str(worker.get("name")) for worker in self.seen.workers]
        all_here = all(name in files for name in names)
        if self.seen.problems or not names or not all_here:
            return await self._look_at_workers(), all_here
        words = [files[name] | {what: as_dict(served_by(files[name], what)) for what in ("served", "staged")} for name in names]
        return words, all_here

    async def _look_at_workers(self) -> list[dict[str, Any]]:
        """Get the reports of all workers, and update problems."""
        workers = self.seen.workers = await self._statuses()
        found = {
            "host": next((words["host_error"] for words in workers if words.get("is_blocked")), None),
            "proof": next((f"a proof failed: {words['suspect']}" for words in workers if words.get("suspect")), None),
            "workers": _disagreement(workers),
        }
        for kind, words in found.items():
            if words is None:
                self.seen.problems.pop(kind, None)
            else:
                self._problem(kind, words)
        served = {_identity(worker.get("served")) for worker in workers if "served" in worker}
        if None in served:
            self.seen.served = None  # unknown: attach again
        elif len(served) == 1 and self.seen.served is not None:
            (self.seen.served,) = served  # another caller may have updated
        return workers

    async def _look_at_store(self) -> None:
        """Detect that the store holds another run than the engine serves."""
        served = self.seen.served
        run = await asyncio.to_thread(_run_in, self.settings)
        if served is not None and run is not None and run != served.run:
            words = f"{served} is served, but {self.settings.store} now holds run {run[:8]}"
            self._problem("store", f"{words}; move {self.settings.local} away to follow that run")
        elif run is not None:
            self.seen.problems.pop("store", None)

    def _problem(self, kind: str, words: str) -> None:
        if self.seen.problems.get(kind) != words:
            log.error("deltawire: not ready: %s", words)
        self.seen.problems[kind] = words

    async def _statuses(self) -> list[dict[str, Any]]:
        try:
            return [answer.get("ok") or {"error": answer.get("error")} for answer in await self._engine.call("status")]
        except Exception as error:
            return [{"error": str(error)}]

    def _note(self, error: Exception) -> None:
        words = str(error)
        if words != self.seen.error:
            log.warning("deltawire: %s", words)
        self.seen.error = words
        self.seen.failures += 1


async def update_engines(engine: EngineCalls, **options: Any) -> Identity:
    """Update all engines or none; an engine that fails restores its weights itself."""
    several = engine.num_engines > 1
    answers = await engine.call("update", keep=several, **options)
    try:
        return Identity(*same(answers))
    except RuntimeError:
        if several:
            back = Identity(*same(await engine.call("revert")))
            log.error("deltawire: the update was rolled back on all engines; %s is still served", back)
        raise


def _identity(words: dict[str, Any] | None) -> Identity | None:
    return None if words is None else Identity(**words)


def _run_in(settings: Settings) -> str | None:
    """The run in the store; None: none, or unavailable (which the host's replica reports)."""
    from deltawire._internal.chain import Chain

    try:
        return Chain(settings.open_store()).run
    except Error:
        return None


def _disagreement(workers: list[dict[str, Any]]) -> str | None:
    """A message if workers serve different versions or do not answer."""
    silent = next((words["error"] for words in workers if words.keys() == {"error"}), None)
    if silent is not None:
        return f"a worker does not answer: {silent}"
    served = {_identity(words.get("served")) for words in workers if "served" in words}
    if len(served) < 2:
        return None
    return "workers serve different versions: " + ", ".join(sorted("none" if one is None else str(one) for one in served))


def _added_up(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine the proofs of all engines, each of which has its own weights."""
    parts = ("wrong", "unproven")
    proven = dict(same([{"ok": _without(answer["ok"], parts)} if "ok" in answer else answer for answer in answers]))
    return proven | {part: sorted({name for answer in answers for name in answer["ok"][part]}) for part in parts}


def _without(words: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in words.items() if key not in keys}


def _first(answers: list[dict[str, Any]]) -> Any:
    """The answer of the first worker; raises the first failure."""
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise RuntimeError(f"worker {rank}: {answer['error']}" if len(answers) > 1 else answer["error"])
    return answers[0]["ok"]


def same(answers: list[dict[str, Any]]) -> Any:
    """The common answer of all workers."""
    first = _first(answers)
    if any(answer["ok"] != first for answer in answers):
        raise RuntimeError(f"workers returned different answers: {', '.join(str(answer['ok']) for answer in answers)}")
    return first
