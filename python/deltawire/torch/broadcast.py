"""Sends versions to all replicas through a torch process group, in addition to the store.

    trainer = Broadcast(group, "s3://bucket/run-7")               # rank 0
    publisher = dw.Publisher(trainer.store, model)

    engine = Broadcast(group, "s3://bucket/run-7")                # every other rank
    replica = dw.TensorReplica(engine.store, tensors)
    for pulled in replica.follow(): ...

docs/transports.md describes what happens when a rank fails.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from deltawire import _core
from deltawire._internal.steps import Closing
from deltawire._internal.stores import BuiltinStore, Store, StoreLike, store_handle
from deltawire.errors import Cancelled, Corruption, Error, InvalidArgument, Unavailable
from deltawire.torch.rendezvous import Meeting, Rendezvous, Wire, first_line

log = logging.getLogger("deltawire")

_HEADER_BYTES = 1024  # of JSON, padded with spaces; names have at most 512 bytes
_PIECE_BYTES = 64 << 20  # of an object, in one broadcast
_ALIVE_SECONDS = 5.0  # maximum time between headers, so that an idle group does not time out
_AGAIN_SECONDS = 1.0  # between attempts to form a group
_KEPT_VERSIONS = 8
_PART = re.compile(r"(?:parts|full)/(\d{10})-")  # docs/format.md, section 4
_MANIFEST = re.compile(r"manifests/(\d{10})\.json")


class Broadcast(Closing):
    """Sends versions that rank `src` publishes to all other ranks through a process group.

    `store` gets every version first. If a rank fails, the group ends on all ranks (`error`), and versions go through the store.
    Nothing else may use the group.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | Rendezvous | None,
        store: StoreLike,
        *,
        src: int = 0,
        timeout: float = 60,
        buffer_bytes: int = 512 << 20,
        memory_bytes: int = 2 << 30,
    ) -> None:
        """All ranks call it, each with the chain's store as it reaches it.

        `group`: a torch process group with gloo, or `"cpu:gloo,cuda:nccl"` to send between GPUs; None: the default group. After
        it ends, make new ones; a `Rendezvous` does so by itself, with `src` 0. `timeout`: seconds until a silent rank has failed.
        Publishing waits while `buffer_bytes` are unsent; other ranks keep at most `memory_bytes`.
        """
        if isinstance(group, Rendezvous) and src != 0:
            raise InvalidArgument(f"Broadcast: src={src}: rank 0 of a Rendezvous publishes")
        if not timeout > 0:
            raise InvalidArgument(f"Broadcast: timeout={timeout}: must be more than 0 seconds")
        if group is None:
            if not (dist.is_available() and dist.is_initialized()):
                raise InvalidArgument("Broadcast: no group is given, and torch.distributed has no default group")
            group = dist.group.WORLD
        behind = store_handle(store)
        self._link = _Link(group, src, timeout, buffer_bytes)
        if self._link.rank == src:
            self._store = BuiltinStore(_core.sending_store(behind, self._link.outbox, min(_PIECE_BYTES, buffer_bytes)))
        else:
            received = _core.ReceivingStore(behind)
            self._link.inbox = _Inbox(received, memory_bytes)
            self._store = BuiltinStore(received)
        self._link.start()
        # The thread holds no reference to this object, so that garbage collection closes it.
        self._end = weakref.finalize(self, self._link.close)

    @property
    def store(self) -> Store:
        """Publish to it on rank `src`; read from it on others."""
        return self._store

    @property
    def error(self) -> Error | None:
        """Why the group is not in use."""
        return self._link.error

    def wait(self, timeout: float = 600) -> None:
        """Wait for all ranks of a `Rendezvous`; else `Unavailable`."""
        self._link.wait(lambda link: link.is_live, timeout, "the group did not form")

    def flush(self, timeout: float = 600) -> None:
        """On rank `src`: wait until all ranks have everything."""
        self._link.wait(lambda link: link.is_live and link.outbox.is_empty, timeout, "not all objects were sent")

    def close(self) -> None:
        """Leave, on rank `src` after sending everything. On another rank this ends the group."""
        self._end()


class _Piece(NamedTuple):
    """Part of an object that is sent to all ranks."""

    word: dict[str, Any]
    data: bytearray


class _Outbox:
    """Queue of pieces to send. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._is_open, self._is_sending = False, False
        self._head = -1  # the newest version sent
        self._pieces: deque[_Piece] = deque()
        self.changed = threading.Condition()

    def wants_part(self, name: str) -> bool:
        """Whether the object is part of a new version; receivers need no anchors or merged deltas."""
        found = _PART.match(name)
        return found is not None and int(found[1]) > self._head

    def wants_manifest(self, name: str) -> bool:
        """Whether the object is a manifest."""
        return _MANIFEST.fullmatch(name) is not None

    def send(self, name: str, size: int, offset: int, data: bytearray | None) -> bool:
        """Called by the store. Waits while too many bytes are unsent. False: there are no listeners."""
        word: dict[str, Any] = {"drop": name}
        if data is not None:
            word = {"put": name, "size": size, "offset": offset, "bytes": len(data)}
            if found := _MANIFEST.fullmatch(name):  # it contains the hashes of the parts
                word["sha256"] = hashlib.sha256(data).hexdigest()
                self._head = max(self._head, int(found[1]))
        with self.changed:
            self.changed.wait_for(lambda: not self._is_open or self._bytes < self._limit)
            if self._is_open:
                self._pieces.append(_Piece(word, data or bytearray()))
                self._bytes += len(data or b"")
                self.changed.notify_all()
            return self._is_open

    def take(self, seconds: float, is_closing: Callable[[], bool]) -> _Piece | None:
        """The next piece; None after `seconds` without one."""
        with self.changed:
            self._is_sending = False
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._pieces or is_closing(), seconds)
            if not self._pieces:
                return None
            self._is_sending = True
            piece = self._pieces.popleft()
            self._bytes -= len(piece.data)
            self.changed.notify_all()
            return piece

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        return not self._pieces and not self._is_sending

    def open(self, is_open: bool) -> None:
        """Set whether there are listeners. Drops unsent objects, which are then read from the store."""
        with self.changed:
            self._is_open, self._is_sending, self._bytes = is_open, False, 0
            self._pieces.clear()
            self.changed.notify_all()


class _Object:
    """An object that is being received, or was."""

    def __init__(self, name: str, size: int) -> None:
        found = _PART.match(name) or _MANIFEST.fullmatch(name)
        if found is None:
            raise Corruption(f"{name}: not an object of a version")
        self.name, self.size, self.version = name, size, int(found[1])
        self.data: np.ndarray | None = None  # None: not kept
        self.num_received, self.hash, self.is_committed = 0, hashlib.sha256(), False

    def room(self, offset: int, count: int) -> np.ndarray:
        """A buffer for the next piece. The object is dropped if an earlier piece is missing."""
        if self.data is None or offset != self.num_received:
            self.data = None
            return np.empty(count, np.uint8)
        return self.data[offset : offset + count]

    def took(self, piece: np.ndarray) -> bool:
        """Account for a received piece; returns whether the object is complete."""
        if self.data is not None:
            self.num_received += piece.size
            self.hash.update(piece.data)
        return self.data is not None and self.num_received == self.size

    def is_what(self, sha256: str) -> bool:
        """Whether the object is complete and has this hash."""
        came = self.data is not None and self.num_received == self.size
        if came and self.hash.hexdigest() != sha256:
            log.warning("deltawire: %s: damaged during the broadcast; reading it from the store instead", self.name)
            return False
        return came


class _Inbox:
    """Received objects, up to a limit of memory. Not thread-safe."""

    def __init__(self, store: _core.ReceivingStore, limit_bytes: int) -> None:
        self.store, self._limit = store, limit_bytes
        self._objects: dict[str, _Object] = {}

    def receive(self, word: dict[str, Any], wire: Wire) -> None:
        """Receive a piece directly into the object's buffer."""
        name, size, offset, count = (word[key] for key in ("put", "size", "offset", "bytes"))
        if not 0 <= offset <= offset + count <= size or count > _PIECE_BYTES:
            raise Corruption(f"{name}: malformed piece")
        one = self._begin(name, size) if offset == 0 else self._objects.get(name) or _Object(name, size)
        piece = one.room(offset, count)
        if count:
            wire.broadcast(torch.from_numpy(piece))
        if not one.took(piece):
            return
        if "sha256" in word:
            self._commit(one, word["sha256"])
        else:
            self.store.add(name, one.data)

    def drop(self, name: str) -> None:
        """Forget an object; it is then read from the inner store."""
        self._objects.pop(name, None)
        self.store.drop(name)

    def end(self) -> None:
        """The group has ended: drop objects that are not committed."""
        for one in [one for one in self._objects.values() if not one.is_committed]:
            self.drop(one.name)
        self.store.announce(False)

    def _begin(self, name: str, size: int) -> _Object:
        self.drop(name)
        self._objects[name] = one = _Object(name, size)
        left = self._limit - sum(other.data.size for other in self._objects.values() if other.data is not None)
        for old in sorted(self._objects.values(), key=lambda other: other.version):
            if old.version + _KEPT_VERSIONS <= one.version or (left < size and old.version < one.version):
                left += 0 if old.data is None else old.data.size
                self.drop(old.name)
        if size <= left:
            one.data = np.empty(size, np.uint8)
        else:
            log.warning("deltawire: %s: %d bytes do not fit into memory_bytes; reading it from the store instead", name, size)
        return one

    def _commit(self, manifest: _Object, sha256: str) -> None:
        """Keep the objects that the manifest names, if their hashes match; drop all others of this version and before."""
        parts: dict[str, str] = {}
        if manifest.is_what(sha256) and manifest.data is not None:
            parts = {part["name"]: part["sha-256"] for part in json.loads(manifest.data.tobytes())["parts"]}
            manifest.is_committed = True
            self.store.add(manifest.name, manifest.data)
        for one in [one for one in self._objects.values() if one.version <= manifest.version and not one.is_committed]:
            one.is_committed = one.name in parts and one.is_what(parts[one.name])
            if not one.is_committed:
                self.drop(one.name)
        self.store.announce(True)


class _Link:
    """The thread that sends or receives, and its state."""

    def __init__(self, group: Any, src: int, timeout: float, buffer_bytes: int) -> None:
        self._place = group if isinstance(group, Rendezvous) else None
        self._src, self._timeout = src, timeout
        self._stop, self._until = threading.Event(), float("inf")
        self.outbox = _Outbox(buffer_bytes)
        self.inbox: _Inbox | None = None
        self.error: Error | None = None
        self.is_live = False
        wire = None if self._place else Wire(group, None, src, timeout, self._check)
        self.rank = wire.rank if wire else group.rank
        self._thread = threading.Thread(target=self._run, args=(wire,), name="deltawire-group", daemon=True)

    def start(self) -> None:
        """Start the thread; `inbox` must be set before."""
        self._thread.start()

    def wait(self, is_done: Callable[[_Link], bool], timeout: float, words: str) -> None:
        """Wait until `is_done`; else raise."""
        end = time.monotonic() + timeout
        with self.outbox.changed:
            while not is_done(self) and self._thread.is_alive() and time.monotonic() < end:
                self.outbox.changed.wait(0.1)
            if not is_done(self):
                raise self.error or Unavailable(f"{words} within {timeout:g} s")

    def close(self) -> None:
        """May be called from any thread."""
        self._until = time.monotonic() + (self._timeout if self.inbox is None else 0)
        self._stop.set()
        with self.outbox.changed:
            self.outbox.changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _check(self) -> None:
        if self._stop.is_set() and time.monotonic() >= self._until:
            raise Cancelled("closed")

    def _run(self, wire: Wire | None) -> None:
        meeting = None if self._place is None else Meeting(self._place)
        while not self._stop.is_set():
            try:
                if meeting is not None:
                    gloo, nccl = meeting.form(self._timeout, self._check_waiting)
                    wire = Wire(gloo, nccl, self._src, self._timeout, self._check)
                assert wire is not None
                self._go(wire)
            except Error as error:
                self._say(error)
            except Exception as error:  # otherwise the error would be lost
                self._say(Unavailable(f"{type(error).__name__}: {error}"))
            if meeting is None:
                break
            self._stop.wait(_AGAIN_SECONDS)

    def _check_waiting(self) -> None:
        if self._stop.is_set():
            raise Cancelled("closed")

    def _go(self, wire: Wire) -> None:
        """Run until the group ends, which raises."""
        self._set_live(True)
        log.info("deltawire: rank %d of a group of %d ranks", wire.rank, wire.size)
        try:
            self._send(wire) if self.inbox is None else self._receive(wire, self.inbox)
        except Exception as error:  # any failure here ends the group on all ranks
            gone = wire.end()
            if isinstance(error, Cancelled):
                raise
            words = f"rank {', '.join(map(str, gone))}: " if gone and self.inbox is None else ""
            said = error.message if isinstance(error, Error) else first_line(error)
            raise Unavailable(f"the group of {wire.size} ranks has ended (rank {wire.rank}): {words}{said}") from None
        finally:
            self._set_live(False)

    def _set_live(self, is_live: bool) -> None:
        self.is_live = is_live
        if is_live:
            self.error = None
        self.outbox.open(is_live and self.inbox is None)
        if self.inbox is not None:
            self.inbox.store.announce(True) if is_live else self.inbox.end()

    def _send(self, wire: Wire) -> None:
        header = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
        pause = min(_ALIVE_SECONDS, self._timeout / 4)
        while True:
            piece = self.outbox.take(pause, self._stop.is_set)
            is_last = piece is None and self._stop.is_set()
            word, data = piece or ({"end": True} if is_last else {}, b"")
            header.numpy()[:] = np.frombuffer(json.dumps(word).encode().ljust(_HEADER_BYTES), np.uint8)
            wire.announce(header)
            if data:
                wire.broadcast(torch.frombuffer(data, dtype=torch.uint8))
            if is_last:
                return

    def _receive(self, wire: Wire, inbox: _Inbox) -> None:
        header = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
        while True:
            wire.announce(header)
            try:
                word = json.loads(header.numpy().tobytes())
            except ValueError:
                raise Corruption("malformed header") from None
            if "end" in word:
                raise Unavailable("the publisher has left the group")
            if "put" in word:
                inbox.receive(word, wire)
            elif "drop" in word:
                inbox.drop(word["drop"])

    def _say(self, error: Error) -> None:
        if self._stop.is_set():
            return
        if self.error is None or str(error) != str(self.error):
            log.warning("deltawire: %s", error)
        error.__traceback__ = error.__context__ = None  # the frames would keep the group and its port
        self.error = error
