"""The host's replica, in a thread of whichever of its workers comes first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from deltawire import _core
from deltawire.engines import transport
from deltawire.engines.settings import Settings
from deltawire.errors import Conflict, Error, NotFound, Unavailable
from deltawire.options import CopyOnWrite
from deltawire.replica import Replica, read_replica_state
from deltawire.stores import Store, StoreLike

log = logging.getLogger("deltawire")

_SLICE = 0.25  # seconds, within which a thread that waits notices that it is to end


def local_version(local: str) -> int | None:
    """What the host's checkpoint holds; None: nothing yet, or it is being patched."""
    try:
        state = read_replica_state(local)
    except Error:
        return None
    return None if state.patching_to is not None else state.version


class Host:
    """Keeps the local checkpoint and its feed at the newest version while engines serve.

    Every worker of a host has one; the one that gets the folder's lock does the work, and when it ends another takes over.
    With `copy_on_write` each version has a folder of its own, and there is no feed; `serving` says what the store shall hear.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        copy_on_write: CopyOnWrite | None = None,
        serving: Callable[[], int | None] | None = None,
    ) -> None:
        self._settings, self._copy_on_write, self._serving = settings, copy_on_write, serving
        self._stop = threading.Event()
        self._look = threading.Event()  # somebody waits: look into the store now
        self._joined: Store | None = None  # of the publisher, where it ships and this process keeps the folder
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, name="deltawire-host", daemon=True)
        self._thread.start()

    def wait_for(self, version: int | None, timeout: float) -> int:
        """The version that is held, as soon as it is at least `version`; without one, the newest of the store.

        `Unavailable` when it does not come in time, with what is in the way.
        """
        end = time.monotonic() + timeout
        wanted = version
        while True:
            held = local_version(self._settings.local)
            if wanted is None:
                wanted = self._newest()
            if held is not None and wanted is not None and held >= wanted:
                return held
            if time.monotonic() >= end:
                what = f"version {version}" if version is not None else "the newest version"
                there = "nothing" if held is None else f"version {held}"
                why = f": {self.error}" if self.error else ""
                raise Unavailable(f"{self._settings.local}: {what} did not come in {timeout:g} s; it holds {there}{why}")
            self._look.set()
            time.sleep(0.02)

    def close(self) -> None:
        """Let go of the folder."""
        self._stop.set()
        self._look.set()
        self._thread.join(timeout=10)

    def _newest(self) -> int | None:
        """The head, as far as this process knows; another one may keep the folder."""
        try:
            from deltawire.chain import Chain

            store = self._joined or self._settings.store
            return Chain(store).head if store else -1  # who keeps the folder knows, and is waited for
        except Error as error:
            self.error = str(error)
            return None

    def _run(self) -> None:
        while not self._stop.is_set() and not _core.is_ending():
            try:
                self._keep()
            except Conflict:  # another worker of this host is the one, and tells what is wrong
                self.error = None
                self._stop.wait(1)
            except Error as error:
                self._say(error)
                self._stop.wait(self._settings.interval)
            except Exception as error:  # a thread's last words would be lost
                self._say(error)
                self._stop.wait(self._settings.interval)

    def _keep(self) -> None:
        Path(self._settings.local).mkdir(parents=True, exist_ok=True)
        if self._settings.transport == "store":
            self._follow(self._settings.store)
            return
        transport.check_free(self._settings.local)
        try:
            self._joined = transport.join(self._settings)
        except Unavailable as error:
            if not self._settings.store:
                raise
            self._say(error)
            self._follow(self._settings.store, until=time.monotonic() + self._settings.interval)
            return
        try:
            self._follow(self._joined)
        finally:
            self._joined = None

    def _follow(self, store: StoreLike, until: float = float("inf")) -> None:
        folders = self._copy_on_write
        with Replica(
            store, self._settings.local, accept=self._settings.accept, feed=folders is None, copy_on_write=folders
        ) as replica:
            watch = _core.Watch(replica._store)
            while not self._stop.is_set() and not _core.is_ending() and time.monotonic() < until:
                try:
                    replica.pull()
                    self.error = None
                    self._note_serving(replica)
                except NotFound as error:  # nothing was published yet
                    self.error = str(error)
                except Conflict:
                    raise
                except Error as error:
                    self._say(error)
                self._wait(watch, replica)

    def _note_serving(self, replica: Replica) -> None:
        """`deltawire status STORE` shows what the engines of this host serve: the slowest of them."""
        serving = self._serving() if self._serving else _core.slowest_feed_worker(self._settings.local)
        state = replica.state
        if serving is not None and state is not None and state.serving != serving:
            replica.set_serving(serving)

    def look(self) -> None:
        """Something has changed: an engine has gone to another version."""
        self._look.set()

    def _wait(self, watch: _core.Watch, replica: Replica) -> None:
        """Until something may have been published, somebody waits for it, or the interval is over. Decodes what arrives."""
        end = time.monotonic() + self._settings.interval
        while not self._look.is_set() and time.monotonic() < end:
            began = time.monotonic()
            watch.wait(_SLICE, replica.prepare_ahead)
            if time.monotonic() - began < _SLICE / 2:  # something has changed in a local store
                break
        self._look.clear()

    def _say(self, error: Exception) -> None:
        words = str(error)
        if words != self.error:
            log.warning("deltawire: %s: %s", self._settings.local, words)
        self.error = words
