"""HTTP routes for operators, the same in every engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from deltawire._internal.identity import Wanted
from deltawire.engines.follower import Follower
from deltawire.errors import BaseMismatch, Error, Unavailable

# Name, type, help, and a function that gets the value, perhaps with labels, from Follower.status().
_METRICS: list[tuple[str, str, str, Any]] = [
    ("ready", "gauge", "1: the engine serves its version without problems.", lambda s: int(s["ready"])),
    ("weight_version", "gauge", "Served version.", lambda s: _of_run(s)),
    ("local_version", "gauge", "Version of the host's replica.", lambda s: _of_run(s["held"])),
    ("staged_version", "gauge", "Version that all workers have staged.", lambda s: _of_run(_all_staged(s["workers"]))),
    ("lag_versions", "gauge", "Versions between the replica and the served version; absent across runs.", lambda s: _lag(s)),
    ("updates_total", "counter", "Successful updates.", lambda s: s["updates"]),
    (
        "update_failures_total",
        "counter",
        "Failed updates, which leave the old version in place.",
        lambda s: s["failures"],
    ),
    ("heals_total", "counter", "Failed proofs after which all weights were repaired.", lambda s: s["heals"]),
    ("pause_seconds", "gauge", "The last pause, from first to last call.", lambda s: s["pause_seconds"]),
    ("pause_seconds_total", "counter", "Sum of all pauses.", lambda s: s["pause_seconds_total"]),
    ("swap_seconds", "gauge", "Writing in the last pause, of the slowest worker.", lambda s: _slowest(s["workers"], "swap")),
    ("reload_seconds", "gauge", "The engine's own loader in the last pause.", lambda s: _slowest(s["workers"], "reload")),
    ("proof_seconds", "gauge", "The proof in the last pause.", lambda s: _slowest(s["workers"], "proof")),
    ("proof_ok", "gauge", "1: the served version was proven. 0: a proof failed. Absent: not proven.", lambda s: _proof_ok(s)),
    ("proof_version", "gauge", "Version of the last proof.", lambda s: _of_run(_proof(s["workers"]))),
    ("staged_bytes", "gauge", "Memory of staged versions.", lambda s: _staged_bytes(s["workers"])),
]


def prometheus_text(status: dict[str, Any]) -> str:
    """Metrics in Prometheus' text format; unknown ones are omitted."""
    lines: list[str] = []
    for name, kind, words, value_of in _METRICS:
        value = value_of(status)
        if value is None:
            continue
        labels, value = value if isinstance(value, tuple) else ("", value)
        lines += [f"# HELP deltawire_engine_{name} {words}", f"# TYPE deltawire_engine_{name} {kind}"]
        lines.append(f"deltawire_engine_{name}{labels} {value}")
    return "\n".join(lines) + "\n"


def _of_run(version: dict[str, Any] | None) -> tuple[str, int] | None:
    if version is None or version["version"] is None:
        return None
    return f'{{run="{version["run"]}"}}', version["version"]


def _lag(status: dict[str, Any]) -> int | None:
    held = status["held"]
    if held is None or held["run"] != status["run"] or held["version"] < status["version"]:
        return None
    return int(held["version"] - status["version"])


def _all_staged(workers: list[dict[str, Any]]) -> dict[str, Any] | None:
    staged = [worker.get("staged") for worker in workers]
    return staged[0] if staged and all(one == staged[0] for one in staged) else None


def _slowest(workers: list[dict[str, Any]], part: str) -> float | None:
    times = [pause[part] for worker in workers if (pause := worker.get("last_pause"))]
    return max(times) if times else None


def _proof(workers: list[dict[str, Any]]) -> dict[str, Any] | None:
    return workers[0].get("proof") if workers else None


def _proof_ok(status: dict[str, Any]) -> int | None:
    """Only a proof of the served version counts."""
    if any(worker.get("suspect") for worker in status["workers"]):
        return 0
    proof = _proof(status["workers"])
    names = ("run", "version", "manifest")
    if proof is None or not proof["num_tensors"] or any(proof[name] != status[name] for name in names):
        return None
    return int(not proof["wrong"])


def _staged_bytes(workers: list[dict[str, Any]]) -> int:
    return sum(worker.get("staged_device_bytes", 0) + worker.get("staged_host_bytes", 0) for worker in workers)


def add_routes(app: FastAPI, page: str) -> None:
    """/deltawire/status, /ready, /metrics, /prove and /update, of the follower in `app.state.deltawire`, if there is one."""
    app.state.deltawire_page = page
    routes: dict[str, tuple[str, Callable[..., Any]]] = {
        "status": ("GET", _status), "ready": ("GET", _ready), "metrics": ("GET", _metrics),
        "prove": ("POST", _prove), "update": ("POST", _update),
    }  # fmt: skip
    for name, (method, route) in routes.items():
        app.add_api_route(f"/deltawire/{name}", _answering(route), methods=[method], dependencies=[Depends(_check_key)])


def _check_key(request: Request) -> None:
    """Check the engine's API key, if the engine does not do so for all paths."""
    is_allowed = getattr(request.app.state, "deltawire_is_allowed", None)
    if is_allowed is not None and not is_allowed(request.headers):
        raise HTTPException(status_code=401, detail="Unauthorized")


def _answering(route: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a route: errors become JSON."""

    @wraps(route)
    async def answer(request: Request, **query: Any) -> Any:
        if getattr(request.app.state, "deltawire", None) is None:
            page = request.app.state.deltawire_page
            return JSONResponse({"error": f"this server follows no chain: see {page} of deltawire"}, status_code=404)
        try:
            return await route(request, **query)
        except (RuntimeError, Error) as error:
            return JSONResponse({"error": str(error)}, status_code=503)

    return answer


async def _status(request: Request) -> Any:
    return JSONResponse(await request.app.state.deltawire.status())


_VERSION = Query(default=None, ge=0)


def _wanted(version: int | None, run: str | None, manifest: str | None) -> Wanted:
    if manifest is not None and version is None:
        raise HTTPException(status_code=400, detail="manifest needs a version too")
    return Wanted(version, run, manifest)


async def _ready(request: Request, version: int | None = _VERSION, run: str | None = None, manifest: str | None = None) -> Any:
    """Whether that version of that run, or a later one, is served."""
    follower: Follower = request.app.state.deltawire
    wanted = _wanted(version, run, manifest)
    follower.hint(wanted)
    why = follower.seen.why_not_ready(wanted)
    words = {"ready": why is None, **follower.seen.named, "wanted": wanted._asdict(), "error": why}
    return JSONResponse(words, status_code=503 if why else 200)


async def _metrics(request: Request) -> Any:
    return PlainTextResponse(prometheus_text(await request.app.state.deltawire.status()))


async def _prove(request: Request, mode: str = "all") -> Any:
    if mode not in ("all", "sample"):
        return JSONResponse({"error": f'mode "{mode}": must be "all" or "sample"'}, status_code=400)
    proven = await request.app.state.deltawire.prove(mode)
    return JSONResponse(proven, status_code=500 if proven["wrong"] else 200)


async def _update(
    request: Request,
    version: int | None = _VERSION,
    run: str | None = None,
    manifest: str | None = None,
    timeout: float = Query(default=60, ge=0, le=3600),
) -> Any:
    """Wait until the host has the wanted version, while the engine serves, then update."""
    follower: Follower = request.app.state.deltawire
    wanted, end = _wanted(version, run, manifest), time.monotonic() + timeout
    while not wanted.is_met_by(held := await follower.held()):
        if time.monotonic() >= end:
            there = "nothing" if held is None else str(held)
            raise Unavailable(f"{follower.settings.local}: {wanted} did not arrive within {timeout:g} s; it holds {there}")
        follower.hint(wanted)
        await asyncio.sleep(0.05)
    served = await follower.update(wanted)
    await follower.check()
    if "store" in follower.seen.problems and run is None:
        raise BaseMismatch(follower.seen.problems["store"])
    return JSONResponse(served._asdict())
