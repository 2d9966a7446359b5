"""Waits until servers report at `/deltawire/ready` that they serve a version."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from deltawire._internal.identity import Identity, Wanted
from deltawire.errors import InvalidArgument, Unavailable

_LOOK_SECONDS = 0.02, 0.25  # between requests: first, and maximum; servers log each request
_ANSWER_SECONDS = 1.0, 5.0  # timeouts: minimum for all servers together, maximum for one


def wait_until_served(
    servers: Sequence[str], wanted: Identity | int | None, timeout: float, *, api_key: str | None = None
) -> list[Identity]:
    """Wait until all servers serve `wanted` (None: any version) or a later version of its run; returns what each serves.

    Prefer `PublishReport.identity` to a number, which may be a version of another run. `api_key`: default
    DELTAWIRE_ENGINE_API_KEY. `Unavailable`: timeout. `InvalidArgument`: a server follows no chain, or rejects the key.
    """
    end = time.monotonic() + timeout
    goal = Wanted.of(wanted)
    key = os.environ.get("DELTAWIRE_ENGINE_API_KEY") if api_key is None else api_key
    served: dict[str, Identity] = {}
    pause, longest = _LOOK_SECONDS
    least, most = _ANSWER_SECONDS
    while True:
        words = {}
        for server in servers:
            if server not in served:
                answer = _ask(server, goal, key, min(max(least / len(servers), end - time.monotonic()), most))
                if isinstance(answer, Identity):
                    served[server] = answer
                else:
                    words[server] = answer
        if not words:
            return [served[server] for server in servers]
        if time.monotonic() >= end:
            said = "; ".join(f"{server}: {word}" for server, word in words.items())
            raise Unavailable(f"{goal} is not served after {timeout:g} s: {said}")
        time.sleep(pause)
        pause = min(longest, 1.5 * pause)


def _ask(server: str, wanted: Wanted, key: str | None, timeout: float) -> Identity | str:
    """The served version, or why it is not the wanted one."""
    query = urlencode({name: value for name, value in wanted._asdict().items() if value is not None})
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(f"{server}/deltawire/ready?{query}", headers=headers), timeout=timeout) as answer:
            said = json.load(answer)
            served = Identity(str(said["run"]), int(said["version"]), str(said["manifest"]))
            return served if wanted.is_met_by(served) else f"serves {served}"
    except HTTPError as error:
        with error:
            if error.code == 401:
                raise InvalidArgument(f"{server}: rejects the API key; pass api_key") from None
            if error.code == 404:
                why = _object(error.read()).get("error") or "it has no /deltawire/ready"
                raise InvalidArgument(f"{server}: follows no chain: {why}") from None
            return _words(error)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer ({getattr(error, 'reason', None) or error or type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return "the answer is not from a server with deltawire"


def _words(error: HTTPError) -> str:
    body = error.read()
    said = _object(body)
    if error.code != 503 or "version" not in said:
        return f"answers {error.code}: {body[:200].decode(errors='replace')}"
    served = "no version yet" if said["version"] is None else str(Identity(str(said.get("run")), said["version"], ""))
    return f"serves {served}" + (f", and says: {said['error']}" if said.get("error") else "")


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty if the body is something else."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
