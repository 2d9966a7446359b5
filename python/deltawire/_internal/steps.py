"""Base classes of context managers and of objects that move versions one by one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from deltawire import _core

Step = TypeVar("Step")


class Closing(ABC):
    """Closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Steps(Closing, Generic[Step]):
    """Moves versions one by one, in order, from one place to another."""

    _core: Any

    @abstractmethod
    def next(self) -> Step | None:
        """Move the next version; None: none yet, or `last` was moved."""

    def __iter__(self) -> Iterator[Step]:
        """All versions that exist now."""
        return iter(self.next, None)

    def follow(self, *, interval: float = 1.0, timeout: float | None = None) -> Iterator[Step]:
        """Move new versions as they come, until `last`, or `timeout` seconds without one."""
        last_new = time.monotonic()
        while not _core.is_ending():
            moved = self.next()
            if moved is not None:
                yield moved
                last_new = time.monotonic()
            elif self.done or (timeout is not None and time.monotonic() - last_new >= timeout):
                return
            else:
                time.sleep(interval if timeout is None else min(interval, timeout))

    @property
    def done(self) -> bool:
        """`last` was moved."""
        return bool(self._core.done)

    @property
    def run(self) -> str:
        """The run's id."""
        return str(self._core.run)

    def close(self) -> None:
        """Close stores and work folder."""
        self._core.close()
