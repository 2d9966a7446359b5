"""The receiving side, in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from deltawire import _core
from deltawire.choice import Choice
from deltawire.errors import InvalidArgument
from deltawire.explain import explained
from deltawire.live import live_tensors
from deltawire.options import Accept, Cuda, Limits, Select
from deltawire.progress import Progress, callback_of
from deltawire.pulling import Pulling
from deltawire.reports import Pull
from deltawire.stores import StoreLike, store_handle
from deltawire.tensors import Source, writable


class TensorReplica(Pulling[_core.TensorReplica]):
    """Keeps arrays at a version of a chain, in place: a serving process without files.

    The arrays may hold anything at first. They are read at any time, and written during `commit()` alone; an array whose
    elements are apart, or which cannot be written, is refused. What is there after `commit()` is proven by digest; a part in the
    store that is damaged or missing is skipped if another path leads to the version.

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

    @explained
    def __init__(
        self,
        store: StoreLike,
        tensors: Source,
        *,
        select: Select | None = None,
        accept: Accept | None = None,
        limits: Limits | None = None,
        cuda: Cuda | None = None,
        repair: bool = True,
        verify_all: bool = False,
        check_commit: bool = True,
        heartbeat: bool = True,
        name: str = "",
        scratch: str | os.PathLike[str] = "",
        progress: Progress = False,
    ) -> None:
        """Watch over `tensors`: all of the model, arrays or a torch module; `select` chooses among them and renames them.

        `check_commit` proves what `commit` has patched, in the pause: on a GPU from what is written, as far as that tells, else
        (and with `verify_all`) by another look. What differs waits for `commit` in half of the memory that `limits` allows, the
        rest in a file. Parts and such files lie in the folder `scratch`, on a disk (default: the system's).

        Arrays may be boxes of tensors: `Tensor(array, shape=..., offset=...)`, or the shards of a model's `DTensor`s. They are
        proven like whole tensors, of which copies are kept in `scratch` for it: the model's size on disk. Each process of a
        sharded model has a replica of its own; docs/trainers.md shows how they go to a version together.

        The rest is as in `Replica`.
        """
        live = live_tensors(tensors, Choice(select or Select()))
        gpu = cuda or Cuda()
        writable(live.pairs)  # says what cannot be patched, even if there is no run yet
        handle, self._live = store_handle(store), live
        super().__init__(
            handle,
            lambda: _core.TensorReplica(
                handle,
                writable(live.pairs),
                accept=accept or Accept(),
                limits=limits or Limits(),
                cuda=replace(gpu, stream=gpu.stream or live.cuda_stream),
                repair=repair,
                verify_all=verify_all,
                check_commit=check_commit,
                heartbeat=heartbeat,
                name=name,
                scratch=os.fspath(scratch),
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

    def prepare(self, version: int | None = None) -> Pull:
        """Fetch, decode and check everything; the arrays are read, not written, and an engine may go on serving them.

        Tensors of torch that lie elsewhere by now (`model.to`, `p.data = ...`) are looked at anew.
        """
        self._follow_moves()
        return super().prepare(version)

    def commit(self) -> Pull:
        """Write what `prepare` left: the only part that needs a pause."""
        moved = self._live.moved()
        if moved is not None:
            raise InvalidArgument(f'tensor "{moved}": lies elsewhere in memory since prepare(), which has to be done again')
        return self._noted(super().commit)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> Pull:
        self._follow_moves()
        return self._noted(lambda: super(TensorReplica, self)._pull(version, until, head))

    def _follow_moves(self) -> None:
        if self._live.moved() is None:
            return
        self._live.look_again()
        if self._core is not None:
            self._core.close()
            self._core = None

    def _noted(self, write: Callable[[], Pull]) -> Pull:
        try:
            pulled = write()
        except BaseException:
            self._live.written()  # by a part of it, perhaps
            raise
        if pulled.changed:
            self._live.written()
        return pulled
