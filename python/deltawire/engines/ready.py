"""Waits, from outside, until engines serve a version: what `/deltawire/ready` of each says."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from deltawire.errors import InvalidArgument, Unavailable

_LOOK_SECONDS = 0.02, 0.25  # between questions, first and at most: servers log each
_ANSWER_SECONDS = 1.0, 5.0  # of all servers together, when the time is over, and of one, at most


def wait_until_served(servers: Sequence[str], version: int | None, timeout: float) -> list[int]:
    """What each server serves, as soon as that is at least `version` for all of them; without one, anything.

    `Unavailable` when one of them is not there in time, with its last words. `InvalidArgument` at once for a server that follows
    no chain: it never will be.
    """
    end = time.monotonic() + timeout
    served: dict[str, int] = {}
    pause, longest = _LOOK_SECONDS
    least, most = _ANSWER_SECONDS
    while True:
        words = {}
        for server in servers:
            if server not in served:
                answer = _ask(server, version, min(max(least / len(servers), end - time.monotonic()), most))
                if isinstance(answer, int):
                    served[server] = answer
                else:
                    words[server] = answer
        if not words:
            return [served[server] for server in servers]
        if time.monotonic() >= end:
            what = "a version" if version is None else f"version {version}"
            said = "; ".join(f"{server}: {word}" for server, word in words.items())
            raise Unavailable(f"{what} is not served after {timeout:g} s: {said}")
        time.sleep(pause)
        pause = min(longest, 1.5 * pause)


def _ask(server: str, version: int | None, timeout: float) -> int | str:
    """The version that is served, or why it is not the one that is asked for."""
    query = "" if version is None else f"?version={version}"
    try:
        with urlopen(f"{server}/deltawire/ready{query}", timeout=timeout) as answer:
            return int(json.load(answer)["version"])
    except HTTPError as error:
        with error:
            if error.code == 404:
                why = _error_of(error.read()) or "it has no /deltawire/ready"
                raise InvalidArgument(f"{server}: follows no chain: {why}") from None
            return _words(error)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer ({getattr(error, 'reason', None) or error or type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return "answers something else than a server with deltawire"


def _words(error: HTTPError) -> str:
    body = error.read()
    try:
        said: dict[str, Any] = json.loads(body)
        held = "no version yet" if said["version"] is None else f"version {said['version']}"
    except (ValueError, KeyError, TypeError):
        said = {}
    if error.code != 503 or not said:
        return f"answers {error.code}: {body[:200].decode(errors='replace')}"
    return f"serves {held}" + (f", and says: {said['error']}" if said.get("error") else "")


def _error_of(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return None
