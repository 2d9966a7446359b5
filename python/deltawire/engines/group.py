"""The workers of one engine: they go to a version together, or not at all."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from deltawire._internal.ranks import Group
from deltawire.errors import Cancelled, Error, InternalError

log = logging.getLogger("deltawire")


class Alone:
    """A worker without others, as a `Group`."""

    rank, size = 0, 1

    def all_gather(self, data: bytes) -> list[bytes]:
        """What this one gives."""
        return [data]


def gather(group: Group, words: Any) -> list[Any]:
    """What all of them say, this one too, by rank."""
    return [pickle.loads(data) for data in group.all_gather(pickle.dumps(words))]


def agree(group: Group, call: Callable[[], Any]) -> Any:
    """The result of `call` if it succeeds on all workers; otherwise every worker raises, so that none waits for the others."""
    result, failure = None, None
    try:
        result = call()
    except Exception as error:  # the engine's own code may raise anything
        failure = as_error(error)
    raise_for_all(gather(group, None if failure is None else str(failure)), failure)
    return result


def failed(call: str, error: Exception) -> dict[str, str]:
    """What a worker answers instead of raising; logs the traceback of an unexpected error."""
    if isinstance(error, Error):
        return {"error": str(error)}
    log.exception("deltawire: %s", call)
    return {"error": f"{type(error).__name__}: {error}"}


def as_error(error: Exception) -> Error:
    """The engine's own code may raise anything."""
    return error if isinstance(error, Error) else InternalError(f"{type(error).__name__}: {error}")


def raise_for_all(words: Sequence[str | None], failure: Exception | None) -> None:
    """This one's failure, or that another has one: `words` are what all said of it."""
    if failure is not None:
        raise failure
    others = [f"worker {rank}: {word}" for rank, word in enumerate(words) if word is not None]
    if others:
        raise Cancelled("; ".join(others))
