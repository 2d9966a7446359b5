"""What operators ask a server: the same paths in every engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from deltawire.engines.follower import Follower
from deltawire.engines.metrics import prometheus_text
from deltawire.errors import BaseMismatch, Error, Unavailable
from deltawire.identity import Wanted


def add_routes(app: FastAPI, page: str) -> None:
    """/deltawire/status, /ready, /metrics, /prove and /update, of the follower in `app.state.deltawire`, if there is one."""
    app.state.deltawire_page = page
    routes: dict[str, tuple[str, Callable[..., Any]]] = {
        "status": ("GET", _status), "ready": ("GET", _ready), "metrics": ("GET", _metrics),
        "prove": ("POST", _prove), "update": ("POST", _update),
    }  # fmt: skip
    for name, (method, route) in routes.items():
        app.add_api_route(f"/deltawire/{name}", route, methods=[method], dependencies=[Depends(_check_key)])


def _check_key(request: Request) -> None:
    """By the engine's own API key, where it does not guard all paths itself."""
    is_allowed = getattr(request.app.state, "deltawire_is_allowed", None)
    if is_allowed is not None and not is_allowed(request.headers):
        raise HTTPException(status_code=401, detail="Unauthorized")


def _follower(request: Request) -> Follower | None:
    return getattr(request.app.state, "deltawire", None)


def _none(request: Request) -> JSONResponse:
    page = request.app.state.deltawire_page
    return JSONResponse({"error": f"this server follows no chain: see {page} of deltawire"}, status_code=404)


async def _status(request: Request) -> Any:
    follower = _follower(request)
    return _none(request) if follower is None else JSONResponse(await follower.status())


_VERSION = Query(default=None, ge=0)


def _wanted(version: int | None, run: str | None, manifest: str | None) -> Wanted:
    if manifest is not None and version is None:
        raise HTTPException(status_code=400, detail="manifest is the digest of a version's manifest: say which version")
    return Wanted(version, run, manifest)


async def _ready(request: Request, version: int | None = _VERSION, run: str | None = None, manifest: str | None = None) -> Any:
    """Whether what is served is that version of that run, or a later one."""
    follower = _follower(request)
    if follower is None:
        return _none(request)
    wanted, served = _wanted(version, run, manifest), follower.seen.served
    why = follower.seen.why_not_ready(wanted)
    named = {"run": None, "version": None, "manifest": None} if served is None else served._asdict()
    words = {"ready": why is None, **named, "wanted": wanted._asdict(), "error": why}
    return JSONResponse(words, status_code=503 if why else 200)


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
    except (RuntimeError, Error) as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse(proven, status_code=500 if proven["wrong"] else 200)


async def _update(
    request: Request,
    version: int | None = _VERSION,
    run: str | None = None,
    manifest: str | None = None,
    timeout: float = Query(default=60, ge=0, le=3600),
) -> Any:
    """To what the host's replica holds, once that is what is wanted. The engine serves while it is waited for."""
    follower = _follower(request)
    if follower is None:
        return _none(request)
    wanted, end = _wanted(version, run, manifest), time.monotonic() + timeout
    try:
        while not wanted.is_met_by(held := await follower.held()):
            if time.monotonic() >= end:
                there = "nothing" if held is None else str(held)
                raise Unavailable(f"{follower.settings.local}: {wanted} did not come in {timeout:g} s; it holds {there}")
            await asyncio.sleep(0.05)
        served = await follower.update(wanted)
        await follower.check()
        if "store" in follower.seen.problems and run is None:
            raise BaseMismatch(follower.seen.problems["store"])
        return JSONResponse(served._asdict())
    except (RuntimeError, Error) as error:
        return JSONResponse({"error": str(error)}, status_code=503)
