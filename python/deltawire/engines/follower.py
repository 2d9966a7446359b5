"""An engine that follows a chain by itself: the order of things around an update, and what operators see of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from deltawire.engines.host import local_version
from deltawire.engines.settings import Settings

log = logging.getLogger("deltawire")

_LOOK_SECONDS = 0.05  # between looks at the local folder, which cost nothing
_ASK_SECONDS = 0.2  # between questions to workers, which are answered between two steps


class Door(Protocol):
    """How the follower speaks with an engine's workers. Answers are one for each worker."""

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """`attach`, `status`, `update` or `prove` on all workers, between two steps."""

    async def pause(self, keep_cache: bool) -> None:
        """No step is begun any more; requests wait."""

    async def resume(self) -> None:
        """Requests go on."""

    async def set_version(self, version: int) -> None:
        """What the engine says of its weights, in its own words."""


@dataclass
class Seen:
    """What a follower has seen so far."""

    version: int | None = None
    local: int | None = None
    state: str = "starting"  # starting, serving, updating, failing
    error: str | None = None
    updates: int = 0
    failures: int = 0
    pause_seconds: float | None = None  # of the last update, from the first call to the last
    pause_seconds_total: float = 0.0
    updated: float | None = None  # time.time()
    workers: list[dict[str, Any]] = field(default_factory=list)

    def ready(self, at_least: int | None) -> bool:
        """Whether the engine serves that version, or any."""
        return self.version is not None and (at_least is None or self.version >= at_least)


class Follower:
    """Goes to each version that the host's replica has pulled, one after the other, for as long as the engine lives."""

    def __init__(self, settings: Settings, door: Door, *, alive: Callable[[], bool] = lambda: True) -> None:
        self._settings, self._door, self._alive = settings, door, alive
        self._busy = asyncio.Lock()
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
                if self.seen.version is None:
                    await self._attach()
                elif await self._is_behind():
                    await self.update()
                failures = 0
                await asyncio.sleep(_ASK_SECONDS if self._settings.shards else _LOOK_SECONDS)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += 1
                self._note(error)
                await asyncio.sleep(min(self._settings.interval, 0.5 * 2 ** min(failures, 6)))

    async def update(self, version: int | None = None) -> int:
        """To the local version: pause, write, prove, resume. One at a time."""
        async with self._busy:
            await self._wait_until_staged()
            self.seen.state = "updating"
            began = time.perf_counter()
            try:
                try:
                    await self._door.pause(self._settings.keep_cache)
                    reached = int(_same(await self._door.call("update", version=version, verify=self.settings.verify)))
                    await self._door.set_version(reached)
                finally:
                    await self._door.resume()
            finally:
                known = getattr(self._door, "paused_seconds", None)
                self.seen.pause_seconds = time.perf_counter() - began if known is None else known
                self.seen.pause_seconds_total += self.seen.pause_seconds
                self.seen.state = "serving"
                self.seen.workers = await self._statuses()
                if any("version" in worker and worker["version"] is None for worker in self.seen.workers):
                    self.seen.version = None  # nobody knows what is served: attach again
            self.seen.version, self.seen.error, self.seen.updated = reached, None, time.time()
            self.seen.updates += 1
            log.info("deltawire: version %d, pause %.1f ms", reached, 1e3 * self.seen.pause_seconds)
            return reached

    async def prove(self, mode: str) -> dict[str, Any]:
        """What all workers hold against what the version says."""
        async with self._busy:
            answers = await self._door.call("prove", mode=mode)
            self.seen.workers = await self._statuses()
            return dict(_same(answers))

    async def status(self) -> dict[str, Any]:
        """Everything, with the workers' own words."""
        self.seen.workers = await self._statuses()
        self.seen.local = await self._held(self.seen.workers)
        troubles = [worker.get(key) for worker in self.seen.workers for key in ("staging_error", "error")]
        error = _host_error(self.seen.workers) or self.seen.error or next(filter(None, troubles), None)
        settings = self.settings
        told = {"store": settings.source, "local_folder": settings.local, "verify": settings.verify}
        return told | vars(self.seen) | {"error": error}

    async def _attach(self) -> None:
        version = _same(await self._door.call("attach"))
        await self._door.set_version(version)
        self.seen.version, self.seen.state, self.seen.error, self.seen.updated = version, "serving", None, time.time()
        log.info("deltawire: version %d is served, compared with %s", version, self._settings.local)

    async def held(self) -> int | None:
        """The newest version that is here to be served."""
        return await self._held(await self._statuses() if self._settings.shards else [])

    async def _held(self, workers: list[dict[str, Any]]) -> int | None:
        """What the host's folder holds; with shards, what all workers have staged."""
        if not self._settings.shards:
            return await asyncio.to_thread(local_version, self._settings.local)
        staged = {worker.get("staged") for worker in workers}
        return self.seen.version if len(staged) > 1 or None in staged else next(iter(staged), self.seen.version)

    async def _is_behind(self) -> bool:
        self.seen.local = await self.held()
        return self.seen.local is not None and self.seen.local != self.seen.version

    async def _wait_until_staged(self) -> None:
        """Workers read the version while the engine serves. One that cannot says why in the update."""
        end = time.monotonic() + self._settings.timeout
        while time.monotonic() < end:
            workers = self.seen.workers = await self._statuses()
            goal = await self._held(workers)
            if goal is not None and all(goal in (worker.get("staged"), worker.get("version")) for worker in workers):
                return
            if any(worker.get("staging_error") for worker in workers):
                return
            await asyncio.sleep(0.02)

    async def _statuses(self) -> list[dict[str, Any]]:
        try:
            return [answer.get("ok") or {"error": answer.get("error")} for answer in await self._door.call("status")]
        except Exception as error:
            return [{"error": str(error)}]

    def _note(self, error: Exception) -> None:
        words = str(error)
        if words != self.seen.error:
            log.warning("deltawire: %s", words)
        self.seen.error = words
        self.seen.failures += 1


def _host_error(workers: list[dict[str, Any]]) -> str | None:
    """What keeps the host's replica from the newest version: only the worker that has the folder knows."""
    return next((worker["host_error"] for worker in workers if worker.get("host_error")), None)


def _same(answers: list[dict[str, Any]]) -> Any:
    """The one answer of all workers; the first failure, if there is one."""
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise RuntimeError(f"worker {rank}: {answer['error']}" if len(answers) > 1 else answer["error"])
    return answers[0]["ok"]
