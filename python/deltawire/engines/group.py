"""Agreement between the workers of an engine, which must all go to a version or none."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from deltawire._internal.ranks import Group
from deltawire.errors import Cancelled, Error, InternalError

log = logging.getLogger("deltawire")


class Alone:
    """A group with a single worker."""

    rank, size = 0, 1

    def all_gather(self, data: bytes) -> list[bytes]:
        """The data itself."""
        return [data]


def gather(group: Group, words: Any) -> list[Any]:
    """The objects of all workers, by rank."""
    return [pickle.loads(data) for data in group.all_gather(pickle.dumps(words))]


def agree(group: Group, call: Callable[[], Any]) -> Any:
    """The result of `call`. If it fails on any worker, every worker raises."""
    result, failure = None, None
    try:
        result = call()
    except Exception as error:  # code of the engine may raise anything
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
    """The exception as an `Error`; code of the engine may raise anything."""
    return error if isinstance(error, Error) else InternalError(f"{type(error).__name__}: {error}")


def raise_for_all(words: Sequence[str | None], failure: Exception | None) -> None:
    """Raise this worker's failure, or `Cancelled` if another failed. `words`: the errors of all workers."""
    if failure is not None:
        raise failure
    others = [f"worker {rank}: {word}" for rank, word in enumerate(words) if word is not None]
    if others:
        raise Cancelled("; ".join(others))
