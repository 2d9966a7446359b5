"""Replicas: in files, and in memory."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from deltawire import _core
from deltawire._internal.identity import Identity
from deltawire._internal.options import Accept, CopyOnWrite, Cuda, Limits, Select, explained
from deltawire._internal.output import Progress, callback_of
from deltawire._internal.reader import Choice
from deltawire._internal.steps import Closing
from deltawire._internal.stores import StoreLike, store_handle
from deltawire._internal.tensors import Source, writable
from deltawire.errors import BaseMismatch, Conflict, Error, InternalError, InvalidArgument, NotFound, Unsupported
from deltawire.reports import PullReport, ReplicaState

log = logging.getLogger("deltawire")

# Errors that `follow` does not retry.
_FINAL = (InvalidArgument, Unsupported, Conflict, BaseMismatch, InternalError)


Core = TypeVar("Core", _core.Replica, _core.TensorReplica)


class Pulling(Closing, Generic[Core]):
    """A replica that may be created before its run exists, and opens when it does."""

    def __init__(self, store: _core.Store, open_core: Callable[[], Core]) -> None:
        self._store = store
        self._open_core: Callable[[], Core] = open_core
        self._core: Core | None = None
        self._closed = False
        self._try_open()

    def _try_open(self) -> Core | None:
        try:
            return self._opened()
        except NotFound:
            return None

    def _opened(self) -> Core:
        if self._closed:
            raise InvalidArgument("the replica is closed")
        if self._core is None:
            self._core = self._open_core()
        return self._core

    @property
    def version(self) -> int | None:
        """The version that it holds; None: none yet, or unknown."""
        raise NotImplementedError

    @property
    def head(self) -> int | None:
        """The newest version; None: none yet."""
        core = self._try_open()
        return None if core is None else core.head()

    def pull(self, version: int | None = None) -> PullReport:
        """`prepare` and `commit` a version, older or newer; default: the newest, and never back.

        If the store lost versions (`NotFound`) or was rewritten (`Corruption`), the replica keeps what it holds.
        """
        return self._pull(version)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> PullReport:
        return PullReport.of(self._opened().pull(version, until, head))

    def prepare(self, version: int | None = None) -> PullReport:
        """Fetch, decode and check. The weights stay unchanged while an engine serves."""
        return PullReport.of(self._opened().prepare(version))

    def prepare_ahead(self) -> int:
        """Decode parts that arrived early, as `follow` does; returns the number of tensors."""
        return 0 if self._core is None or self._closed else self._core.prepare_ahead()

    def commit(self) -> PullReport:
        """Write what `prepare` decoded: the only step that needs a pause."""
        return PullReport.of(self._opened().commit())

    def follow(self, *, interval: float = 5, until: int | None = None, timeout: float | None = None) -> Iterator[PullReport]:
        """Pull each new version, and yield its report.

        Stores that do not notify are asked every `interval` seconds. Outages and missing runs or versions are logged (logger
        "deltawire") and retried. Stops once it holds version `until`, or after `timeout` seconds without a new version.
        """
        watch = _core.Watch(self._store)
        failures, last_new = 0, time.monotonic()
        while not _core.is_ending():
            try:
                pulled, wait = self._pull_newest(until), _core.follow_jitter(interval)
                failures = 0
            except _FINAL:
                raise
            except Error as error:
                if _core.is_ending():
                    return  # in a daemon thread: pulling is no longer possible
                if until is not None and self.version is not None and self.version >= until:
                    raise  # `until` is reached: nothing left to wait for
                pulled, wait = None, _core.follow_backoff(failures, interval)
                failures += 1
                log.warning("follow: %s; retrying in %.1f s", error, wait)
            if pulled is not None and pulled.changed:
                yield pulled
                last_new = time.monotonic()
            if pulled is not None and until is not None and pulled.version >= until:
                return
            if timeout is not None:
                wait = min(wait, last_new + timeout - time.monotonic())
                if wait <= 0:
                    return
            watch.wait(wait, self.prepare_ahead)

    def _pull_newest(self, until: int | None) -> PullReport | None:
        newest = self.head
        if newest is None and self.version is None:
            return None
        return self._pull(None, until, newest)

    def close(self) -> None:
        """Release the weights."""
        self._closed = True
        if self._core is not None:
            self._core.close()


class Replica(Pulling[_core.Replica]):
    """Keeps a local checkpoint at a version of a chain. Only one replica may use a folder (`Conflict`).

    After any failure, `kill -9` included, reopening gives the old or the new version.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> version = dw.Publisher("memory:replica", {"w": np.arange(8)}).publish()
    >>> with tempfile.TemporaryDirectory() as folder, dw.Replica("memory:replica", folder) as replica:
    ...     pulled = replica.pull()
    ...     pulled.version, sorted(path.name for path in pulled.path.iterdir())
    (0, ['.deltawire', 'model.safetensors'])
    """

    @explained
    def __init__(
        self,
        store: StoreLike,
        local: str | os.PathLike[str],
        *,
        accept: Accept | None = None,
        limits: Limits | None = None,
        copy_on_write: CopyOnWrite | None = None,
        repair: bool = True,
        verify_all: bool = False,
        heartbeat: bool = True,
        name: str = "",
        progress: Progress = False,
    ) -> None:
        """Open the folder `local`, dropping unfinished work.

        `copy_on_write`: each version has its own folder. `repair`: if files are damaged, start from a whole version.
        `verify_all`: hash all tensors before patching. `heartbeat`: report to the store, as `name`.
        """
        self.local = folder = Path(local)
        handle = store_handle(store)
        super().__init__(
            handle,
            lambda: _core.Replica(
                handle,
                folder,  # not `self.local`: the lambda must not keep `self` alive
                accept=accept or Accept(),
                limits=limits or Limits(),
                copy_on_write=copy_on_write,
                repair=repair,
                verify_all=verify_all,
                heartbeat=heartbeat,
                name=name,
                progress=callback_of(progress, "pull"),
            ),
        )

    @property
    def state(self) -> ReplicaState | None:
        """What the folder holds; None: nothing."""
        core = self._try_open()
        report = None if core is None else core.state
        return None if report is None else ReplicaState.of(report)

    @property
    def version(self) -> int | None:
        """The version in the folder."""
        state = self.state
        return None if state is None else state.version

    def __repr__(self) -> str:
        return f'Replica("{self._store.url}", "{self.local}")'

    def settle(self) -> None:
        """Wait until the commit is on disk. The next `prepare` does this too."""
        self._opened().settle()

    def set_serving(self, serving: Identity | None, pause_seconds: float | None = None) -> None:
        """Report which version the engine serves, and how long it paused for it."""
        self._opened().set_serving(serving, pause_seconds)


def read_replica_state(local: str | os.PathLike[str]) -> ReplicaState:
    """What a replica's folder holds. `NotFound`: it is not a replica."""
    return ReplicaState.of(_core.read_replica_state(os.fspath(local)))


class Live:
    """Arrays under their names in the chain; `deltawire.torch` has a subclass for modules."""

    cuda_stream = 0

    def __init__(self, source: Source, choice: Choice) -> None:
        choice.refuse_trainable_only()
        self.pairs: list[tuple[str, Any]] = list(choice.renamed(choice.of(source)))

    def written(self) -> None:
        """Called after the arrays may have been written to."""

    def moved(self) -> str | None:
        """The name of a tensor whose memory has moved; never an array."""
        return None

    def rescan(self) -> None:
        """Update `pairs` to the current memory."""


def live_tensors(source: Source, choice: Choice) -> Live:
    """A `LiveModel` if torch is imported already."""
    if "torch" not in sys.modules:
        return Live(source, choice)
    from deltawire.torch.live import LiveModel

    return LiveModel(source, choice)


class TensorReplica(Pulling[_core.TensorReplica]):
    """Keeps arrays at a version of a chain, in place, without files.

    Arrays must be contiguous and writable, may hold anything at first, and are written only during `commit()`.

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
        """Patch `tensors`: all arrays of the model, or a torch module. `select` filters and renames them.

        `check_commit`: verify written data during the pause. `scratch`: folder for fetched parts, and for prepared data beyond
        half of `limits.memory_bytes`.

        Arrays may be parts (`Tensor(array, shape=..., offset=...)`) or `DTensor` shards, of which `scratch` then holds whole
        copies; each process has its own replica (docs/trainers.md). The rest is as in `Replica`.
        """
        live = live_tensors(tensors, Choice(select or Select()))
        gpu = cuda or Cuda()
        writable(live.pairs)  # raises for arrays that cannot be patched, even if there is no run yet
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
        """The verified version in the arrays; None: unknown."""
        core = self._try_open()
        return None if core is None else core.version

    def prepare(self, version: int | None = None) -> PullReport:
        """As `Replica.prepare`. Torch tensors that have moved (`model.to`, `p.data = ...`) are found again."""
        self._follow_moves()
        return super().prepare(version)

    def commit(self) -> PullReport:
        """Write what `prepare` decoded."""
        moved = self._live.moved()
        if moved is not None:
            raise InvalidArgument(f'tensor "{moved}": its memory has moved since prepare(); call prepare() again')
        return self._noted(super().commit)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> PullReport:
        self._follow_moves()
        return self._noted(lambda: super(TensorReplica, self)._pull(version, until, head))

    def _follow_moves(self) -> None:
        if self._live.moved() is None:
            return
        self._live.rescan()
        if self._core is not None:
            self._core.close()
            self._core = None

    def _noted(self, write: Callable[[], PullReport]) -> PullReport:
        try:
            pulled = write()
        except BaseException:
            self._live.written()  # perhaps partly
            raise
        if pulled.changed:
            self._live.written()
        return pulled
