"""A chain in a second store, byte for byte: the same as `deltawire mirror`."""

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
    """Copies a chain into a second store: the same objects, byte for byte, so that signatures and links hold there.

    Each `next` copies one record with all that it names, versions in order, each object checked before it is put. It may be
    killed at any instant and opened again. What the mirror's own retention has removed does not come back. `BaseMismatch`: the
    mirror holds another run. `NotFound`: it is ahead of the source. `Corruption`: an object of the source is damaged, or the two
    have different histories.
    """

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
        """Open the chain at `source`, and `store`, which is or becomes its mirror.

        A mirror that holds nothing begins at the newest anchor; with `since`, at the newest anchor at or below that version; with
        `all`, at the oldest version. With `keep`, what its newest so many versions do not need is removed from it after each
        version, as `Chain.gc` does. With `verify`, objects that are there already are read and hashed; else their size is
        enough. Objects are in the folder `work` on their way, `transfers` at a time. `heartbeat` leaves a note in the source, as
        replicas do. `keys` checks the records that are read.
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
        """Copy the next version; when there is none, a merged delta or an anchor. None: the mirror has everything."""
        report = self._core.next()
        return None if report is None else MirrorReport.of(report)

    def repair(self) -> RepairReport:
        """Read every object of the mirror; copy again what is damaged or gone, if the source still has it."""
        return RepairReport.of(self._core.repair())

    @property
    def done(self) -> bool:
        """Never: a source may always have more."""
        return False

    @property
    def version(self) -> int | None:
        """The mirror's newest version, after `next`."""
        version: int | None = self._core.version
        return version

    @property
    def head(self) -> int | None:
        """The source's newest version, as it was last seen."""
        head: int | None = self._core.head
        return head


def mirror(source: StoreLike, store: StoreLike, **options: Any) -> list[MirrorReport]:
    """Copy all that the mirror does not have; `options` are those of `Mirror`.

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
