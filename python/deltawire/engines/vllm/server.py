"""In vLLM's API server: follows the chain, and adds routes for operators."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI

from deltawire._internal.identity import Identity
from deltawire.engines.adapters import AdapterFollower
from deltawire.engines.follower import Follower, update_engines
from deltawire.engines.routes import add_routes
from deltawire.engines.settings import Settings
from deltawire.engines.vllm.pauses import Pauses
from deltawire.engines.vllm.plugin import BACKEND, settings_of
from deltawire.errors import InvalidArgument

log = logging.getLogger("deltawire")


class ServerPlugin:
    """An endpoint plugin of vLLM. Without the backend `deltawire` its routes return 404."""

    name = "deltawire"
    required_tasks = None

    def attach_router(self, app: FastAPI) -> None:
        """/deltawire/status, /deltawire/ready, /deltawire/metrics, /deltawire/prove, /deltawire/update."""
        add_routes(app, "docs/vllm.md")

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Follow the chain, if a store is set."""
        state.deltawire = None
        state.deltawire_is_allowed = _key_check(args)
        config = getattr(engine_client, "vllm_config", None)
        transfer = getattr(config, "weight_transfer_config", None)
        is_ours = transfer is not None and transfer.backend == BACKEND
        if is_ours:
            engine_client.update_weights = partial(update_weights, engine_client, asyncio.Lock())
        settings = settings_of(config) if config is not None else None
        if settings is None or not (settings.adapter or is_ours):
            return
        if (getattr(args, "api_server_count", None) or 1) > 1:  # they would have to coordinate updates
            raise InvalidArgument("deltawire: following a chain needs a single API server; use --api-server-count 1")
        follower = _follower(settings, engine_client, state)
        if is_ours:
            engine_client.update_weights = partial(update_weights, engine_client, follower.busy)
        state.deltawire = follower
        state.deltawire_task = asyncio.create_task(follower.run(), name="deltawire")


def _key_check(args: Any) -> Callable[[Any], bool] | None:
    """Check vLLM's API keys, which vLLM only checks for its own paths."""
    from vllm import envs

    keys = [key for key in (getattr(args, "api_key", None) or [envs.VLLM_API_KEY]) if key]

    def is_allowed(headers: Any) -> bool:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        matches = [secrets.compare_digest(token.encode(), key.encode()) for key in keys]  # all keys, for constant time
        return scheme.lower() == "bearer" and any(matches)

    return is_allowed if keys else None


def _follower(settings: Settings, client: Any, state: Any) -> Follower:
    def alive() -> bool:
        return not client.errored

    if not settings.adapter:
        return Follower(settings, VllmDoor(client), alive=alive)
    if client.vllm_config.lora_config is None:
        raise InvalidArgument("deltawire: `adapter` needs a server started with --enable-lora")
    from deltawire.engines.vllm.adapter_server import VllmAdapters

    return AdapterFollower(settings, VllmAdapters(client, state), alive=alive)


class VllmDoor:
    """Calls to the engine from the API server."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pauses = Pauses.of(client)

    @property
    def num_engines(self) -> int:
        """Number of data-parallel engines."""
        return len(self._client.engine_core.core_engines)

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """Call all workers, between two steps."""
        return await call_workers(self._client, "deltawire", call, **options)

    async def pause(self, keep_cache: bool) -> None:
        """Pause requests. Without their caches they are recomputed by the new version."""
        await self._pauses.begin(keep_cache)

    async def resume(self) -> None:
        """Resume requests, unless another caller has paused the engine too."""
        await self._pauses.end()

    async def set_version(self, served: Identity) -> None:
        """Nothing to do: `core` does it with the update."""


async def update_weights(client: Any, busy: asyncio.Lock, request: Any) -> None:
    """Replaces vLLM's `update_weights`, which may fail on some engines only. Pauses the engine if the caller has not."""
    info = dict(request.update_info)
    wanted = [info.pop("version", None), info.pop("run", None), info.pop("manifest", None)]
    engine = VllmDoor(client)
    async with busy:
        await engine.pause(keep_cache=True)
        try:
            await update_engines(engine, wanted=wanted, **info)
            await engine.call("status")  # all engines have succeeded: drop the replaced weights
        finally:
            await engine.resume()


async def call_workers(client: Any, method: str, call: str, **options: Any) -> list[dict[str, Any]]:
    """The answers of all workers of all engines; vLLM's `collective_rpc` returns only those of the first engine."""
    core = client.engine_core
    per_engine = await asyncio.gather(
        *(
            core._call_utility_async("collective_rpc", method, None, (call,), options, engine=engine)
            for engine in core.core_engines
        )
    )
    return [answer for answers in per_engine for answer in answers]
