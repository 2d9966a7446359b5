"""The receiving side, in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

from deltawire import _core
from deltawire.following import follow
from deltawire.progress import Progress, callback_of
from deltawire.reports import Pull
from deltawire.stores import StoreLike, store_handle
from deltawire.tensors import Source, writable


class TensorReplica:
    """Keeps arrays at a version of a chain, in place: a serving process without files.

    The arrays may hold anything at first. They are read at any time, and written during `commit()` alone; an array whose
    elements are apart, or which cannot be written, is refused.

    >>> import numpy as np, deltawire as dw
    >>> version = dw.Publisher("memory:tensor-replica", {"w": np.arange(4.0)}).publish()
    >>> mine = {"w": np.zeros(4)}
    >>> replica = dw.TensorReplica("memory:tensor-replica", mine)
    >>> prepared = replica.prepare()        # fetched, decoded, checked
    >>> mine["w"].sum()
    np.float64(0.0)
    >>> done = replica.commit()             # written, and proven
    >>> mine["w"].sum(), replica.version
    (np.float64(6.0), 0)
    """

    def __init__(
        self,
        store: StoreLike,
        tensors: Source,
        *,
        threads: int = 0,
        repair: bool = True,
        verify_all: bool = False,
        check_commit: bool = True,
        heartbeat: bool = True,
        name: str = "",
        scratch: str | os.PathLike[str] = "",
        trust_key: str | os.PathLike[str] = "",
        progress: Progress = False,
    ) -> None:
        """Watch over `tensors`: all of the model.

        `check_commit` hashes what `commit` has patched, in the pause. Parts lie in the folder `scratch` while they are worked
        on (default: the system's). The rest is as in `Replica`.
        """
        self._store = store_handle(store)
        self._tensors = writable(tensors)
        self._core = _core.TensorReplica(
            self._store,
            self._tensors,
            threads=threads,
            repair=repair,
            verify_all=verify_all,
            check_commit=check_commit,
            heartbeat=heartbeat,
            name=name,
            scratch=os.fspath(scratch),
            trust_key=os.fspath(trust_key),
            progress=callback_of(progress, "pull"),
        )

    @property
    def version(self) -> int | None:
        """What the arrays hold, proven by digest; None: not known."""
        return self._core.version

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was published yet."""
        return self._core.head()

    def pull(self, version: int | None = None) -> Pull:
        """Go to a version (None: the newest). `prepare` and `commit` in one."""
        return Pull.of(self._core.pull(version))

    def prepare(self, version: int | None = None) -> Pull:
        """Fetch, decode and check everything; the arrays are read, not written."""
        return Pull.of(self._core.prepare(version))

    def commit(self) -> Pull:
        """Write what `prepare` left. Until it has succeeded `version` is None."""
        return Pull.of(self._core.commit())

    def follow(self, *, interval: float = 5, until: int | None = None, timeout: float | None = None) -> Iterator[Pull]:
        """As `Replica.follow`."""
        return follow(self._store, self._core.head, self.pull, interval, until, timeout)

    def close(self) -> None:
        """Let go of the arrays. A second time does nothing."""
        self._core.close()
        self._tensors = []

    def __enter__(self) -> TensorReplica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
