"""Counts pauses of an engine, which resumes after the last one."""

from __future__ import annotations

from typing import Any


class Pauses:
    """Our pauses of an engine, and those of other callers of the same client."""

    def __init__(self, client: Any) -> None:
        """Watch the calls of others to the client."""
        self._client = client
        self._num_ours = 0
        self._is_owed = False  # our resume has failed
        self._others = False  # another caller has paused the engine, or put it to sleep
        self._said: bool | None = None  # the same, as observed since our pause began
        self._runs = False  # not paused since our last resume
        self._resume = client.resume_generation
        self._watch("pause_generation", pauses=True)
        self._watch("sleep", pauses=True)
        client.resume_generation = self._resume_generation

    @classmethod
    def of(cls, client: Any) -> Pauses:
        """The instance of a client."""
        if not hasattr(client, "deltawire_pauses"):
            client.deltawire_pauses = cls(client)
        found: Pauses = client.deltawire_pauses
        return found

    async def begin(self, keep_cache: bool) -> None:
        """Pause requests. Without their caches they are recomputed by the new version."""
        self._num_ours += 1
        # is_paused() waits for the current step: called only if the state is unknown.
        if self._num_ours == 1 and not self._is_owed and not self._runs:
            self._said = None
            try:
                is_paused = await self._client.is_paused()
            except BaseException:
                self._num_ours -= 1
                raise
            self._others = is_paused if self._said is None else self._said
        await self._client.engine_core.pause_scheduler_async(mode="keep", clear_cache=not keep_cache)

    async def end(self) -> None:
        """Resume requests, unless another caller has paused the engine. May be called again after a failure."""
        self._num_ours = max(0, self._num_ours - 1)
        if self._num_ours == 0 and not self._others:
            self._is_owed = True
            await self._resume()
            self._is_owed, self._runs = False, True

    def _watch(self, name: str, *, pauses: bool) -> None:
        known = getattr(self._client, name, None)
        if known is None:
            return

        async def watched(*args: Any, **options: Any) -> Any:
            self._others = self._said = pauses
            self._runs = False
            return await known(*args, **options)

        setattr(self._client, name, watched)

    async def _resume_generation(self) -> None:
        self._others = self._said = False
        if self._num_ours == 0:
            await self._resume()
            self._is_owed = False
