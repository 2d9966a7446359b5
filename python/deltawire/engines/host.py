"""The host's replica, in a thread of whichever of its workers comes first."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted, identity_of
from deltawire._internal.options import CopyOnWrite
from deltawire._internal.replica import Replica, read_replica_state
from deltawire._internal.stores import Store, StoreLike
from deltawire.engines import transport
from deltawire.engines.settings import Settings
from deltawire.errors import BaseMismatch, Conflict, Error, NotFound, Unavailable

log = logging.getLogger("deltawire")

_TROUBLE_INTERVALS = 4.0  # for which what the keeper of a folder has said is true
_SLICE = 0.25  # seconds, within which a thread that waits notices that it is to end


def local_identity(local: str) -> Identity | None:
    """What the host's checkpoint holds; None: nothing yet, or it is being patched."""
    try:
        state = read_replica_state(local)
    except Error:
        return None
    return None if state.patching_to is not None else state.identity


@contextmanager
def reading(local: str, how: int = fcntl.LOCK_SH, patience: float = 60.0) -> Iterator[None]:
    """While the checkpoint is read its host does not patch it: versions that come fast would leave no time to read one.

    Not for ever: who reads checks that it was one version, and who waits goes on after `patience` seconds.
    """
    folder = Path(local, ".deltawire")
    if not folder.is_dir():
        yield
        return
    with Path(folder, "reading").open("wb") as lock:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(0.005)
        yield


class Host:
    """Keeps the local checkpoint and its feed at the newest version while engines serve.

    Every worker of a host has one; the one that gets the folder's lock does the work, and when it ends another takes over.
    With `copy_on_write` each version has a folder of its own, and there is no feed; `serving` says what the heartbeat reports.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        copy_on_write: CopyOnWrite | None = None,
        serving: Callable[[], Identity | None] | None = None,
    ) -> None:
        self._settings, self._copy_on_write, self._serving = settings, copy_on_write, serving
        self._trouble = Path(settings.local, ".deltawire", "trouble")  # what keeps the keeper of the folder from going on
        self._stop = threading.Event()
        self._look = threading.Event()  # somebody waits: look into the store now
        self._joined: Store | None = None  # of the publisher, where it ships and this process keeps the folder
        self.error: str | None = None
        self.is_blocked = False  # what is wrong is not a store out of reach for a while
        self._thread = threading.Thread(target=self._run, name="deltawire-host", daemon=True)
        self._thread.start()

    def wait_for(self, wanted: Wanted, timeout: float) -> Identity:
        """What is held, as soon as that is what is wanted; without a version, the newest of the store.

        A number without a run is one of the run that the store holds now. `Unavailable` when it does not come in time,
        `BaseMismatch` at once when the folder holds another run.
        """
        end = time.monotonic() + timeout
        exact = wanted if wanted.version is not None and wanted.run is not None else None
        while True:
            exact = exact or self._in_store(wanted)
            held = local_identity(self._settings.local)
            if exact is not None and exact.is_met_by(held):
                assert held is not None
                return held
            if exact is not None and held is not None and exact.run not in (None, held.run):
                raise BaseMismatch(
                    f"{self._settings.local}: holds {held}, and {exact} is wanted: move the folder away, or name another one"
                )
            if time.monotonic() >= end:
                what = "the newest version" if wanted.version is None else str(wanted)
                there = "nothing" if held is None else str(held)
                why = f": {self.error}" if self.error else ""
                raise Unavailable(f"{self._settings.local}: {what} did not come in {timeout:g} s; it holds {there}{why}")
            self._look.set()
            time.sleep(0.02)

    def close(self) -> None:
        """Let go of the folder."""
        self._stop.set()
        self._look.set()
        self._thread.join(timeout=10)

    def _in_store(self, wanted: Wanted) -> Wanted | None:
        """The same with the run that the store holds, or its newest version; None: that cannot be said now."""
        from deltawire._internal.chain import Chain

        store = self._joined or self._settings.store
        if not store:  # of a publisher that another process is connected to
            return wanted
        try:
            chain = Chain(store)
            number = chain.head if wanted.version is None else wanted.version
            return None if number is None else Wanted(number, wanted.run or chain.run, wanted.manifest)
        except Error as error:
            self._note(error)
            return None

    def _run(self) -> None:
        while not self._stop.is_set() and not _core.is_ending():
            try:
                self._keep()
            except Conflict:  # another process of this host is the one, and says what is wrong
                self._note(self._said_by_keeper())
                self._stop.wait(1)
            except Exception as error:  # a thread's last words would be lost
                self._say(error)
                self._notify_others(error)
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
                    self._pull(replica)
                    self._note(None)
                    self._notify_others(None)
                    self._note_serving(replica)
                except NotFound as error:  # nothing was published yet, or versions were lost
                    self._note(error)
                    if replica.state is not None:
                        raise
                except Unavailable as error:
                    self._say(error)
                self._wait(watch, replica)

    def _pull(self, replica: Replica) -> None:
        """Everything but the patch itself goes on beside readers."""
        while True:
            prepared = replica.prepare()
            if prepared.changed:
                expected = (BaseMismatch,) if prepared.recovered else ()
                with reading(self._settings.local, fcntl.LOCK_EX), suppress(*expected):
                    replica.commit()
                    replica.settle()  # what an interrupted step leaves wrong is repaired by the next prepare()
            if not prepared.recovered:
                return

    def _note_serving(self, replica: Replica) -> None:
        """`deltawire status STORE` shows what the engines of this host serve: the slowest of them."""
        state = replica.state
        if state is None:
            return
        slowest = self._serving or (lambda: identity_of(_core.slowest_feed_worker(self._settings.local, state.identity)))
        serving = slowest()
        if serving is not None and state.serving != serving:
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
        if str(error) != self.error:
            log.warning("deltawire: %s: %s", self._settings.local, error)
        self._note(error)

    def _note(self, error: Exception | None) -> None:
        self.error = None if error is None else str(error)
        self.is_blocked = error is not None and not isinstance(error, Unavailable)

    def _notify_others(self, error: Exception | None) -> None:
        """Servers that share the folder know of it, too. Written anew while it lasts: an old one says nothing."""
        with suppress(OSError):
            if error is not None and not isinstance(error, Unavailable):
                self._trouble.write_text(error.message if isinstance(error, Error) else str(error))
            else:
                self._trouble.unlink(missing_ok=True)

    def _said_by_keeper(self) -> Exception | None:
        with suppress(OSError):
            if time.time() - self._trouble.stat().st_mtime < _TROUBLE_INTERVALS * max(1.0, self._settings.interval):
                return BaseMismatch(self._trouble.read_text())
        return None
