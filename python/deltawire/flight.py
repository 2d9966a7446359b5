"""A version on its way: one at a time, and what goes wrong with it is never lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from deltawire.reports import Version

log = logging.getLogger("deltawire")


class _Outcome(Future[Version]):
    """A future that knows whether it was asked."""

    asked = False

    def result(self, timeout: float | None = None) -> Version:
        try:
            return super().result(timeout)
        finally:
            self.asked = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        finally:
            self.asked = self.done()


class Flight:
    """At most one call in a thread. The thread is no daemon: the interpreter waits for it before it exits."""

    def __init__(self) -> None:
        self._outcome: _Outcome | None = None
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], Version]) -> Future[Version]:
        """Run `call` in a thread; the one before must have landed."""
        outcome = self._outcome = _Outcome()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=run, name="deltawire-publish")
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()
        return outcome

    def land(self) -> None:
        """Wait for what is on its way; raise what went wrong, unless somebody has heard of it."""
        outcome, asked = self._outcome, self._outcome is not None and self._outcome.asked
        if outcome is None:
            return
        error = outcome.exception()
        self._outcome = None
        if error is not None and not asked:
            raise error

    def join(self) -> None:
        """Until what has landed has done its last steps and callbacks too: who has closed leaves no thread behind."""
        if self._outcome is not None:  # it has not: the wait was interrupted
            return
        for thread in self._threads:
            if thread is not threading.current_thread():  # a callback closes
                thread.join()

    def report(self) -> None:
        """When nobody is left to raise it to, a failure is logged."""
        if self._outcome is not None:
            self._outcome.add_done_callback(_log_failure)


def _log_failure(outcome: Future[Version]) -> None:
    if not getattr(outcome, "asked", False) and (error := outcome.exception()) is not None:
        log.error("the last version was not published: %s", error)
