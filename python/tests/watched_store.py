"""A store that tests can observe during use."""

from collections.abc import Callable, Sequence
from pathlib import Path

import deltawire as dw


class Watched(dw.Store):
    """A folder; `before` and `after` are called around every put."""

    def __init__(self, folder: Path) -> None:
        self.inner = dw.open_store(str(folder))
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None

    def put(self, name: str, data: bytes) -> None:
        self.before(name)
        self.inner.put(name, data)
        self.after(name)

    def put_if_absent(self, name: str, data: bytes) -> None:
        self.before(name)
        self.inner.put_if_absent(name, data)
        self.after(name)

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.inner.get(name, offset, length)

    def stat(self, name: str) -> dw.ObjectInfo:
        return self.inner.stat(name)

    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[dw.ObjectInfo]:
        return self.inner.list(prefix, start_after, limit)

    def remove(self, name: str) -> None:
        self.inner.remove(name)
