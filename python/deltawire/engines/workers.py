"""Files in which the engine workers of a host report what they serve and have staged.

Each worker has a file in LOCAL/.deltawire/workers, which it locks while it lives. The keeper process reads from them what workers
need, and an engine's follower reads which version is staged.

With `shards` a worker writes its layout to LOCAL/.deltawire/boxes, and the layout's digest to its own file.
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

_BYTES = 4096  # a single write of fixed length is atomic for readers
_LONGEST = 300  # characters of a value
_PATIENCE = 0.5  # seconds to wait for the lock, which readers hold briefly


def workers_folder(local: str | os.PathLike[str]) -> Path:
    """The folder of the files."""
    return Path(local, ".deltawire", "workers")


def _boxes_path(local: str | os.PathLike[str], name: str) -> Path:
    return Path(local, ".deltawire", "boxes", name)


class WorkerFile:
    """The file of one worker."""

    def __init__(self, local: str, name: str, *, layout: str | None = None, **words: Any) -> None:
        """`Conflict`: a live process has this name. `layout`: of a worker with boxes; "": it needs whole versions."""
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
        """Update the file. `OSError` if it cannot be written."""
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
        """Write the layout. Needs the file lock, or other processes would remove it as that of a dead worker."""
        if self._layout:
            self._boxes.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._boxes.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(self._layout)
            temporary.rename(self._boxes)

    def keep(self) -> None:
        """Recreate the file if it was removed or moved."""
        if self._fd >= 0 and not is_at(self._fd, self._path):
            self.note()

    def close(self) -> None:
        """Remove the files."""
        with self._lock:
            if self._fd >= 0:
                self._boxes.unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)
                self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def read_workers(local: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """The reports of live workers by name. Removes files of dead workers."""
    found: dict[str, dict[str, Any]] = {}
    with suppress(FileNotFoundError):
        for path in sorted(workers_folder(local).iterdir()):
            with suppress(OSError), path.open("rb", buffering=0) as file:
                if try_lock(file.fileno(), fcntl.LOCK_SH):  # the worker is dead
                    _boxes_path(local, path.name).unlink(missing_ok=True)
                    path.unlink(missing_ok=True)
                    continue
                found[path.name] = _parsed(file.read(_BYTES))
    return found


def read_boxes(local: str | os.PathLike[str], workers: Mapping[str, Mapping[str, Any]]) -> dict[str, str] | None:
    """Layouts of workers by digest; None: a worker needs whole versions."""
    found: dict[str, str] = {}
    for name, words in workers.items():
        if not words:  # nothing reported yet
            continue
        if words.get("reads_local") or not words.get("boxes"):
            return None
        with suppress(OSError, UnicodeDecodeError):  # the worker may be closing
            text = _boxes_path(local, name).read_text()
            if sha256(text.encode()).hexdigest() == words["boxes"]:
                found[words["boxes"]] = text
    return found


def served_by(words: dict[str, Any], what: str = "served") -> Identity | None:
    """The version that a worker reports as `what`."""
    value = words.get(what)
    return None if value is None else Identity(*value)


def oldest_served(local: str) -> int | None:
    """The oldest version that a worker serves, if any."""
    return min((one.version for words in read_workers(local).values() if (one := served_by(words))), default=None)


def slowest(local: str, held: Identity) -> Identity | None:
    """The oldest version that workers serve; other runs count as oldest. None: a worker does not report one."""
    served = [served_by(words) for words in read_workers(local).values()]
    known = [one for one in served if one is not None]
    if not known or len(known) < len(served):
        return None
    return min(known, key=lambda one: (one.run == held.run, one.version))


def longest_pause(local: str) -> float | None:
    """The longest pause of the workers' last updates, in seconds."""
    return max((words["pause"] for words in read_workers(local).values() if isinstance(words.get("pause"), float)), default=None)


def try_lock(fd: int, how: int) -> bool:
    """Lock a file; False: another process holds the lock."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(fd: int, path: Path) -> bool:
    """Whether the open file is still at this path."""
    try:
        return os.fstat(fd).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        words = json.loads(text)
    except ValueError:  # not written completely yet
        return {}
    return words if isinstance(words, dict) else {}
