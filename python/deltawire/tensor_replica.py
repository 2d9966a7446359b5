"""The receiving side, in memory."""

from __future__ import annotations

import os
from collections.abc import Callable

from deltawire import _core
from deltawire.choice import Choice, Names, Rename
from deltawire.live import live_tensors
from deltawire.progress import Progress, callback_of
from deltawire.pulling import Pulling
from deltawire.reports import Pull
from deltawire.stores import StoreLike, store_handle
from deltawire.tensors import Source, writable


class TensorReplica(Pulling[_core.TensorReplica]):
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
        include: Names | None = None,
        exclude: Names | None = None,
        rename: Rename | None = None,
        threads: int = 0,
        repair: bool = True,
        verify_all: bool = False,
        check_commit: bool = True,
        heartbeat: bool = True,
        name: str = "",
        scratch: str | os.PathLike[str] = "",
        trust_key: str | os.PathLike[str] = "",
        run: str = "",
        at_least: int = 0,
        cuda_stream: int = 0,
        cuda_scratch_bytes: int = 256 << 20,
        progress: Progress = False,
    ) -> None:
        """Watch over `tensors`: all of the model, arrays or a torch module, less what `include` and `exclude` leave out.

        `rename` gives the names in the chain for those that they have here.
        `check_commit` hashes what `commit` has patched, in the pause. Parts lie in the folder `scratch` while they are worked
        on (default: the system's). Work on tensors in a GPU's memory goes to `cuda_stream` (a `cudaStream_t` as a number: torch's
        `stream.cuda_stream`), and may take `cuda_scratch_bytes` there. The rest is as in `Replica`.
        """
        live = live_tensors(tensors, Choice(include, exclude, rename))
        handle, arrays, self._live = store_handle(store), writable(live.pairs), live
        super().__init__(
            handle,
            lambda: _core.TensorReplica(
                handle,
                arrays,
                threads=threads,
                repair=repair,
                verify_all=verify_all,
                check_commit=check_commit,
                heartbeat=heartbeat,
                name=name,
                scratch=os.fspath(scratch),
                trust_key=os.fspath(trust_key),
                run=run,
                at_least=at_least,
                cuda_stream=cuda_stream or live.cuda_stream,
                cuda_scratch_bytes=cuda_scratch_bytes,
                progress=callback_of(progress, "pull"),
            ),
        )

    def __repr__(self) -> str:
        return f'TensorReplica("{self._store.url}")'

    @property
    def version(self) -> int | None:
        """What the arrays hold, proven by digest; None: not known."""
        core = self._try_open()
        return None if core is None else core.version

    def commit(self) -> Pull:
        """Write what `prepare` left: the only part that needs a pause."""
        return self._noted(super().commit)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> Pull:
        return self._noted(lambda: super(TensorReplica, self)._pull(version, until, head))

    def _noted(self, write: Callable[[], Pull]) -> Pull:
        try:
            pulled = write()
        except BaseException:
            self._live.written()  # by a part of it, perhaps
            raise
        if pulled.changed:
            self._live.written()
        return pulled
