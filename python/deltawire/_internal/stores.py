"""Where chains live: built-in stores, and stores written in Python."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Union

from deltawire import _core


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a store."""

    name: str
    size_bytes: int
    modified: float = 0.0
    """When it was put, in seconds since 1970 by the store's own clock. 0: not known; `Chain.gc` then needs `grace_seconds=0`."""


class Store(ABC):
    """Objects by name. Subclass it to keep chains anywhere; hand an instance to `Publisher`, `Replica` or `Chain`.

    Six methods, called from any thread, several at a time. Raise `NotFound` when an object is
    not there and `Unavailable` when trying again may help (so does Python's own `FileNotFoundError`, `ConnectionError`,
    `TimeoutError`). Names are relative paths of letters, digits and `._-/`.

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
    """Of racing writers of one name exactly one succeeds. Without it only a single writer is safe, and says so."""

    retries: ClassVar[int] = 6
    """How often a call that raised `Unavailable` is made again."""

    @property
    def url(self) -> str:
        """What messages call it; no secrets."""
        return type(self).__name__

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store an object, durably when this returns: whole or not at all."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> None:
        """The same, but `Conflict` when the name is taken."""

    @abstractmethod
    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """An object's bytes from `offset`, as slices are: fewer than `length` only at its end.

        Anything with bytes in a row will do, a `memoryview` too: it is read where it is.
        """

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo:
        """An object without its bytes."""

    @abstractmethod
    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[ObjectInfo]:
        """Objects whose name begins with `prefix` and sorts after `start_after`, in order; fewer than `limit` only at the end."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object; none is there afterwards, as none may have been before."""

    def __repr__(self) -> str:
        return f'<{type(self).__name__} "{self.url}">'


class _BuiltinStore(Store):
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


def built_in(handle: _core.Store) -> Store:
    """A store of the library as people see it."""
    return _BuiltinStore(handle)


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
    secret_file: str = "",
    behind: str = "",
    retries: int = 6,
    max_bytes_per_second: int = 0,
) -> Store:
    """Open a built-in store: a path, `file:///PATH`, `s3://BUCKET/PREFIX`, `ship://HOST:PORT` or `memory:NAME`.

    `memory:` is shared inside the process. `ship://` is a publisher that ships (`deltawire.ship`): `secret_file` holds its
    secret, `behind` is a store with the same chain. `endpoint` to `call_timeout_seconds` are for S3 alone; credentials come from
    the environment, as AWS's tools have it.

    >>> import deltawire as dw
    >>> store = dw.open_store("memory:shelf")
    >>> store.put("a/b", b"some bytes")
    >>> store.get("a/b", 5)
    b'bytes'
    >>> [info.name for info in store.list("a/")]
    ['a/b']
    """
    return _BuiltinStore(
        _core.open_store(
            _lasting(os.fspath(url)),
            endpoint=endpoint,
            region=region,
            virtual_host=virtual_host,
            ca_file=ca_file,
            connections=connections,
            multipart_bytes=multipart_bytes,
            call_timeout_seconds=call_timeout_seconds,
            secret_file=secret_file,
            behind=_lasting(behind),
            retries=retries,
            max_bytes_per_second=max_bytes_per_second,
        )
    )


def _lasting(url: str) -> str:
    """A path that stays what it is when the process goes to another folder."""
    return url if "://" in url or url.startswith("memory:") or not url else os.path.abspath(url)


def store_handle(store: StoreLike) -> _core.Store:
    """The library's view of a store."""
    if not isinstance(store, Store):
        store = open_store(store)
    return store.handle if isinstance(store, _BuiltinStore) else _core.adapt_store(store)
