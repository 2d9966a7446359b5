"""vLLM's API server: follows the chain by itself, and answers what operators ask."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import FastAPI

from deltawire.engines.adapter_follower import AdapterFollower
from deltawire.engines.follower import Follower
from deltawire.engines.routes import add_routes
from deltawire.engines.settings import Settings
from deltawire.errors import InvalidArgument
from deltawire.vllm.engine_settings import settings_of
from deltawire.vllm.plugin import BACKEND

log = logging.getLogger("deltawire")


class ServerPlugin:
    """An endpoint plugin of vLLM. Without the backend `deltawire` its routes say so."""

    name = "deltawire"
    required_tasks = None

    def attach_router(self, app: FastAPI) -> None:
        """/deltawire/status, /deltawire/ready, /deltawire/metrics, /deltawire/prove, /deltawire/update."""
        add_routes(app, "docs/vllm.md")

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Begin to follow, where a store is named."""
        state.deltawire = None
        config = getattr(engine_client, "vllm_config", None)
        transfer = getattr(config, "weight_transfer_config", None)
        settings = settings_of(config) if config is not None else None
        if settings is None or not (settings.adapter or (transfer is not None and transfer.backend == BACKEND)):
            return
        if (getattr(args, "api_server_count", None) or 1) > 1:  # each would have to know of the others' updates
            raise InvalidArgument("deltawire: a server that follows a chain has one API server: --api-server-count 1")
        follower = _follower(settings, engine_client, state)
        state.deltawire = follower
        if settings.follow:
            state.deltawire_task = asyncio.create_task(follower.run(), name="deltawire")


def _follower(settings: Settings, client: Any, state: Any) -> Follower:
    def alive() -> bool:
        return not client.errored

    if not settings.adapter:
        return Follower(settings, VllmDoor(client), alive=alive)
    if client.vllm_config.lora_config is None:
        raise InvalidArgument("deltawire: `adapter` needs a server that was started with --enable-lora")
    from deltawire.vllm.adapter_door import VllmAdapters

    return AdapterFollower(settings, VllmAdapters(client, state), alive=alive)


class VllmDoor:
    """The engine, from inside the API server: what vLLM's own routes do, without their waits."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._salt: str | None = None
        self._was_paused = False
        self._salt_requests()

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """On all workers, between two steps."""
        return list(await self._client.collective_rpc("deltawire", args=(call,), kwargs=options))

    async def pause(self, keep_cache: bool) -> None:
        """Requests wait. Without their caches they are computed anew, by the new version."""
        self._was_paused = await self._client.is_paused()  # by somebody else, who resumes it
        await self._client.engine_core.pause_scheduler_async(mode="keep", clear_cache=not keep_cache)

    async def resume(self) -> None:
        """Requests go on."""
        if not self._was_paused:
            await self._client.resume_generation()

    async def set_version(self, version: int) -> None:
        """In vLLM's own field, which it gives with every output."""
        await self._client.update_weight_version(str(version))
        self._salt = f"deltawire-{version}"

    def _salt_requests(self) -> None:
        """Cached prefixes are found by those requests alone that came with the same version."""
        core = self._client.engine_core
        add = core.add_request_async

        async def add_request_async(request: Any) -> None:
            if self._salt is not None:
                request.cache_salt = f"{request.cache_salt}/{self._salt}" if request.cache_salt else self._salt
            await add(request)

        core.add_request_async = add_request_async
