"""Who has paused an engine: it goes on when nobody has any more."""

from __future__ import annotations

from typing import Any


class Pauses:
    """Pauses of an engine that are ours, beside those that others make through the same client."""

    def __init__(self, client: Any) -> None:
        """Watch a client's calls. An update that its caller does not pause the engine for is paused for here."""
        self._client = client
        self._num_ours = 0
        self._others = False  # while ours last
        self._known = client.pause_generation, client.resume_generation, client.update_weights
        client.pause_generation = self._pause_generation
        client.resume_generation = self._resume_generation
        client.update_weights = self._update_weights

    @classmethod
    def of(cls, client: Any) -> Pauses:
        """One for each client."""
        if not hasattr(client, "deltawire_pauses"):
            client.deltawire_pauses = cls(client)
        found: Pauses = client.deltawire_pauses
        return found

    async def begin(self, keep_cache: bool) -> None:
        """Requests wait. Without their caches they are computed anew, by the new version."""
        if self._num_ours == 0:
            self._others = await self._client.is_paused()
        self._num_ours += 1
        await self._client.engine_core.pause_scheduler_async(mode="keep", clear_cache=not keep_cache)

    async def end(self) -> None:
        """Requests go on, unless somebody else has paused the engine. May be called again where it fails."""
        self._num_ours = max(0, self._num_ours - 1)
        if self._num_ours == 0 and not self._others:
            await self._known[1]()

    async def _pause_generation(self, *args: Any, **options: Any) -> None:
        self._others = True
        await self._known[0](*args, **options)

    async def _resume_generation(self) -> None:
        self._others = False
        if self._num_ours == 0:
            await self._known[1]()

    async def _update_weights(self, *args: Any, **options: Any) -> None:
        """No step may be under way: its tokens would be taken for the new version's."""
        await self.begin(keep_cache=True)
        try:
            await self._known[2](*args, **options)
        finally:
            await self.end()
