"""The receiving side, in files."""

from __future__ import annotations

import os
from pathlib import Path

from deltawire import _core
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

    def __init__(
        self,
        store: StoreLike,
        local: str | os.PathLike[str],
        *,
        threads: int = 0,
        repair: bool = True,
        copy_on_write: bool = False,
        keep_versions: int = 2,
        verify_all: bool = False,
        heartbeat: bool = True,
        name: str = "",
        trust_key: str | os.PathLike[str] = "",
        run: str = "",
        at_least: int = 0,
        memory_limit: int = 2 << 30,
        progress: Progress = False,
    ) -> None:
        """Open the folder `local` (as soon as the store has a run), dropping what an earlier process had not finished preparing.

        `repair` starts again from a version stored whole when the files are not what they should be. `copy_on_write` keeps the
        newest `keep_versions` in folders of their own, with `current` pointing to the newest. `verify_all` hashes every
        tensor before patching, not only those that change. `heartbeat` leaves the version in the store under `name`.
        With `trust_key` (a file of public keys) unsigned versions are refused, with `run` (an id) any other run, with
        `at_least` any version below that one.
        """
        self.local = Path(local)
        handle = store_handle(store)
        super().__init__(
            handle,
            lambda: _core.Replica(
                handle,
                self.local,
                threads=threads,
                repair=repair,
                copy_on_write=copy_on_write,
                keep_versions=keep_versions,
                verify_all=verify_all,
                heartbeat=heartbeat,
                name=name,
                trust_key=os.fspath(trust_key),
                run=run,
                at_least=at_least,
                memory_limit=memory_limit,
                progress=callback_of(progress, "pull"),
            ),
        )

    @property
    def state(self) -> ReplicaState | None:
        """What the folder holds; None: nothing yet."""
        core = self._try_open()
        report = None if core is None else core.state
        return None if report is None else ReplicaState(**report)

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

    def set_serving(self, version: int | None) -> None:
        """Note in the state and the heartbeat what an engine serves."""
        self._opened().set_serving(version)


def read_replica_state(local: str | os.PathLike[str]) -> ReplicaState:
    """What a replica's folder holds, without touching anything. `NotFound` when it is none."""
    return ReplicaState(**_core.read_replica_state(os.fspath(local)))
