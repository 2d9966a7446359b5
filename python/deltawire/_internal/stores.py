"""Where chains live: built-in stores, and stores written in Python."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Union

from deltawire import _core
from deltawire._internal.steps import Closing


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a store."""

    name: str
    size_bytes: int
    modified: float = 0.0
    """Unix seconds by the store's clock; 0: unknown, and `Chain.gc` needs `grace_seconds=0`."""


class Store(ABC):
    """Named objects. Subclass it to keep chains anywhere.

    Methods are called from any thread, concurrently. Raise `NotFound` or `FileNotFoundError` for a missing object;
    `Unavailable`, `ConnectionError` or `TimeoutError` if a retry may help. Names are paths of letters, digits and `._-/`.

    >>> import threading, numpy as np, deltawire as dw
    >>> class DictStore(dw.Store):
    ...     def __init__(self):
    ...         self.objects, self.lock = {}, threading.Lock()
    ...     def put(self, name, data):
    ...         self.objects[name] = data
    ...     def put_if_absent(self, name, data):
    ...         with self.lock:
    ...             if name in self.objects:
    ...                 raise dw.Conflict(f"{name} is there")
    ...             self.objects[name] = data
    ...     def get(self, name, offset=0, length=None):
    ...         if name not in self.objects:
    ...             raise dw.NotFound(name)
    ...         end = None if length is None else offset + length
    ...         return self.objects[name][offset:end]
    ...     def stat(self, name):
    ...         return dw.ObjectInfo(name, len(self.get(name)))
    ...     def list(self, prefix="", start_after="", limit=1000):
    ...         names = sorted(n for n in self.objects if n.startswith(prefix) and n > start_after)
    ...         return [self.stat(name) for name in names[:limit]]
    ...     def remove(self, name):
    ...         self.objects.pop(name, None)
    >>> store = DictStore()
    >>> dw.Publisher(store, {"w": np.arange(4)}).publish()
    PublishReport(number=0, full, 128 B, "seed")
    >>> dw.Chain(store).head
    0
    """

    can_put_if_absent: ClassVar[bool] = True
    """Of concurrent writers of a name one succeeds. If False, only one writer is safe."""

    retries: ClassVar[int] = 6
    """After `Unavailable`."""

    @property
    def url(self) -> str:
        """Name for messages, without secrets."""
        return type(self).__name__

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store an object atomically and durably."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> None:
        """The same, or `Conflict` if the name exists."""

    @abstractmethod
    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes from `offset`, or any contiguous buffer; fewer than `length` only at the end."""

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo:
        """Size and time of an object."""

    @abstractmethod
    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[ObjectInfo]:
        """Sorted objects with this prefix, after `start_after`; fewer than `limit` only at the end."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""

    def __repr__(self) -> str:
        return f'<{type(self).__name__} "{self.url}">'


class BuiltinStore(Store):
    """A store of the library."""

    def __init__(self, handle: _core.Store) -> None:
        self.handle = handle

    @property
    def url(self) -> str:
        return self.handle.url

    def put(self, name: str, data: bytes) -> None:
        self.handle.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> None:
        self.handle.put_if_absent(name, data)

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.handle.get(name, offset, length)

    def stat(self, name: str) -> ObjectInfo:
        return ObjectInfo(*self.handle.stat(name))

    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[ObjectInfo]:
        return [ObjectInfo(*info) for info in self.handle.list(prefix, start_after, limit)]

    def remove(self, name: str) -> None:
        self.handle.remove(name)

    def __repr__(self) -> str:
        return f'<Store "{self.url}">'


StoreLike = Union[str, "os.PathLike[str]", Store]
"""A path, a URL or a `Store`."""


def open_store(
    url: str | os.PathLike[str],
    *,
    endpoint: str = "",
    region: str = "",
    virtual_host: bool = False,
    ca_file: str = "",
    connections: int = 16,
    multipart_bytes: int = 16 << 20,
    call_timeout_seconds: float = 60,
    token: str = "",
    token_file: str = "",
    client_cert: str = "",
    retries: int = 6,
    max_bytes_per_second: int = 0,
) -> Store:
    """Open a path, `file:///PATH`, `s3://BUCKET/PREFIX`, `http(s)://HOST:PORT` (`serve`; several with commas) or `memory:NAME`.

    `memory:` is shared within the process. `token` or `token_file`: bearer token. `client_cert`: certificate and key.
    `endpoint`, `region` and `virtual_host` are for S3; credentials come from AWS's environment variables.

    >>> import deltawire as dw
    >>> store = dw.open_store("memory:shelf")
    >>> store.put("a/b", b"some bytes")
    >>> store.get("a/b", 5)
    b'bytes'
    >>> [info.name for info in store.list("a/")]
    ['a/b']
    """
    return BuiltinStore(
        _core.open_store(
            _lasting(os.fspath(url)),
            endpoint=endpoint,
            region=region,
            virtual_host=virtual_host,
            ca_file=ca_file,
            connections=connections,
            multipart_bytes=multipart_bytes,
            call_timeout_seconds=call_timeout_seconds,
            token=token,
            token_file=token_file,
            client_cert=client_cert,
            retries=retries,
            max_bytes_per_second=max_bytes_per_second,
        )
    )


class Server(Closing):
    """A chain that is served over HTTP. Made by `serve()`."""

    def __init__(self, core: _core.ChainServer, arena: Closing | None = None) -> None:
        self._core, self._arena = core, arena

    @property
    def url(self) -> str:
        """What readers open: "http://HOST:PORT"."""
        return self._core.url

    def close(self) -> None:
        """Finish current requests, then stop."""
        self._core.close()
        if self._arena is not None:
            self._arena.close()


def serve(
    store: StoreLike,
    address: str = "127.0.0.1:0",
    *,
    token: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    client_ca: str = "",
    nixl_bytes: int = 0,
    page: bool = False,
) -> Server:
    """Serve a chain over HTTP from this process. Pass its `url` to readers.

    Beyond loopback it needs a `token` (bearer), or client certificates of `client_ca`. `nixl_bytes`: memory for
    `deltawire.nixl.NixlStore`, which readers can also write. `page`: the page, API and `/metrics` of `deltawire serve`.

    >>> import numpy as np, deltawire as dw
    >>> publisher = dw.Publisher("memory:served", {"w": np.zeros(1000, np.float32)})
    >>> seed = publisher.publish()
    >>> with dw.serve("memory:served") as server:                           # the trainer
    ...     mine = {"w": np.empty(1000, np.float32)}
    ...     with dw.TensorReplica(server.url, mine) as replica:             # a replica, in any process
    ...         version = replica.pull().version
    >>> version
    0
    """
    handle, arena = store_handle(store), None
    if nixl_bytes:
        from deltawire.nixl import PREFIX, Arena

        arena = Arena(nixl_bytes, address)
        handle = _core.hook_store(handle, prefix=PREFIX, get=arena.where)
    return Server(_core.ChainServer(handle, address, token, tls_cert, tls_key, client_ca, page=page), arena)


def _lasting(url: str) -> str:
    """An absolute path, independent of the working directory; URLs, also wrong ones, as they are."""
    is_url = "://" in url or re.match(r"(s3|https?|file|memory):|[^/]+:\d+$", url)
    return url if is_url or not url else os.path.abspath(url)


def store_handle(store: StoreLike) -> _core.Store:
    """The store as the extension uses it."""
    if not isinstance(store, Store):
        store = open_store(store)
    return store.handle if isinstance(store, BuiltinStore) else _core.adapt_store(store)
