"""Fetches versions for a host's engine workers: the newest deltas, and a local checkpoint for restarts, which may lag behind.

`Keeper` does the work in a separate process, which shares no GIL, locks or memory maps with an engine. Every worker has a `Host`,
which starts that process if none runs, and reads its errors.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted, identity_of, is_before
from deltawire._internal.options import CopyOnWrite, Limits
from deltawire._internal.replica import Replica, read_replica_state
from deltawire._internal.stores import BuiltinStore, Store, store_handle
from deltawire.engines.settings import Settings
from deltawire.engines.workers import (
    is_at,
    longest_pause,
    oldest_served,
    read_boxes,
    read_workers,
    served_by,
    slowest,
    try_lock,
    workers_folder,
)
from deltawire.errors import BaseMismatch, Corruption, Error, IoError, NotFound, Unavailable
from deltawire.nixl import NixlStore

if TYPE_CHECKING:
    from deltawire.torch import Broadcast

log = logging.getLogger("deltawire")

_FRESH_INTERVALS = 4.0  # how long a keeper's note is valid
_WAIT_SECONDS = 1.0  # maximum time between checks without events
_RECORD_SECONDS, _RECORD_VERSIONS = 5.0, 8  # maximum lag of the checkpoint if no worker reads it
_CORES_SHARE = 2  # the checkpoint uses 1 / _CORES_SHARE of the cores
_END_SECONDS = 2.0  # for a pull to finish when its process ends
_NOTE_BYTES, _LONGEST = 4096, 500  # of a note, and maximum characters of its text
_NICE = 10  # of threads that decode and patch the checkpoint; engines have priority


def local_identity(local: str | os.PathLike[str]) -> Identity | None:
    """The version in the host's checkpoint; None: none yet, or it is being patched."""
    try:
        state = read_replica_state(local)
    except Error:
        return None
    return None if state.patching_to is not None else state.identity


def spooled_identity(local: str, boxes: str = "") -> Identity | None:
    """The newest version whose deltas are on this host, all or those for a worker with these boxes."""
    return identity_of(_core.newest_spooled(local, boxes))


def newest_here(local: str, boxes: str | None = None) -> Identity | None:
    """The newest version that workers of this host can go to, through deltas or the checkpoint.

    `boxes`: of one worker; None: for all workers.
    """
    all_boxes = {words.get("boxes") or "" for words in read_workers(local).values()} if boxes is None else {boxes}
    known = [spooled_identity(local, one) for one in all_boxes or {""}]
    spooled = None if None in known else min((one for one in known if one is not None), key=lambda one: one.version)
    held = local_identity(local)
    return spooled if held is None or is_before(held, spooled) else held


@contextmanager
def reading(local: str, how: int = fcntl.LOCK_SH, patience: float = 60.0) -> Iterator[None]:
    """Keep the host from patching the checkpoint while it is read.

    After `patience` seconds the lock is ignored; a reader must check that it has read a single version.
    """
    folder = Path(local, ".deltawire")
    if not folder.is_dir():
        yield
        return
    with Path(folder, "reading").open("ab") as lock:
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


class _IsKept(Exception):
    """Another process keeps the folder."""


@contextmanager
def _only_keeper(local: str) -> Iterator[Callable[[], bool]]:
    """Lock the folder; `_IsKept` if another process has the lock. The kernel frees it when this process ends.

    Yields a function that returns whether the folder still exists: it may be moved away.
    """
    folder = Path(local, ".deltawire")
    folder.mkdir(parents=True, exist_ok=True)
    with Path(folder, "keeper").open("ab") as lock:
        if not try_lock(lock.fileno(), fcntl.LOCK_EX):
            raise _IsKept
        yield lambda: is_at(lock.fileno(), folder / "keeper")


def _is_kept(local: str) -> bool:
    with suppress(FileNotFoundError), Path(local, ".deltawire", "keeper").open("rb") as lock:
        return not try_lock(lock.fileno(), fcntl.LOCK_SH)
    return False


class Rhythm:
    """When to query a store that does not notify: more often around the time when a version is expected."""

    def __init__(self, interval: float) -> None:
        self._interval, self._came = interval, deque[float](maxlen=8)

    def came(self, now: float) -> None:
        """Record the arrival of a version."""
        self._came.append(now)

    def pause(self, now: float) -> float:
        """Seconds until the next query, at most the interval."""
        if len(self._came) < 3:
            return self._interval
        usual = median(later - earlier for earlier, later in pairwise(self._came))
        since = now - self._came[-1]
        early = 0.8 * usual - since
        overdue = 0.25 * (since - usual)
        return min(self._interval, early if early > 0 else max(0.01, 0.02 * usual, overdue))


class Keeper:
    """Fetches versions as they are published, and updates the local checkpoint, each in a thread.

    The checkpoint serves restarts: it is updated every few seconds, or sooner if a worker reads it. With `copy_on_write` each
    version has its own folder.
    """

    def __init__(self, settings: Settings, *, copy_on_write: CopyOnWrite | None = None, nice: int = 0) -> None:
        self._settings, self._copy_on_write, self._nice = settings, copy_on_write, nice
        self._own = Path(settings.local, ".deltawire")
        self._stop = threading.Event()
        self._watch: _core.Watch | None = None
        self._broadcast: Broadcast | None = None
        self._events = _core.FolderEvents()  # wakes the checkpoint's thread
        self._newest: Identity | None = None
        self._refused: str | None = None  # why workers' boxes were rejected
        self._errors: dict[str, Exception] = {}  # of the two threads
        self._said = ""
        self._noting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="deltawire-fetch", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Check for versions now."""
        self._events.wake()
        if self._watch is not None:
            self._watch.wake()

    def close(self, timeout: float = 10) -> None:
        """Stop, and release the folder."""
        self._stop.set()
        self.look()
        self._thread.join(timeout)

    @property
    def _ending(self) -> bool:
        return self._stop.is_set() or _core.is_ending()

    def _run(self) -> None:
        while not self._ending:
            try:
                with _only_keeper(self._settings.local) as is_there, self._heard(), self._source() as store:
                    while not self._ending and is_there():
                        try:
                            self._keep(store, is_there)
                        except Exception as error:
                            if self._broadcast is None:  # reopen the store: its token may have changed
                                raise
                            self._note("store", error)  # leaving the group would end it on all hosts
                            self._stop.wait(min(self._settings.interval, _WAIT_SECONDS))
            except _IsKept:
                self._stop.wait(_WAIT_SECONDS)
            except Exception as error:  # otherwise the error would be lost
                self._note("store", error)
                self._stop.wait(min(self._settings.interval, _WAIT_SECONDS))

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Check for versions whenever a process writes to the pipe LOCAL/.deltawire/look."""
        path, ended = self._own / "look", threading.Event()
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)

        def hear() -> None:
            while os.read(pipe, 4096) and not ended.is_set():
                self.look()

        thread = threading.Thread(target=hear, name="deltawire-look", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            os.write(pipe, b"\n")
            thread.join()
            os.close(pipe)

    @contextmanager
    def _source(self) -> Iterator[Store]:
        """The store to read versions from."""
        settings = self._settings
        if settings.transport == "nixl":
            yield NixlStore(settings.store, token=settings.token, token_file=settings.token_file)
            return
        store = settings.open_store()
        if settings.transport == "store":
            yield store
            return
        from deltawire.torch import Broadcast

        with Broadcast(self._settings.rendezvous, store) as broadcast:
            self._broadcast = broadcast
            yield broadcast.store

    def _keep(self, store: Store, is_there: Callable[[], bool]) -> None:
        behind: threading.Thread | None = None
        ended = threading.Event()
        try:
            spool = _core.Spool(store_handle(store), Path(self._settings.local), accept=self._settings.accept)
            self._watch, rhythm = _core.Watch(store_handle(store)), Rhythm(self._settings.interval)
            while not self._ending and is_there():
                if self._fetch(spool):
                    rhythm.came(time.monotonic())
                    self._events.wake()
                if behind is None and self._newest is not None:
                    behind = threading.Thread(
                        target=self._follow, args=(BuiltinStore(spool.store), ended), name="deltawire-local"
                    )
                    behind.start()
                look = time.monotonic() + rhythm.pause(time.monotonic())
                while (left := look - time.monotonic()) > 0 and not self._ending and is_there():
                    if self._watch.wait(min(left, _WAIT_SECONDS)):
                        break
        except NotFound as error:  # nothing published yet, or versions lost
            self._note("store", error)
            if self._newest is not None:
                raise
            self._stop.wait(min(self._settings.interval, 0.1))
        finally:
            ended.set()
            self._events.wake()
            if behind is not None:
                behind.join()

    def _fetch(self, spool: _core.Spool) -> bool:
        """Fetch new versions; returns whether there were any."""
        held = local_identity(self._settings.local)
        try:
            self._want(spool)
            newest = identity_of(spool.fetch_new(held and held.version, oldest_served(self._settings.local)))
        except (Unavailable, IoError) as error:  # fetched versions remain
            self._note("store", error)
            return False
        self._note("store", self._lost(newest))
        self._note("group", None if self._broadcast is None else self._broadcast.error)  # the store is used meanwhile
        is_new, self._newest = newest != self._newest, newest
        return is_new

    def _want(self, spool: _core.Spool) -> None:
        try:
            spool.want(self._wanted())
        except Corruption as error:  # for example, a box that splits a byte of packed elements
            if str(error) != self._refused:
                log.warning("deltawire: shards.fallback: fetching whole versions to this host: %s", error)
            self._refused = str(error)
            spool.want(None)

    def _wanted(self) -> dict[str, str] | None:
        """The boxes to fetch, by digest; None: whole versions."""
        return read_boxes(self._settings.local, read_workers(self._settings.local)) if self._settings.shards else None

    def _lost(self, newest: Identity | None) -> Error | None:
        """An error if a worker serves a later version than the store has."""
        later = [one for words in read_workers(self._settings.local).values() if is_before(newest, one := served_by(words))]
        if not later:
            return None
        return NotFound(f"{later[0]} is served, but {self._settings.source} holds {newest}; has it lost versions?")

    # ---- the checkpoint

    def _follow(self, store: Store, ended: threading.Event) -> None:
        last = float("-inf")
        while not ended.is_set() and not self._ending:
            try:
                workers_folder(self._settings.local).mkdir(parents=True, exist_ok=True)
                self._events.watch(workers_folder(self._settings.local), writes=True)
                with self._open_replica(store) as replica:
                    while not ended.is_set() and not self._ending:
                        if self._is_due(replica, time.monotonic() - last):
                            self._pull(replica)
                            last = time.monotonic()
                        self._note("local", None)
                        self._note_serving(replica)
                        self._events.wait(_WAIT_SECONDS)
            except Exception as error:
                self._note("local", error)
                last = float("-inf")
                ended.wait(min(self._settings.interval, _WAIT_SECONDS))

    def _open_replica(self, store: Store) -> Replica:
        """Open it in a low-priority thread, whose priority its threads inherit."""

        def open_it() -> Replica:
            if self._nice:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
            threads = Limits(threads=max(1, (os.cpu_count() or 1) // _CORES_SHARE))
            local, accept = self._settings.local, self._settings.accept
            return Replica(store, local, accept=accept, limits=threads, copy_on_write=self._copy_on_write)

        with ThreadPoolExecutor(1) as opener:
            return opener.submit(open_it).result()

    def _is_due(self, replica: Replica, seconds: float) -> bool:
        state, newest = replica.state, self._newest
        if state is None or newest is None or state.patching_to is not None or state.identity.run != newest.run:
            return True
        behind = newest.version - state.version
        if behind == 0 and seconds != float("inf"):
            return newest != state.identity
        if self._wanted() is not None:
            return False  # workers do not need it
        is_read = self._copy_on_write is not None or any(
            words.get("reads_local") for words in read_workers(self._settings.local).values()
        )
        return is_read or behind >= _RECORD_VERSIONS or seconds >= _RECORD_SECONDS

    def _pull(self, replica: Replica) -> None:
        """Pull the newest version. Only the patch excludes readers."""
        while True:
            prepared = replica.prepare()
            if prepared.changed:
                expected = (BaseMismatch,) if prepared.recovered else ()
                with reading(self._settings.local, fcntl.LOCK_EX), suppress(*expected):
                    replica.commit()
                    replica.settle()  # the next prepare() repairs an interrupted step
            if not prepared.recovered:
                return

    def _note_serving(self, replica: Replica) -> None:
        """Report the oldest version served on this host, for `deltawire status STORE`."""
        state = replica.state
        serving = None if state is None else slowest(self._settings.local, state.identity)
        if state is not None and serving is not None and state.serving != serving:
            replica.set_serving(serving, longest_pause(self._settings.local))

    # ---- errors

    def _note(self, where: str, error: Exception | None) -> None:
        """Write a note for workers, repeatedly while the error lasts: workers ignore old notes."""
        with self._noting:
            self._write_note(where, error)

    def _write_note(self, where: str, error: Exception | None) -> None:
        self._errors.pop(where, None)
        if error is not None:
            self._errors[where] = error
        now = next(reversed(self._errors.values()), None)
        words = "" if now is None else str(now)
        if words and words != self._said:
            log.warning("deltawire: %s: %s", self._settings.local, words)
        self._said = words
        # Errors of the store or disk may be temporary, and without the group versions come from the store.
        blocked = any(where != "group" and not isinstance(one, Unavailable | IoError) for where, one in self._errors.items())
        told = {} if now is None else {"error": words[:_LONGEST], "blocked": blocked}
        with suppress(OSError), Path(self._own, "trouble").open("r+b" if (self._own / "trouble").exists() else "w+b") as file:
            file.write(json.dumps(told).encode().ljust(_NOTE_BYTES))  # in place, in case the disk is full


def look_now(local: str) -> None:
    """Wake the keeper: an engine has changed its version, or a caller waits for one."""
    with suppress(OSError):
        pipe = os.open(Path(local, ".deltawire", "look"), os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(pipe, "wb", buffering=0) as file:
            file.write(b"\n")


class Host:
    """A worker's side of the keeper process: starts it if none runs."""

    in_process = False
    """Whether the keeper is a thread of this process, for tests and stores in memory."""

    def __init__(self, settings: Settings, *, copy_on_write: CopyOnWrite | None = None) -> None:
        self._settings, self._copy_on_write = settings, copy_on_write
        self._stop = threading.Event()
        self._keeper = Keeper(settings, copy_on_write=copy_on_write) if self.in_process else None
        self._thread = threading.Thread(target=self._supervise, name="deltawire-host", daemon=True)
        if self._keeper is None:
            self._thread.start()

    @property
    def error(self) -> str | None:
        """The keeper's current error, if any."""
        return self._trouble().get("error")

    @property
    def is_blocked(self) -> bool:
        """Whether the error is permanent, unlike an unreachable store."""
        return bool(self._trouble().get("blocked"))

    def _trouble(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            file = Path(self._settings.local, ".deltawire", "trouble")
            if time.time() - file.stat().st_mtime < _FRESH_INTERVALS * max(1.0, self._settings.interval):
                found = json.loads(file.read_text())
                return found if isinstance(found, dict) else {}
        return {}

    def wait_for(self, wanted: Wanted, timeout: float, *, in_checkpoint: bool = False) -> Identity:
        """Wait until the wanted version (default: the store's newest) or a later one is on this host, and return it.

        Without a run, that of the store. `in_checkpoint`: deltas are not enough. `Unavailable`: timeout. `BaseMismatch`: the
        folder holds another run.
        """
        local, end = self._settings.local, time.monotonic() + timeout
        exact = wanted if wanted.version is not None and wanted.run is not None else None
        while True:
            exact = exact or self._in_store(wanted)
            held = local_identity(local)
            here = held if in_checkpoint else newest_here(local)
            if exact is not None and here is not None and exact.is_met_by(here):
                return here
            if exact is not None and held is not None and exact.run not in (None, held.run):
                raise BaseMismatch(f"{local}: holds {held}, but {exact} is wanted; move the folder away, or use another one")
            if time.monotonic() >= end:
                what = "the newest version" if wanted.version is None else str(wanted)
                there = "nothing" if here is None else str(here)
                why = f": {self.error}" if self.error else ""
                raise Unavailable(f"{local}: {what} did not arrive within {timeout:g} s; it holds {there}{why}")
            look_now(local)
            time.sleep(0.02)

    def _in_store(self, wanted: Wanted) -> Wanted | None:
        """Complete run and version from the store; None: the store is not available."""
        from deltawire._internal.chain import Chain

        try:
            chain = Chain(self._settings.open_store())
            number = chain.head if wanted.version is None else wanted.version
            return None if number is None else Wanted(number, wanted.run or chain.run, wanted.manifest)
        except Error:
            return None

    def close(self) -> None:
        """Stop the keeper process if this worker has started it."""
        self._stop.set()
        if self._keeper is not None:
            self._keeper.close()
        elif self._thread.is_alive():
            self._thread.join(timeout=15)

    def _supervise(self) -> None:
        Path(self._settings.local).mkdir(parents=True, exist_ok=True)
        while not self._stop.is_set() and not _core.is_ending():
            if not _is_kept(self._settings.local):
                try:
                    self._run_keeper()
                except OSError as error:
                    log.warning("deltawire: %s: cannot start the background process: %s", self._settings.local, error)
            self._stop.wait(_WAIT_SECONDS)

    def _run_keeper(self) -> None:
        """Run the keeper until it ends. It ends with this process, when the pipe breaks."""
        # In a new session, so that Ctrl-C does not reach it directly.
        with subprocess.Popen(
            [sys.executable, "-m", "deltawire.engines.host"], stdin=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdin is not None
            told = {"settings": asdict(self._settings), "copy_on_write": self._copy_on_write and asdict(self._copy_on_write)}
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(told) + "\n")
                process.stdin.flush()
            while process.poll() is None and not self._stop.wait(0.1) and not _core.is_ending():
                pass
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def main(stdin: IO[str] = sys.stdin) -> None:
    """The keeper process. The first line of stdin has its settings; it runs until stdin ends."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    told = json.loads(stdin.readline())
    folders = told["copy_on_write"]
    parent = os.getppid()
    keeper = Keeper(Settings(**told["settings"]), copy_on_write=None if folders is None else CopyOnWrite(**folders), nice=_NICE)
    reader = threading.Thread(target=stdin.read, daemon=True)
    reader.start()
    while reader.is_alive() and os.getppid() == parent:  # a child process of the worker may keep the pipe open
        reader.join(timeout=1)
    keeper.close(_END_SECONDS)
    sys.stderr.flush()
    os._exit(0)  # the next process finishes an interrupted pull


if __name__ == "__main__":
    main()
