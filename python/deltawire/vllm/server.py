"""vLLM's API server: follows the chain by itself, and answers what operators ask."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from deltawire.engines.follower import Follower
from deltawire.engines.metrics import prometheus_text
from deltawire.vllm.engine_settings import settings_of
from deltawire.vllm.plugin import BACKEND

log = logging.getLogger("deltawire")


class ServerPlugin:
    """An endpoint plugin of vLLM. Without the backend `deltawire` its routes say so."""

    name = "deltawire"
    required_tasks = None

    def attach_router(self, app: FastAPI) -> None:
        """/deltawire/status, /deltawire/ready, /deltawire/metrics, /deltawire/prove."""
        app.add_api_route("/deltawire/status", _status, methods=["GET"])
        app.add_api_route("/deltawire/ready", _ready, methods=["GET"])
        app.add_api_route("/deltawire/metrics", _metrics, methods=["GET"])
        app.add_api_route("/deltawire/prove", _prove, methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Begin to follow, where a store is named."""
        state.deltawire = None
        config = getattr(engine_client, "vllm_config", None)
        transfer = getattr(config, "weight_transfer_config", None)
        if transfer is None or transfer.backend != BACKEND:
            return
        settings = settings_of(config)
        if settings is None:
            return
        follower = Follower(settings, VllmDoor(engine_client), alive=lambda: not engine_client.errored)
        state.deltawire = follower
        if settings.follow and getattr(engine_client, "client_index", 0) == 0:
            state.deltawire_task = asyncio.create_task(follower.run(), name="deltawire")


class VllmDoor:
    """The engine, from inside the API server: what vLLM's own routes do, without their waits."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._salt: str | None = None
        self._salt_requests()

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """On all workers, between two steps."""
        return list(await self._client.collective_rpc("deltawire", args=(call,), kwargs=options))

    async def pause(self, keep_cache: bool) -> None:
        """Requests wait. Without their caches they are computed anew, by the new version."""
        await self._client.engine_core.pause_scheduler_async(mode="keep", clear_cache=not keep_cache)

    async def resume(self) -> None:
        """Requests go on."""
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


def _follower(request: Request) -> Follower | None:
    return getattr(request.app.state, "deltawire", None)


def _none() -> JSONResponse:
    return JSONResponse({"error": "this server follows no chain: see docs/vllm.md of deltawire"}, status_code=404)


async def _status(request: Request) -> Any:
    follower = _follower(request)
    return _none() if follower is None else JSONResponse(await follower.status())


async def _ready(request: Request, version: int | None = Query(default=None, ge=0)) -> Any:
    follower = _follower(request)
    if follower is None:
        return _none()
    ready = follower.seen.ready(version)
    words = {"ready": ready, "version": follower.seen.version, "wanted": version, "error": follower.seen.error}
    return JSONResponse(words, status_code=200 if ready else 503)


async def _metrics(request: Request) -> Any:
    follower = _follower(request)
    return _none() if follower is None else PlainTextResponse(prometheus_text(await follower.status()))


async def _prove(request: Request, mode: str = "all") -> Any:
    follower = _follower(request)
    if follower is None:
        return _none()
    if mode not in ("all", "sample"):
        return JSONResponse({"error": f'mode "{mode}": must be "all" or "sample"'}, status_code=400)
    try:
        proven = await follower.prove(mode)
    except RuntimeError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse(proven, status_code=500 if proven["wrong"] else 200)
