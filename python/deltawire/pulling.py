"""What replicas in files and in memory share: going to a version, and following."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from deltawire import _core
from deltawire.errors import BaseMismatch, Conflict, Error, InternalError, InvalidArgument, NotFound, Unsupported
from deltawire.reports import Pull

log = logging.getLogger("deltawire")

# What no later attempt can change.
_FINAL = (InvalidArgument, Unsupported, Conflict, BaseMismatch, InternalError)


class _Replica(Protocol):
    def head(self) -> int | None: ...
    def pull(self, version: int | None, until: int | None = None, head: int | None = None) -> dict[str, Any]: ...
    def prepare(self, version: int | None) -> dict[str, Any]: ...
    def prepare_ahead(self) -> int: ...
    def commit(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


Core = TypeVar("Core", bound=_Replica)


class Pulling(Generic[Core]):
    """A replica that may be there before its run is: it opens when there is one."""

    def __init__(self, store: _core.Store, open_core: Callable[[], Core]) -> None:
        self._store = store
        self._open_core = open_core
        self._core: Core | None = None
        self._closed = False
        self._try_open()

    def _try_open(self) -> Core | None:
        try:
            return self._opened()
        except NotFound:
            return None

    def _opened(self) -> Core:
        if self._closed:
            raise InvalidArgument("the replica is closed")
        if self._core is None:
            self._core = self._open_core()
        return self._core

    @property
    def version(self) -> int | None:
        """What is held; None: nothing yet, or not known."""
        raise NotImplementedError

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was published yet."""
        core = self._try_open()
        return None if core is None else core.head()

    def pull(self, version: int | None = None) -> Pull:
        """Go to a version, older or newer, and prove it by digest: `prepare`, `commit` and what they need.

        Without a number it is the newest, and never back: what is held stays when the store has lost versions (`NotFound`) or
        was rewritten (`Corruption`).
        """
        return self._pull(version)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> Pull:
        return Pull.of(self._opened().pull(version, until, head))

    def prepare(self, version: int | None = None) -> Pull:
        """Fetch, decode and check everything; the weights are read, not written, and an engine may go on serving them."""
        return Pull.of(self._opened().prepare(version))

    def prepare_ahead(self) -> int:
        """Decode what a publisher has sent so far of the next version (`deltawire.ship`), committed or not: how many tensors.

        `follow` does it while it waits. Weights are read, not written, and what is never committed is dropped. Tensors on a GPU
        are decoded by `prepare`.
        """
        return 0 if self._core is None or self._closed else self._core.prepare_ahead()

    def commit(self) -> Pull:
        """Write what `prepare` left: the only part that needs a pause."""
        return Pull.of(self._opened().commit())

    def follow(self, *, interval: float = 5, until: int | None = None, timeout: float | None = None) -> Iterator[Pull]:
        """Pull whenever there is something new, and say so each time.

        In a local folder a new version is seen at once, elsewhere after about `interval` seconds. Outages are waited out and
        logged (logger "deltawire"), and so is a run that is not there yet. Ends after version `until`, after `timeout` seconds
        without a new one, or when the interpreter does. Never goes back: a store that has lost versions is an outage like any
        other.

            for pulled in replica.follow():
                engine.reload(pulled.path, version=pulled.version)
        """
        watch = _core.Watch(self._store)
        failures, last_new = 0, time.monotonic()
        while not _core.is_ending():
            try:
                pulled, wait = self._pull_newest(until), _core.follow_jitter(interval)
                failures = 0
            except _FINAL:
                raise
            except Error as error:
                if _core.is_ending():
                    return  # a daemon thread's: nothing can be pulled any more
                if until is not None and self.version is not None and self.version >= until:
                    raise  # what was wanted is there: nothing is left to wait for
                pulled, wait = None, _core.follow_backoff(failures, interval)
                failures += 1
                log.warning("follow: %s; again in %.1f s", error, wait)
            if pulled is not None and pulled.changed:
                yield pulled
                last_new = time.monotonic()
            if pulled is not None and until is not None and pulled.version >= until:
                return
            if timeout is not None:
                wait = min(wait, last_new + timeout - time.monotonic())
                if wait <= 0:
                    return
            watch.wait(wait, self.prepare_ahead)

    def _pull_newest(self, until: int | None) -> Pull | None:
        newest = self.head
        if newest is None and self.version is None:
            return None
        return self._pull(None, until, newest)

    def close(self) -> None:
        """Let go of the weights, which hold a whole version. A second time does nothing."""
        self._closed = True
        if self._core is not None:
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
