"""Waiting for new versions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from deltawire import _core
from deltawire.errors import (
    BaseMismatch,
    Conflict,
    Error,
    InternalError,
    InvalidArgument,
    Unsupported,
)
from deltawire.reports import Pull

log = logging.getLogger("deltawire")

# What no later attempt can change.
_FINAL = (InvalidArgument, Unsupported, Conflict, BaseMismatch, InternalError)


def follow(
    store: _core.Store,
    head: Callable[[], int | None],
    pull: Callable[[int], Pull],
    interval: float,
    until: int | None,
    timeout: float | None,
) -> Iterator[Pull]:
    """Pull whenever there is something new; wait out what may pass.

    In a local folder a new version is seen at once, elsewhere after about `interval` seconds. Ends after version `until`, or
    after `timeout` seconds without a new one.
    """
    watch = _core.Watch(store)
    failures, last_new = 0, time.monotonic()
    while True:
        try:
            newest = head()
            pulled = None if newest is None else pull(newest if until is None else min(newest, until))
            failures, wait = 0, _core.follow_jitter(interval)
        except _FINAL:
            raise
        except Error as error:
            wait = _core.follow_backoff(failures, interval)
            failures, pulled = failures + 1, None
            log.warning("follow: %s; again in %.1f s", error, wait)
        if pulled is not None and pulled.changed:
            yield pulled
            last_new = time.monotonic()
        if pulled is not None and until is not None and pulled.version >= until:
            return
        if timeout is not None:
            left = last_new + timeout - time.monotonic()
            if left <= 0:
                return
            wait = min(wait, left)
        watch.wait(wait)
