"""The receiving side, in files."""

from __future__ import annotations

import os
from pathlib import Path

from deltawire import _core
from deltawire.explain import explained
from deltawire.identity import Identity
from deltawire.options import Accept, CopyOnWrite, Limits
from deltawire.progress import Progress, callback_of
from deltawire.pulling import Pulling
from deltawire.reports import ReplicaState
from deltawire.stores import StoreLike, store_handle


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
