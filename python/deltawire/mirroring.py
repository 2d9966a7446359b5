"""A chain in a second store, byte for byte: the same as `deltawire mirror`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from deltawire import _core
from deltawire.explain import explained
from deltawire.maintenance import Collected
from deltawire.options import Keys
from deltawire.progress import Progress, callback_of
from deltawire.stores import StoreLike, store_handle
from deltawire.units import human_bytes, plural


@dataclass(frozen=True, repr=False)
class Mirrored:
    """What was copied with one step: a version, or a merged delta or an anchor that was added to one."""

    kind: Literal["version", "merged", "anchor"]
    version: int
    base: int | None
    """Of a merged delta."""
    num_objects: int
    """That its record names."""
    num_there: int
    """Of those: they were there already."""
    bytes: int
    """That were copied."""
    begins: bool
    """The first version of the mirror, or the first behind those that the source has removed."""
    collected: Collected | None
    """What the mirror's own retention removed then."""
    seconds: float

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Mirrored:
        """From what the extension reports."""
        collected = None if report["collected"] is None else Collected.of(report["collected"])
        return cls(**{**report, "collected": collected})

    def __repr__(self) -> str:
        copied = plural(self.num_objects - self.num_there, "object")
        return f"Mirrored({self.kind} {self.version}, {copied}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class Repaired:
    """What `Mirror.repair` looked at, and what it copied again."""

    num_versions: int
    num_hops: int
    num_objects: int
    num_repaired: int
    repaired_bytes: int


class Mirror:
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

    def next(self) -> Mirrored | None:
        """Copy the next version; when there is none, a merged delta or an anchor. None: the mirror has everything."""
        report = self._core.next()
        return None if report is None else Mirrored.of(report)

    def __iter__(self) -> Iterator[Mirrored]:
        """All that is there now."""
        return iter(self.next, None)

    def follow(self, *, interval: float = 1.0, timeout: float | None = None) -> Iterator[Mirrored]:
        """Copy whatever is new, for ever. Ends after `timeout` seconds without anything new."""
        last_new = time.monotonic()
        while not _core.is_ending():
            copied = self.next()
            if copied is not None:
                yield copied
                last_new = time.monotonic()
            elif timeout is not None and time.monotonic() - last_new >= timeout:
                return
            else:
                time.sleep(interval if timeout is None else min(interval, timeout))

    def repair(self) -> Repaired:
        """Read every object of the mirror; copy again what is damaged or gone, if the source still has it."""
        return Repaired(**self._core.repair())

    @property
    def run(self) -> str:
        """The id of the chain's run."""
        return str(self._core.run)

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

    def close(self) -> None:
        """Let go of both stores."""
        self._core.close()

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def mirror(source: StoreLike, store: StoreLike, **options: Any) -> list[Mirrored]:
    """Copy all that the mirror does not have; `options` are those of `Mirror`.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.zeros(1000, np.float32)}
    >>> with dw.Publisher("memory:mirror-source", weights) as publisher:
    ...     seed = publisher.publish()
    ...     weights["w"][7] = 1.5
    ...     version = publisher.publish()
    >>> [(one.kind, one.version) for one in dw.mirror("memory:mirror-source", "memory:mirror")]
    [('version', 0), ('version', 1)]
    >>> dw.mirror("memory:mirror-source", "memory:mirror")
    []
    """
    with Mirror(source, store, **options) as opened:
        return list(opened)
