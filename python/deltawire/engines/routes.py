"""What operators ask a server: the same paths in every engine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from deltawire.engines.follower import Follower
from deltawire.engines.metrics import prometheus_text
from deltawire.errors import Error


def add_routes(app: FastAPI, page: str) -> None:
    """/deltawire/status, /ready, /metrics, /prove and /update, of the follower in `app.state.deltawire`, if there is one."""
    app.state.deltawire_page = page
    app.add_api_route("/deltawire/status", _status, methods=["GET"])
    app.add_api_route("/deltawire/ready", _ready, methods=["GET"])
    app.add_api_route("/deltawire/metrics", _metrics, methods=["GET"])
    app.add_api_route("/deltawire/prove", _prove, methods=["POST"])
    app.add_api_route("/deltawire/update", _update, methods=["POST"])


def _follower(request: Request) -> Follower | None:
    return getattr(request.app.state, "deltawire", None)


def _none(request: Request) -> JSONResponse:
    page = request.app.state.deltawire_page
    return JSONResponse({"error": f"this server follows no chain: see {page} of deltawire"}, status_code=404)


async def _status(request: Request) -> Any:
    follower = _follower(request)
    return _none(request) if follower is None else JSONResponse(await follower.status())


async def _ready(request: Request, version: int | None = Query(default=None, ge=0)) -> Any:
    follower = _follower(request)
    if follower is None:
        return _none(request)
    ready = follower.seen.ready(version)
    words = {"ready": ready, "version": follower.seen.version, "wanted": version, "error": follower.seen.error}
    return JSONResponse(words, status_code=200 if ready else 503)


async def _metrics(request: Request) -> Any:
    follower = _follower(request)
    return _none(request) if follower is None else PlainTextResponse(prometheus_text(await follower.status()))


async def _prove(request: Request, mode: str = "all") -> Any:
    follower = _follower(request)
    if follower is None:
        return _none(request)
    if mode not in ("all", "sample"):
        return JSONResponse({"error": f'mode "{mode}": must be "all" or "sample"'}, status_code=400)
    try:
        proven = await follower.prove(mode)
    except RuntimeError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse(proven, status_code=500 if proven["wrong"] else 200)


async def _update(
    request: Request, version: int | None = Query(default=None, ge=0), timeout: float = Query(default=60, ge=0, le=3600)
) -> Any:
    """To what the host's replica holds, once that is at least `version`. The engine serves while it is waited for."""
    follower = _follower(request)
    if follower is None:
        return _none(request)
    local, end = follower.settings.local, time.monotonic() + timeout
    while version is not None and ((held := await follower.held()) is None or held < version):
        if time.monotonic() >= end:
            words = f"{local}: version {version} did not come in {timeout:g} s; it holds {held}"
            return JSONResponse({"error": words}, status_code=503)
        await asyncio.sleep(0.05)
    try:
        return JSONResponse({"version": await follower.update()})
    except (RuntimeError, Error) as error:
        return JSONResponse({"error": str(error)}, status_code=503)
