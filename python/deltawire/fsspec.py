"""Stores on anything that fsspec reaches: GCS, Azure, Hugging Face, SFTP, ...

fsspec has no way to write an object only if nobody else has: `FsspecStore` says so, and publishers then insist on
`PublishOptions(single_writer=True)`, with which you promise that there is no other.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from deltawire._internal.stores import ObjectInfo, Store
from deltawire.errors import Conflict, NotFound, missing_extra

try:
    from fsspec.core import url_to_fs
except ImportError as error:
    raise missing_extra(error, "fsspec") from None

# Where a write can be seen half-done, and a rename cannot.
_FILE_SYSTEMS = {"file", "local", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "webhdfs"}


class FsspecStore(Store):
    """A chain anywhere: `FsspecStore("gs://bucket/run", token=...)`. Options go to fsspec's filesystem.

    >>> import numpy as np, deltawire as dw
    >>> from deltawire.fsspec import FsspecStore
    >>> store = FsspecStore("memory://bucket/run")
    >>> dw.Publisher(store, {"w": np.arange(4)}).publish()
    Traceback (most recent call last):
        ...
    deltawire.errors.Unsupported: unsupported: memory://bucket/run: ...
    >>> dw.Publisher(store, {"w": np.arange(4)}, options=dw.PublishOptions(single_writer=True)).publish()
    PublishReport(number=0, full, 128 B, "seed")
    """

    can_put_if_absent = False

    def __init__(self, url: str, **options: Any) -> None:
        self.fs, self.root = url_to_fs(url, use_listings_cache=False, **options)
        self._url = url.rstrip("/")
        protocols = {self.fs.protocol} if isinstance(self.fs.protocol, str) else set(self.fs.protocol)
        self._has_files = not protocols.isdisjoint(_FILE_SYSTEMS)

    @property
    def url(self) -> str:
        return self._url

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def put(self, name: str, data: bytes) -> None:
        """Whole or not at all: object stores see to that themselves, files appear by rename."""
        if self._has_files:
            self._put_by_rename(name, iter((data,)))
            return
        path = self._path(name)
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(path, data)

    def put_stream(self, name: str, size_bytes: int, pieces: Iterator[bytes]) -> None:
        """Under another name first: fsspec's files appear when they are closed, also by an exception, with what they have."""
        self._put_by_rename(name, pieces)

    def _put_by_rename(self, name: str, pieces: Iterator[bytes]) -> None:
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        self.fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{last}.{uuid.uuid4().hex}.tmp"
        try:
            with self.fs.open(temporary, "wb") as file:
                for piece in pieces:
                    file.write(piece)
            self.fs.mv(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self.fs.rm_file(temporary)
            raise

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Looks, then writes: enough for one writer that comes back after a crash, not for two that race."""
        if self.fs.exists(self._path(name)):
            raise Conflict(f"{self.url}/{name}: is there")
        self.put(name, data)

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else offset + length
        return bytes(self.fs.cat_file(self._path(name), start=offset, end=end))

    def stat(self, name: str) -> ObjectInfo:
        info = self.fs.info(self._path(name))
        if info["type"] != "file":
            raise NotFound(f"{self.url}/{name}: no object")
        return self._info(name, info)

    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[ObjectInfo]:
        # Folders are the unit of listing: everything in the one that the prefix reaches into.
        folder, start = self._path(prefix).rpartition("/")[0], len(self.root.rstrip("/")) + 1
        with contextlib.suppress(FileNotFoundError):
            found = self.fs.find(folder, detail=True)
            infos = [self._info(path[start:], info) for path, info in found.items() if "/." not in path[start - 1 :]]
            wanted = [info for info in infos if info.name.startswith(prefix) and info.name > start_after]
            return sorted(wanted, key=lambda info: info.name)[:limit]
        return []

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self._path(name))

    @staticmethod
    def _info(name: str, info: dict[str, Any]) -> ObjectInfo:
        modified = info.get("mtime") or info.get("created") or info.get("last_modified") or 0
        if isinstance(modified, datetime):
            modified = modified.timestamp()
        return ObjectInfo(name, int(info["size"]), float(modified) if isinstance(modified, int | float) else 0.0)
