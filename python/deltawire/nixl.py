"""Reads objects from the memory of a server with NIXL: one-sided reads over RDMA, shared memory or TCP.

The trainer serves with `deltawire.serve(store, address, nixl_bytes=...)`. `NixlStore` is an `http://` store that reads parts and
whole versions through NIXL; notifications, manifests and anything NIXL cannot transfer use HTTP (docs/transports.md).
"""

from __future__ import annotations

import base64
import json
import logging
import mmap
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from deltawire import _core
from deltawire._internal.steps import Closing
from deltawire._internal.stores import BuiltinStore, open_store, store_handle
from deltawire.errors import Corruption, InvalidArgument, NotFound, Unavailable, missing_extra

log = logging.getLogger("deltawire")

PREFIX = "nixl/"  # the server's object "nixl/NAME" describes where NAME is in memory
_PLACE_BYTES = 1 << 20  # maximum size of such a description
_IMMUTABLE = ("parts/", "full/", "schemas/", "files/")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LEAST_BYTES = 64 << 10  # smaller objects are faster over HTTP
_PIECE_BYTES, _PIECES = 16 << 20, 4  # buffers of a reader
_POLL_MICROSECONDS = 10_000  # of NIXL's progress thread, without events
_READ_SECONDS = 10.0  # timeout of a piece
_PAUSE_SECONDS = 30.0  # of using HTTP only, after a failed read
_MOST_SEEN = 10_000


class _Memory(Closing):
    """Memory of this process, registered with its own NIXL agent. Thread-safe.

    UCX does not authenticate. It listens on all networks or on UCX_NET_DEVICES; only on loopback if all `urls` are loopback.
    """

    def __init__(self, size_bytes: int, urls: str) -> None:
        try:
            from nixl._api import nixl_agent, nixl_agent_config
            from nixl._bindings import NIXL_THREAD_SYNC_STRICT, nixlAgent, nixlAgentConfig
        except ImportError as error:
            raise missing_extra(error, "nixl") from error
        if "NIXL_LOG_LEVEL" not in os.environ:  # it logs every agent to stdout
            logging.getLogger("nixl").setLevel(logging.WARNING)
        name, config = uuid.uuid4().hex, nixlAgentConfig()
        config.useProgThread, config.pthrDelay, config.syncMode = True, _POLL_MICROSECONDS, NIXL_THREAD_SYNC_STRICT
        self.agent: Any = nixl_agent(name, nixl_agent_config(backends=[], enable_prog_thread=False))
        self.agent.agent = nixlAgent(name, config)  # the one of `nixl_agent` busy-polls on a core
        is_local = all(urlsplit(url).hostname in _LOOPBACK for url in urls.split(","))
        self.agent.create_backend("UCX", {"engine_config": "NET_DEVICES=lo"} if is_local else {})
        self.bytes = np.frombuffer(mmap.mmap(-1, size_bytes), np.uint8)
        self._registered: Any = self.agent.register_memory([(*self.at(0, size_bytes), "")], "DRAM")

    def at(self, offset: int, size_bytes: int) -> tuple[int, int, int]:
        """A range of it, as NIXL describes host memory."""
        return self.bytes.ctypes.data + offset, size_bytes, 0

    def close(self) -> None:
        """Deregister the memory; it must not be in use."""
        if self._registered is not None:
            self.agent.deregister_memory(self._registered)
            self.agent = self._registered = None


class Arena(_Memory):
    """Memory of a server that readers can access: a ring buffer of copies of requested objects.

    They are copies because a peer that can read this memory can also write it.
    """

    def __init__(self, size_bytes: int, address: str) -> None:
        super().__init__(size_bytes, f"//{address}")
        self._next, self._lock = 0, threading.Lock()
        self._held: dict[str, range] = {}
        self._agent = base64.b64encode(self.agent.get_agent_metadata()).decode()

    def where(self, store: _core.Store, name: str) -> str:
        """Where an object is in memory, as JSON. `NotFound`: it is only available over HTTP."""
        with self._lock:
            if name not in self._held:
                self._load(store, name)
            held = self._held[name]
        return json.dumps({"agent": self._agent, "address": self.at(held.start, 0)[0], "size": len(held)})

    def _load(self, store: _core.Store, name: str) -> None:
        size = store.stat(name)[1]
        if not name.startswith(_IMMUTABLE) or size > self.bytes.size:
            raise NotFound(f"{name}: cannot be read with NIXL: it may change, or is larger than nixl_bytes={self.bytes.size}")
        begin = self._next if self._next + size <= self.bytes.size else 0
        place = range(begin, begin + size)
        for other in [other for other, held in self._held.items() if held.start < place.stop and place.start < held.stop]:
            del self._held[other]
        store.read_into(name, self.bytes[place.start : place.stop])
        self._held[name], self._next = place, place.stop


class _Reader(_Memory):
    """Reads objects piece by piece into memory that is registered once."""

    def __init__(self, url: str) -> None:
        super().__init__(_PIECES * _PIECE_BYTES, url)
        self._lock = threading.Lock()
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._num_lost = 0  # buffers
        for piece in range(_PIECES):
            self._free.put(piece * _PIECE_BYTES)
        self._peers: dict[str, str] = {}
        self._seen: set[str] = set()
        self._said: set[type[Exception]] = set()
        self._paused_until, self._failed = 0.0, False
        self.bytes_read = 0

    def pieces(self, store: _core.Store, name: str, size_bytes: int) -> Iterator[NDArray[np.uint8]]:
        """The object's bytes, in order; fewer if NIXL cannot read them.

        They are not verified: the caller checks the object's hash. If the bytes were overwritten during the read, the caller asks
        again and gets the object over HTTP.
        """
        if size_bytes < _LEAST_BYTES or self._num_lost == _PIECES or time.monotonic() < self._paused_until:
            return
        try:
            place = json.loads(store.get_text(PREFIX + name, _PLACE_BYTES))
            if place["size"] != size_bytes:
                raise Corruption(f"{name}: expected {size_bytes} bytes, the server has {place['size']}")
            self._note_read(name)
            peer = self._peer(place["agent"])
            for at in range(0, size_bytes, _PIECE_BYTES):
                with self._piece(peer, place["address"] + at, min(_PIECE_BYTES, size_bytes - at)) as piece:
                    yield piece
            self._said &= {NotFound}
        except (NotFound, Corruption) as error:  # concerns only this object
            self._say(error)
        except Exception as error:  # NIXL exceptions have no common base class
            self._say(error)
            self._failed, self._paused_until = True, time.monotonic() + _PAUSE_SECONDS

    def _say(self, error: Exception) -> None:
        if type(error) not in self._said:
            self._said.add(type(error))
            log.warning("nixl: %s; using HTTP instead", str(error) or type(error).__name__)

    def _note_read(self, name: str) -> None:
        with self._lock:
            if name in self._seen:
                raise Corruption(f"{name}: requested again: the first copy may have been overwritten")
            if len(self._seen) == _MOST_SEEN:
                self._seen.clear()
            self._seen.add(name)

    @contextmanager
    def _piece(self, peer: str, address: int, size_bytes: int) -> Iterator[NDArray[np.uint8]]:
        """A buffer with bytes of the peer, until the block ends."""
        try:
            offset = self._free.get(timeout=_READ_SECONDS)
        except queue.Empty:
            raise Unavailable("all NIXL buffers of this reader are in use") from None
        try:
            self._read(peer, address, offset, size_bytes)
            yield self.bytes[offset : offset + size_bytes]
        except TimeoutError:  # the bytes may still arrive: never use this buffer again
            with self._lock:
                self._num_lost += 1
            raise
        except BaseException:
            self._free.put(offset)
            raise
        self._free.put(offset)

    def _read(self, peer: str, address: int, offset: int, size_bytes: int) -> None:
        here = self.agent.get_xfer_descs([self.at(offset, size_bytes)], "DRAM")
        there = self.agent.get_xfer_descs([(address, size_bytes, 0)], "DRAM")
        transfer = self.agent.initialize_xfer("READ", here, there, peer)
        state, end = self.agent.transfer(transfer), time.monotonic() + _READ_SECONDS
        while state == "PROC":
            if time.monotonic() > end:
                raise TimeoutError(f"{size_bytes} bytes did not arrive within {_READ_SECONDS:.0f} seconds")
            time.sleep(1e-4)
            state = self.agent.check_xfer_state(transfer)
        self.agent.release_xfer_handle(transfer)
        if state != "DONE":
            raise Unavailable(f"the read ended in state {state}")
        with self._lock:
            self.bytes_read += size_bytes

    def _peer(self, agent: str) -> str:
        """NIXL's name of a server's agent."""
        with self._lock:
            if self._failed:  # old connections would fail again; they are unused after the pause
                for old in self._peers.values():
                    self.agent.remove_remote_agent(old)
                self._peers, self._failed = {}, False
            if agent not in self._peers:
                self._peers[agent] = self.agent.add_remote_agent(base64.b64decode(agent))
            return self._peers[agent]


class NixlStore(BuiltinStore):
    """A chain at `http(s)://`, read directly from the server's memory. What NIXL cannot transfer comes over HTTP. Arguments as in
    `open_store`.
    """

    def __init__(self, url: str, *, token: str = "", token_file: str = "", client_cert: str = "", ca_file: str = "") -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"{url}: NIXL needs a chain served at http:// or https://")
        handle = store_handle(open_store(url, token=token, token_file=token_file, client_cert=client_cert, ca_file=ca_file))
        self._reader: _Reader | None = None
        try:
            self._reader = _Reader(url)
            handle = _core.hook_store(handle, pieces=self._reader.pieces)
        except ImportError:
            raise
        except Exception as error:
            log.warning("nixl: cannot create an agent: %s; using HTTP instead", error)
        super().__init__(handle)

    @property
    def bytes_read(self) -> int:
        """Bytes read through NIXL."""
        return self._reader.bytes_read if self._reader else 0
