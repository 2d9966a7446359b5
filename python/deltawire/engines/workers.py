"""Which engine workers of a host use its folder, and what each of them serves and has staged.

A file for each worker in LOCAL/.deltawire/workers, which it keeps locked while it lives: a worker that died, in whatever way,
holds no lock. The host process keeps what they need, and an engine's follower learns from them that a version is staged.

A worker that is served by boxes says what it holds in a file of its name in LOCAL/.deltawire/boxes, and its digest in its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from deltawire._internal.identity import Identity
from deltawire.errors import Conflict

_BYTES = 4096  # one write of one length: a reader sees the old words or the new ones
_LONGEST = 300  # characters of one of them
_PATIENCE = 0.5  # seconds; whoever looks whether a worker is alive holds its lock for a moment


def workers_folder(local: str | os.PathLike[str]) -> Path:
    """Where the files are."""
    return Path(local, ".deltawire", "workers")


def _boxes_path(local: str | os.PathLike[str], name: str) -> Path:
    return Path(local, ".deltawire", "boxes", name)


class WorkerFile:
    """The file of one worker."""

    def __init__(self, local: str, name: str, *, layout: str | None = None, **words: Any) -> None:
        """`Conflict` when a living process has that name. `layout`: what it holds, where it is served by boxes; "": all."""
        self._boxes, self._layout = _boxes_path(local, name), layout
        if layout is not None:
            words["boxes"] = layout and sha256(layout.encode()).hexdigest()
        self._local, self._path, self._words = local, workers_folder(local) / name, words
        self._fd, self._lock = -1, threading.Lock()
        self.note()

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + _PATIENCE
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if try_lock(fd, fcntl.LOCK_EX) and is_at(fd, self._path):
                self._fd = fd
                return
            os.close(fd)
            if time.monotonic() >= end:
                raise Conflict(f"{self._local}: a worker {self._path.name!r} already exists")
            time.sleep(0.002)

    def note(self, **words: Any) -> None:
        """Change what the file says. `OSError` when it cannot be written."""
        with self._lock:
            self._words |= words
            if self._fd >= 0 and not is_at(self._fd, self._path):
                self._let_go()
            if self._fd < 0:
                self._open()
                self._write_layout()
            short = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in self._words.items()}
            os.pwrite(self._fd, json.dumps(short).encode().ljust(_BYTES), 0)

    def _write_layout(self) -> None:
        """Hold the lock: a process that checks whether this worker is alive removes the files of a dead one."""
        if self._layout:
            self._boxes.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._boxes.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(self._layout)
            temporary.rename(self._boxes)

    def keep(self) -> None:
        """Write it again if it was removed, or its folder was moved away."""
        if self._fd >= 0 and not is_at(self._fd, self._path):
            self.note()

    def close(self) -> None:
        """This worker needs nothing any more."""
        with self._lock:
            if self._fd >= 0:
                self._boxes.unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)
                self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def read_workers(local: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """What the living workers of a host say, by name. Removes the files of dead ones."""
    found: dict[str, dict[str, Any]] = {}
    with suppress(FileNotFoundError):
        for path in sorted(workers_folder(local).iterdir()):
            with suppress(OSError), path.open("rb", buffering=0) as file:
                if try_lock(file.fileno(), fcntl.LOCK_SH):  # nobody holds it
                    _boxes_path(local, path.name).unlink(missing_ok=True)
                    path.unlink(missing_ok=True)
                    continue
                found[path.name] = _parsed(file.read(_BYTES))
    return found


def read_boxes(local: str | os.PathLike[str], workers: Mapping[str, Mapping[str, Any]]) -> dict[str, str] | None:
    """Layouts of workers by their digests; None: one of them needs whole versions."""
    found: dict[str, str] = {}
    for name, words in workers.items():
        if not words:  # it has said nothing yet
            continue
        if words.get("reads_local") or not words.get("boxes"):
            return None
        with suppress(OSError, UnicodeDecodeError):  # it may be on its way out
            text = _boxes_path(local, name).read_text()
            if sha256(text.encode()).hexdigest() == words["boxes"]:
                found[words["boxes"]] = text
    return found


def served_by(words: dict[str, Any], what: str = "served") -> Identity | None:
    """What a worker says that it serves, or has `staged`."""
    value = words.get(what)
    return None if value is None else Identity(*value)


def oldest_served(local: str) -> int | None:
    """The oldest version that a worker reports; None: no worker serves one."""
    return min((one.version for words in read_workers(local).values() if (one := served_by(words))), default=None)


def slowest(local: str, held: Identity) -> Identity | None:
    """The version of the worker that is furthest behind; another run counts as behind. None: no worker reports one."""
    served = [served_by(words) for words in read_workers(local).values()]
    known = [one for one in served if one is not None]
    if not known or len(known) < len(served):
        return None
    return min(known, key=lambda one: (one.run == held.run, one.version))


def longest_pause(local: str) -> float | None:
    """Of the workers' last updates, in seconds."""
    return max((words["pause"] for words in read_workers(local).values() if isinstance(words.get("pause"), float)), default=None)


def try_lock(fd: int, how: int) -> bool:
    """False: another process holds it."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(fd: int, path: Path) -> bool:
    """Whether that is the open file: it may have been removed, or its folder moved away."""
    try:
        return os.fstat(fd).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        words = json.loads(text)
    except ValueError:  # not written yet
        return {}
    return words if isinstance(words, dict) else {}
