"""The receiving side, in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from deltawire import _core
from deltawire.following import follow
from deltawire.progress import Progress, callback_of
from deltawire.reports import Pull, ReplicaState
from deltawire.stores import StoreLike, store_handle


class Replica:
    """Keeps a local checkpoint at a version of a chain, exactly.

    One per folder at a time, `Conflict` otherwise. Whatever happens, `kill -9` included, the folder holds the old version or
    the new one when it is opened again.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> version = dw.Publisher("memory:replica", {"w": np.arange(8)}).publish()
    >>> folder = tempfile.TemporaryDirectory()
    >>> with dw.Replica("memory:replica", folder.name) as replica:
    ...     pulled = replica.pull()
    >>> pulled.version, sorted(path.name for path in pulled.path.iterdir())
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
        memory_limit: int = 2 << 30,
        progress: Progress = False,
    ) -> None:
        """Open the folder `local`, finishing or dropping what an earlier process left half-way.

        `repair` starts again from a version stored whole when the files are not what they should be. `copy_on_write` keeps the
        newest `keep_versions` in folders of their own, with `current` pointing to the newest. `verify_all` hashes every
        tensor before patching, not only those that change. `heartbeat` leaves the version in the store under `name`.
        """
        self.local = Path(local)
        self._store = store_handle(store)
        self._core = _core.Replica(
            self._store,
            self.local,
            threads=threads,
            repair=repair,
            copy_on_write=copy_on_write,
            keep_versions=keep_versions,
            verify_all=verify_all,
            heartbeat=heartbeat,
            name=name,
            trust_key=os.fspath(trust_key),
            memory_limit=memory_limit,
            progress=callback_of(progress, "pull"),
        )

    @property
    def state(self) -> ReplicaState | None:
        """What the folder holds; None: nothing yet."""
        report = self._core.state
        return None if report is None else ReplicaState(**report)

    @property
    def version(self) -> int | None:
        """The version that the folder holds."""
        state = self.state
        return None if state is None else state.version

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was published yet."""
        return self._core.head()

    def pull(self, version: int | None = None) -> Pull:
        """Go to a version (None: the newest), older or newer. `prepare`, `commit` and `settle` in one."""
        return Pull.of(self._core.pull(version))

    def prepare(self, version: int | None = None) -> Pull:
        """Fetch, decode and check everything; the checkpoint is not touched, an engine may go on serving it."""
        return Pull.of(self._core.prepare(version))

    def commit(self) -> Pull:
        """Patch the checkpoint with what `prepare` left: the only part that needs a pause."""
        return Pull.of(self._core.commit())

    def settle(self) -> None:
        """Wait until what `commit` did is on disk, and record the version. The next `prepare` would do it too."""
        self._core.settle()

    def follow(self, *, interval: float = 5, until: int | None = None, timeout: float | None = None) -> Iterator[Pull]:
        """Pull whenever there is something new, and say so each time.

        In a local folder a new version is seen at once, elsewhere after about `interval` seconds. Outages are waited out and
        logged (logger "deltawire"). Ends after version `until`, or after `timeout` seconds without a new one.

            for pulled in replica.follow():
                engine.reload(pulled.path, version=pulled.version)
        """
        return follow(self._store, self._core.head, self.pull, interval, until, timeout)

    def set_serving(self, version: int | None) -> None:
        """Note in the state and the heartbeat what an engine serves."""
        self._core.set_serving(version)

    def close(self) -> None:
        """Settle, and give up the folder's lock. A second time does nothing."""
        self._core.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_replica_state(local: str | os.PathLike[str]) -> ReplicaState:
    """What a replica's folder holds, without touching anything. `NotFound` when it is none."""
    return ReplicaState(**_core.read_replica_state(os.fspath(local)))
