"""The receiving side: in files, and in memory."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from deltawire import _core
from deltawire._internal.identity import Identity
from deltawire._internal.options import Accept, CopyOnWrite, Cuda, Limits, Select, explained
from deltawire._internal.output import Progress, callback_of
from deltawire._internal.reader import Choice
from deltawire._internal.steps import Closing
from deltawire._internal.stores import StoreLike, store_handle
from deltawire._internal.tensors import Source, named_tensors, writable
from deltawire.errors import BaseMismatch, Conflict, Error, InternalError, InvalidArgument, NotFound, Unsupported
from deltawire.reports import PullReport, ReplicaState

log = logging.getLogger("deltawire")

# What no later attempt can change.
_FINAL = (InvalidArgument, Unsupported, Conflict, BaseMismatch, InternalError)


class _Replica(Protocol):
    def head(self) -> int | None: ...
    def pull(self, version: int | None, until: int | None = None, head: int | None = None) -> dict[str, Any]: ...
    def prepare(self, version: int | None) -> dict[str, Any]: ...
    def prepare_ahead(self) -> int: ...
    def commit(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


Core = TypeVar("Core", bound=_Replica)


class Pulling(Closing, Generic[Core]):
    """A replica that may be there before its run is: it opens when there is one."""

    def __init__(self, store: _core.Store, open_core: Callable[[], Core]) -> None:
        self._store = store
        self._open_core = open_core
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
        """What is held; None: nothing yet, or not known."""
        raise NotImplementedError

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was published yet."""
        core = self._try_open()
        return None if core is None else core.head()

    def pull(self, version: int | None = None) -> PullReport:
        """Go to a version, older or newer, and prove it by digest: `prepare`, `commit` and what they need.

        Without a number it is the newest, and never back: what is held stays when the store has lost versions (`NotFound`) or
        was rewritten (`Corruption`).
        """
        return self._pull(version)

    def _pull(self, version: int | None, until: int | None = None, head: int | None = None) -> PullReport:
        return PullReport.of(self._opened().pull(version, until, head))

    def prepare(self, version: int | None = None) -> PullReport:
        """Fetch, decode and check everything; the weights are read, not written, and an engine may go on serving them."""
        return PullReport.of(self._opened().prepare(version))

    def prepare_ahead(self) -> int:
        """Decode what a publisher has sent so far of the next version (`deltawire.ship`), committed or not: how many tensors.

        `follow` does it while it waits. Weights are read, not written, and what is never committed is dropped. Tensors on a GPU
        are decoded by `prepare`.
        """
        return 0 if self._core is None or self._closed else self._core.prepare_ahead()

    def commit(self) -> PullReport:
        """Write what `prepare` left: the only part that needs a pause."""
        return PullReport.of(self._opened().commit())

    def follow(self, *, interval: float = 5, until: int | None = None, timeout: float | None = None) -> Iterator[PullReport]:
        """Pull whenever there is something new, and say so each time.

        In a local folder a new version is seen at once, elsewhere after about `interval` seconds. Outages are waited out and
        logged (logger "deltawire"), and so is a run that is not there yet. Ends after version `until`, after `timeout` seconds
        without a new one, or when the interpreter does. Never goes back: a store that has lost versions is an outage like any
        other.

            for pulled in replica.follow():
                engine.reload(pulled.path, version=pulled.version)
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
                    return  # a daemon thread's: nothing can be pulled any more
                if until is not None and self.version is not None and self.version >= until:
                    raise  # what was wanted is there: nothing is left to wait for
                pulled, wait = None, _core.follow_backoff(failures, interval)
                failures += 1
                log.warning("follow: %s; again in %.1f s", error, wait)
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
        """Let go of the weights, which hold a whole version. A second time does nothing."""
        self._closed = True
        if self._core is not None:
            self._core.close()


class Replica(Pulling[_core.Replica]):
    """Keeps a local checkpoint at a version of a chain, exactly.

    One per folder at a time, `Conflict` otherwise. Whatever happens, `kill -9` included, the folder holds the old version or
    the new one when it is opened again.

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
        feed: bool = False,
        heartbeat: bool = True,
        name: str = "",
        progress: Progress = False,
    ) -> None:
        """Open the folder `local` (as soon as the store has a run), dropping what an earlier process had not finished preparing.

        `accept` says what is taken from the store: whose signatures, which run. Files are patched in place; with
        `copy_on_write` each version has a folder of its own. `repair` starts again from a version stored whole when the files
        are not what they should be. `verify_all` hashes every tensor before patching, not only those that change. `feed` keeps
        what is patched for engine workers of this host, which patch live weights with it (docs/engines.md). `heartbeat`
        leaves the version in the store under `name`.
        """
        self.local = folder = Path(local)
        handle = store_handle(store)
        super().__init__(
            handle,
            lambda: _core.Replica(
                handle,
                folder,  # not of `self`, which it would hold: the store is let go of with the last who knows it
                accept=accept or Accept(),
                limits=limits or Limits(),
                copy_on_write=copy_on_write,
                repair=repair,
                verify_all=verify_all,
                feed=feed,
                heartbeat=heartbeat,
                name=name,
                progress=callback_of(progress, "pull"),
            ),
        )

    @property
    def state(self) -> ReplicaState | None:
        """What the folder holds; None: nothing yet."""
        core = self._try_open()
        report = None if core is None else core.state
        return None if report is None else ReplicaState.of(report)

    @property
    def version(self) -> int | None:
        """The version that the folder holds."""
        state = self.state
        return None if state is None else state.version

    def __repr__(self) -> str:
        return f'Replica("{self._store.url}", "{self.local}")'

    def settle(self) -> None:
        """Wait until what `commit` did is on disk, and record the version. The next `prepare` would do it too."""
        self._opened().settle()

    def set_serving(self, serving: Identity | None) -> None:
        """Note in the state and the heartbeat what an engine serves."""
        self._opened().set_serving(serving)


def read_replica_state(local: str | os.PathLike[str]) -> ReplicaState:
    """What a replica's folder holds, without touching anything. `NotFound` when it is none."""
    return ReplicaState.of(_core.read_replica_state(os.fspath(local)))


class Live:
    """Arrays under their names in the chain; `deltawire.torch` has one that knows modules."""

    cuda_stream = 0

    def __init__(self, source: Source, choice: Choice) -> None:
        if choice.select.trainable_only:
            raise InvalidArgument("trainable_only: a torch module knows what is trainable, arrays do not")
        chosen = ((name, value) for name, value in named_tensors(source) if choice.has(name))
        self.pairs: list[tuple[str, Any]] = list(choice.renamed(chosen))

    def written(self) -> None:
        """They may have been written to."""

    def moved(self) -> str | None:
        """The first that lies elsewhere in memory than `pairs` say: numpy's never do."""
        return None

    def rescan(self) -> None:
        """Let `pairs` be where the arrays are now."""


def live_tensors(source: Source, choice: Choice) -> Live:
    """Those of torch where torch is in use; it is not imported to find out."""
    if "torch" not in sys.modules:
        return Live(source, choice)
    from deltawire.torch.live import LiveModel

    return LiveModel(source, choice)


class TensorReplica(Pulling[_core.TensorReplica]):
    """Keeps arrays at a version of a chain, in place: a serving process without files.

    The arrays may hold anything at first. They are read at any time, and written during `commit()` alone; an array that is
    not contiguous, or cannot be written, is refused. What is there after `commit()` is proven by digest; a part in the
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

    def prepare(self, version: int | None = None) -> PullReport:
        """Fetch, decode and check everything; the arrays are read, not written, and an engine may go on serving them.

        Tensors of torch that lie elsewhere by now (`model.to`, `p.data = ...`) are looked at anew.
        """
        self._follow_moves()
        return super().prepare(version)

    def commit(self) -> PullReport:
        """Write what `prepare` left: the only part that needs a pause."""
        moved = self._live.moved()
        if moved is not None:
            raise InvalidArgument(f'tensor "{moved}": lies elsewhere in memory since prepare(), which has to be done again')
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
            self._live.written()  # by a part of it, perhaps
            raise
        if pulled.changed:
            self._live.written()
        return pulled
