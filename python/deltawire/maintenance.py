"""Copies of chains in a second store, like `deltawire mirror`."""

from __future__ import annotations

import os
from typing import Any

from deltawire import _core
from deltawire._internal.options import Keys, explained
from deltawire._internal.output import Progress, callback_of
from deltawire._internal.steps import Steps
from deltawire._internal.stores import StoreLike, store_handle
from deltawire.reports import MirrorReport, RepairReport


class Mirror(Steps[MirrorReport]):
    """Copies a chain into a second store, byte for byte. It can be killed and restarted.

    `BaseMismatch`: the mirror holds another run. `NotFound`: it is ahead of the source. `Corruption`: the source is damaged, or
    the histories differ.
    """

    _core: _core.Mirror

    @explained
    def __init__(
        self,
        source: StoreLike,
        store: StoreLike,
        *,
        since: int | None = None,
        all: bool = False,
        keep: int | None = None,
        grace_seconds: int = 3600,
        verify: bool = False,
        single_writer: bool = False,
        work: str | os.PathLike[str] = "",
        transfers: int = 8,
        heartbeat: bool = True,
        name: str = "",
        keys: Keys | None = None,
        progress: Progress = False,
    ) -> None:
        """An empty mirror starts at the newest anchor (`since`: the newest up to that version; `all`: at the oldest version).
        `keep`: remove older versions from the mirror. `verify`: hash existing objects. `work`: folder for objects in transfer,
        `transfers` at a time. `heartbeat` reports to the source. `keys` checks records.
        """
        self._core = _core.Mirror(
            store_handle(source),
            store_handle(store),
            since=since,
            all=all,
            keep=keep,
            grace_seconds=grace_seconds,
            verify=verify,
            single_writer=single_writer,
            work=os.fspath(work),
            transfers=transfers,
            heartbeat=heartbeat,
            name=name,
            keys=keys or Keys(),
            progress=callback_of(progress, "mirror"),
        )

    def next(self) -> MirrorReport | None:
        """Copy the next version, else a merged delta or an anchor. None: complete."""
        report = self._core.next()
        return None if report is None else MirrorReport.of(report)

    def repair(self) -> RepairReport:
        """Check every object of the mirror; copy damaged ones again."""
        return RepairReport.of(self._core.repair())

    @property
    def done(self) -> bool:
        """Always false: the source may grow."""
        return False

    @property
    def version(self) -> int | None:
        """The mirror's newest version."""
        return self._core.version

    @property
    def head(self) -> int | None:
        """The source's newest version when last read."""
        return self._core.head


def mirror(source: StoreLike, store: StoreLike, **options: Any) -> list[MirrorReport]:
    """Copy everything that the mirror lacks; `options` as in `Mirror`.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.zeros(1000, np.float32)}
    >>> with dw.Publisher("memory:mirror-source", weights) as publisher:
    ...     seed = publisher.publish()
    ...     weights["w"][7] = 1.5
    ...     version = publisher.publish()
    >>> [(one.kind, one.version) for one in dw.maintenance.mirror("memory:mirror-source", "memory:mirror")]
    [('version', 0), ('version', 1)]
    >>> dw.maintenance.mirror("memory:mirror-source", "memory:mirror")
    []
    """
    with Mirror(source, store, **options) as opened:
        return list(opened)
