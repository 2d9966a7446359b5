"""An engine that follows a chain by itself: the order of things around an update, and what operators see of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from deltawire._internal.identity import ANY, Identity, Wanted
from deltawire.engines.host import local_identity
from deltawire.engines.settings import Settings
from deltawire.errors import Error

log = logging.getLogger("deltawire")

_LOOK_SECONDS = 0.05  # between looks at the local folder, which cost nothing
_ASK_SECONDS = 0.2  # between questions to workers, which are answered between two steps
_CHECKS_PER_QUESTION = 6  # each question to idle workers of vLLM keeps them spinning for a second
_MOST_SECONDS = 60.0  # between attempts to heal, each of which pauses the engine
_STAGE_SECONDS = 0.02  # the same while they stage a version


class EngineCalls(Protocol):
    """How the follower speaks with an engine's workers. Answers are one for each worker, of all engines of the server."""

    @property
    def num_engines(self) -> int:
        """Engines that answer requests side by side (data parallel); each has workers of its own."""

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """`attach`, `stage`, `status`, `update`, `revert` or `prove` on all workers, between two steps."""

    async def pause(self, keep_cache: bool) -> None:
        """No step is begun any more; requests wait."""

    async def resume(self) -> None:
        """Requests go on, unless somebody else has paused the engine too."""

    async def set_version(self, served: Identity) -> None:
        """What the engine says of its weights, in its own words."""


@dataclass
class Seen:
    """What a follower has seen so far."""

    served: Identity | None = None  # None: nothing yet, or nobody knows
    held: Identity | None = None  # by the host's replica
    state: str = "starting"  # starting, serving, updating
    error: str | None = None
    problems: dict[str, str] = field(default_factory=dict)
    """Why the engine is not ready though it serves something: host, store, local, workers, proof, label, pause."""
    updates: int = 0
    failures: int = 0
    heals: int = 0  # proofs that failed, and were made up for
    pause_seconds: float | None = None  # of the last update, from the first call to the last
    pause_seconds_total: float = 0.0
    updated: float | None = None  # time.time()
    workers: list[dict[str, Any]] = field(default_factory=list)

    def why_not_ready(self, wanted: Wanted) -> str | None:
        """None: the engine serves what is wanted, and all is well."""
        if self.served is None:
            return self.error or "no version is served yet"
        if self.problems:
            return "; ".join(self.problems.values())
        return None if wanted.is_met_by(self.served) else f"{self.served} is served"


class Follower:
    """Goes to each version that the host's replica has pulled, one after the other, for as long as the engine lives."""

    def __init__(self, settings: Settings, engine: EngineCalls, *, alive: Callable[[], bool] = lambda: True) -> None:
        self._settings, self._engine, self._alive = settings, engine, alive
        self.busy = asyncio.Lock()  # one update at a time
        self._checked = float("-inf")  # when the store was looked at last
        self._num_checks = 0
        self.seen = Seen()

    @property
    def settings(self) -> Settings:
        """What the operator said."""
        return self._settings

    async def run(self) -> None:
        """Until the engine ends."""
        failures = 0
        while self._alive():
            try:
                await self._go_on()
                failures = 0
                await asyncio.sleep(_ASK_SECONDS if self._settings.shards else _LOOK_SECONDS)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += 1
                self._note(error)
                most = _MOST_SECONDS if "proof" in self.seen.problems else self._settings.interval
                await asyncio.sleep(min(most, 0.5 * 2 ** min(failures, 7)))

    async def _go_on(self) -> None:
        """What there is to do next."""
        if "pause" in self.seen.problems:
            await self._resume()
        elif "label" in self.seen.problems and self.seen.served is not None:
            await self._label(self.seen.served)
        elif self.seen.served is None:
            await self._attach()
        elif await self._is_due():
            await self.update()
        elif time.monotonic() - self._checked >= self._settings.interval:
            self._num_checks += 1
            await self.check(ask_workers=self._num_checks % _CHECKS_PER_QUESTION == 0)

    async def _is_due(self) -> bool:
        """An update that nobody asked for. Where the caller decides about versions, weights are healed at their own only."""
        is_behind = await self._is_behind()
        if self._settings.follow:
            return is_behind or self._must_update
        return "workers" in self.seen.problems or ("proof" in self.seen.problems and self.seen.held == self.seen.served)

    @property
    def _must_update(self) -> bool:
        """Weights are to be compared, or workers to be brought to one version."""
        return bool(self.seen.problems.keys() & {"proof", "workers"})

    async def update(self, wanted: Wanted = ANY) -> Identity:
        """To what all workers have staged: pause, write, prove, resume. One at a time. Returns what is served then."""
        async with self.busy:
            goal = await self._staged_goal(wanted)
            suspect = self.seen.problems.get("proof")
            if goal == self.seen.served and not self._must_update:
                return goal
            self.seen.state = "updating"
            began = time.perf_counter()
            try:
                try:
                    await self._engine.pause(
                        self._settings.keep_cache and not suspect
                    )  # of what wrong weights computed nothing stays
                    reached = await self._write(goal)
                finally:
                    await self._resume()
            finally:
                known = getattr(self._engine, "paused_seconds", None)
                self.seen.pause_seconds = time.perf_counter() - began if known is None else known
                self.seen.pause_seconds_total += self.seen.pause_seconds
                self.seen.state = "serving"
                await self._look_at_workers()
            self._serve(reached)
            self.seen.updates += 1
            if suspect and "proof" not in self.seen.problems:
                self.seen.heals += 1
                log.warning("deltawire: healed: all weights were compared with %s and are %s", self._settings.local, reached)
            log.info("deltawire: %s, pause %.1f ms", reached, 1e3 * self.seen.pause_seconds)
            if not wanted.is_met_by(reached):
                raise RuntimeError(f"{wanted} was asked for, and {reached} is served")
            return reached

    async def _write(self, goal: Identity) -> Identity:
        reached = await update_engines(self._engine, wanted=list(Wanted.of(goal)), verify=self.settings.verify)
        await self._label(reached)
        return reached

    async def _label(self, served: Identity) -> None:
        """What it says of its outputs is true, or it is not ready."""
        try:
            await self._engine.set_version(served)
        except Exception as error:
            self._problem("label", f"outputs are not labelled as {served}: {error}")
        else:
            self.seen.problems.pop("label", None)

    async def _resume(self) -> None:
        try:
            await self._engine.resume()
        except Exception as error:
            self.seen.problems["pause"] = f"the engine is paused, and could not be resumed: {error}"
            raise
        self.seen.problems.pop("pause", None)

    async def prove(self, mode: str) -> dict[str, Any]:
        """What all workers hold against what the version says."""
        async with self.busy:
            answers = await self._engine.call("prove", mode=mode)
            await self._look_at_workers()
            return _added_up(answers)

    async def check(self, *, ask_workers: bool = True) -> None:
        """Ask all workers, and the store, whether what is served is still what it should be."""
        if ask_workers:
            await self._look_at_workers()
        await self._look_at_store()
        self._checked = time.monotonic()

    async def status(self) -> dict[str, Any]:
        """Everything, with the workers' own words."""
        await self._look_at_workers()
        self.seen.held = await self._held(self.seen.workers)
        troubles = [worker.get(key) for worker in self.seen.workers for key in ("host_error", "staging_error", "error")]
        error = next(filter(None, [*self.seen.problems.values(), self.seen.error, *troubles]), None)
        settings = self.settings
        told = {"store": settings.source, "local_folder": settings.local, "verify": settings.verify}
        served, held = self.seen.served, self.seen.held
        named = {"run": None, "version": None, "manifest": None} if served is None else served._asdict()
        is_ready = self.seen.why_not_ready(ANY) is None
        known = {key: value for key, value in vars(self.seen).items() if key != "served"}
        return told | named | known | {"held": None if held is None else held._asdict(), "ready": is_ready, "error": error}

    async def _attach(self) -> None:
        served = Identity(*_first(await self._engine.call("attach")))
        await self._look_at_workers()
        self._serve(served)
        self.seen.state = "serving"
        await self.check()
        if "workers" not in self.seen.problems:  # else they go to one version first
            await self._label(served)
            log.info("deltawire: %s is served, compared with %s", served, self._settings.local)

    def _serve(self, served: Identity) -> None:
        self.seen.served, self.seen.error, self.seen.updated = served, None, time.time()

    async def held(self) -> Identity | None:
        """The newest version that is here to be served."""
        return await self._held(await self._statuses() if self._settings.shards else [])

    async def _held(self, workers: list[dict[str, Any]]) -> Identity | None:
        """What the host's folder holds; with shards, what all workers have staged."""
        if not self._settings.shards:
            return await asyncio.to_thread(local_identity, self._settings.local)
        staged = {_identity(worker.get("staged")) for worker in workers}
        return self.seen.served if len(staged) > 1 or None in staged else next(iter(staged), self.seen.served)

    async def _is_behind(self) -> bool:
        held = self.seen.held = await self.held()
        served = self.seen.served
        if held is None or served is None or held == served:
            self.seen.problems.pop("local", None)
            return False
        if held.run == served.run and held.version < served.version:  # versions do not go back by themselves
            self._problem("local", f"{served} is served, and {self._settings.local} holds {held}: has the store lost versions?")
            return False
        self.seen.problems.pop("local", None)
        return True

    async def _staged_goal(self, wanted: Wanted) -> Identity:
        """What all workers have staged, while the engine serves. One that cannot stage it says why in the update.

        The goal stays the same until it is staged, however many versions come meanwhile.
        """
        end = time.monotonic() + self._settings.timeout
        asked: Identity | None = None
        while True:
            workers = await self._look_at_workers()
            is_suspect = "proof" in self.seen.problems  # then what is served is compared and staged like any other
            staged = {
                _identity(worker.get("staged") or (None if worker.get("suspect") else worker.get("served"))) for worker in workers
            }
            (common,) = staged if len(staged) == 1 else (None,)
            if common is not None and (is_suspect or common != self.seen.served) and wanted.is_met_by(common):
                return common
            held = await self._held(workers)
            is_failing = any(worker.get("staging_error") or worker.keys() == {"error"} for worker in workers)
            if is_suspect and self._settings.shards:
                raise RuntimeError("weights are wrong: the trainer's next version comes whole")
            if held is not None and wanted.is_met_by(held):
                if (is_failing and asked == held) or (held == self.seen.served and not is_suspect) or self._settings.shards:
                    return held
                if asked is None or is_failing:
                    asked = held
                    await self._engine.call("stage", goal=list(held))
            if time.monotonic() >= end:
                there = "no version" if held is None else str(held)
                raise RuntimeError(f"{wanted} was not staged in {self._settings.timeout:g} s; {self._settings.local}: {there}")
            await asyncio.sleep(_STAGE_SECONDS)

    async def _look_at_workers(self) -> list[dict[str, Any]]:
        """What they say of themselves, and what of it is a problem."""
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
            self.seen.served = None  # nobody knows what is served: attach again
        elif len(served) == 1 and self.seen.served is not None:
            (self.seen.served,) = served  # somebody else may have called for an update
        return workers

    async def _look_at_store(self) -> None:
        """Versions of a run that the store holds no longer may be there under the same numbers as another's."""
        served = self.seen.served
        run = await asyncio.to_thread(_run_in, self._settings.store)
        if served is not None and run is not None and run != served.run:
            words = f"{served} is served, and {self._settings.store} holds run {run[:8]} now"
            self._problem("store", f"{words}: move {self._settings.local} away to follow that run")
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
    """On all engines, or on none: one that failed has taken it back itself."""
    several = engine.num_engines > 1
    answers = await engine.call("update", keep=several, **options)
    try:
        return Identity(*same(answers))
    except RuntimeError:
        if several:
            back = Identity(*same(await engine.call("revert")))
            log.error("deltawire: the update was taken back on all engines; %s is served on", back)
        raise


def _identity(words: dict[str, Any] | None) -> Identity | None:
    return None if words is None else Identity(**words)


def _run_in(store: str) -> str | None:
    """The run that a store holds; None: none, or it cannot be asked now, which the host's replica tells."""
    from deltawire._internal.chain import Chain

    try:
        return Chain(store).run if store else None
    except Error:
        return None


def _disagreement(workers: list[dict[str, Any]]) -> str | None:
    """Workers that serve different versions, or do not answer."""
    silent = next((words["error"] for words in workers if words.keys() == {"error"}), None)
    if silent is not None:
        return f"a worker does not answer: {silent}"
    served = {_identity(words.get("served")) for words in workers if "served" in words}
    if len(served) < 2:
        return None
    return "workers serve different versions: " + ", ".join(sorted("none" if one is None else str(one) for one in served))


def _added_up(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The proof of all engines: each has its own copy of the weights."""
    parts = ("wrong", "unproven")
    proven = dict(same([{"ok": _without(answer["ok"], parts)} if "ok" in answer else answer for answer in answers]))
    return proven | {part: sorted({name for answer in answers for name in answer["ok"][part]}) for part in parts}


def _without(words: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in words.items() if key not in keys}


def _first(answers: list[dict[str, Any]]) -> Any:
    """The answer of the first worker; the first failure, if there is one."""
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise RuntimeError(f"worker {rank}: {answer['error']}" if len(answers) > 1 else answer["error"])
    return answers[0]["ok"]


def same(answers: list[dict[str, Any]]) -> Any:
    """The one answer of all workers."""
    first = _first(answers)
    if any(answer["ok"] != first for answer in answers):
        raise RuntimeError(f"workers answer differently: {', '.join(str(answer['ok']) for answer in answers)}")
    return first
