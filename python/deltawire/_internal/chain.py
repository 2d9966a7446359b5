"""A chain: its versions, their changes, retention and maintenance."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from deltawire import _core
from deltawire._internal.options import Keys, explained
from deltawire._internal.output import Progress, callback_of, plural
from deltawire._internal.stores import StoreLike, store_handle
from deltawire.reports import (
    AnchorReport,
    CompactReport,
    FsckReport,
    GcReport,
    HoldersReport,
    Manifest,
    Plan,
    ReplicaStatus,
    TensorSpec,
)

_SHOWN = 10  # versions in a repr


class Chain:
    """The versions of a run. `chain[12]` is the manifest of version 12, `chain[-1]` the newest.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.zeros(100)}
    >>> publisher = dw.Publisher("memory:chain", weights)
    >>> for step in range(3):
    ...     weights["w"][step] = 1
    ...     version = publisher.publish()
    >>> chain = dw.Chain("memory:chain")
    >>> len(chain), chain.head, chain[2].base, chain[2].num_changed, chain.changes(2)
    (3, 2, 1, 1, {'w': 0.01})
    """

    @explained
    def __init__(self, store: StoreLike, *, keys: Keys | None = None, progress: Progress = False) -> None:
        """Open the chain at `store`; `NotFound` if there is none. `keys` checks what is read, and signs what is added."""
        self._store = store_handle(store)
        self._core = _core.Chain(self._store, keys or Keys(), callback_of(progress, "chain"))

    @property
    def run(self) -> str:
        """The run's id."""
        return self._core.run

    @property
    def head(self) -> int | None:
        """The newest version."""
        return self._core.head()

    @property
    def versions(self) -> list[int]:
        """Existing versions, oldest first."""
        return self._core.versions()

    def tensors(self, version: int) -> list[TensorSpec]:
        """Names, dtypes and shapes of a version's tensors."""
        return [TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in self._core.tensors(version)]

    def changes(self, version: int) -> dict[str, float]:
        """The share of elements changed, by tensor."""
        return {name: changed / elements for name, (changed, elements) in self._core.changes(version).items()}

    def num_changed(self, version: int) -> dict[str, int]:
        """The same as counts."""
        return {name: changed for name, (changed, _) in self._core.changes(version).items()}

    def plan(self, from_version: int | None = None, to: int | None = None) -> Plan:
        """The cheapest path to version `to` (None: the newest).

        >>> import numpy as np, deltawire as dw
        >>> weights = {"w": np.zeros(1000)}
        >>> publisher = dw.Publisher("memory:plan", weights)
        >>> for step in range(3):
        ...     weights["w"][step] = 1
        ...     version = publisher.publish()
        >>> plan = dw.Chain("memory:plan").plan(from_version=1)
        >>> [(hop.kind, hop.from_version, hop.version) for hop in plan.hops]
        [('delta', 1, 2)]
        """
        return Plan.of(self._core.plan(from_version, to))

    @property
    def replicas(self) -> list[ReplicaStatus]:
        """Heartbeats of replicas."""
        return [ReplicaStatus.of(report) for report in self._core.replicas()]

    def wait_until_held(self, version: int | None = None, *, replicas: int | None = None, timeout: float = 60.0) -> HoldersReport:
        """Wait until `replicas` replicas (None: all known) hold this version (None: the newest) or a later one. False after
        `timeout`, with who is missing and why.

        >>> import numpy as np, deltawire as dw
        >>> publisher = dw.Publisher("memory:holders", {"w": np.zeros(1000)})
        >>> version = publisher.publish().number
        >>> with dw.TensorReplica("memory:holders", {"w": np.empty(1000)}, name="engine-1") as replica:
        ...     pulled = replica.pull()
        ...     report = dw.Chain("memory:holders").wait_until_held(version, replicas=1)
        >>> [(one.name, one.held.version, one.missing) for one in report.replicas]
        [('engine-1', 0, '')]
        """
        return HoldersReport.of(self._core.wait_until_held(version, replicas, timeout))

    def forget(self, name: str, *, force: bool = False) -> int:
        """Remove a dead replica's heartbeats; returns their number. `Conflict` if it is alive, unless `force`."""
        return self._core.forget(name, force)

    @property
    def pins(self) -> list[int]:
        """The pinned versions."""
        return self._core.pins()

    def pin(self, version: int) -> None:
        """Keep a version, and what it needs, in every `gc`. `Conflict`: a gc is about to remove it."""
        self._core.pin(version)

    def unpin(self, version: int) -> None:
        """Remove a pin."""
        self._core.unpin(version)

    def gc(self, keep: int, *, grace_seconds: int = 3600, dry_run: bool = False, signed_too: bool = False) -> GcReport:
        """Remove all but the newest `keep` versions, pinned ones, ones being read, and what these need.

        Call it regularly: objects are deleted by a later call, after `grace_seconds`. A signed chain needs trusted keys;
        `signed_too`: it is no longer signed.
        """
        return GcReport.of(self._core.gc(keep=keep, grace_seconds=grace_seconds, dry_run=dry_run, signed_too=signed_too))

    def compact(
        self,
        *,
        spans: Sequence[int] = (4, 16, 64),
        first: int = 0,
        upto: int | None = None,
        codec: str = "auto",
        part_bytes: int = 64 << 20,
        memory_limit: int = 2 << 30,
        work: str | os.PathLike[str] = "",
        threads: int = 0,
    ) -> CompactReport:
        """Add merged deltas, so that late replicas fetch one instead of many: between multiples of `spans`, from version `first`
        to `upto` (None: the newest). `work`: folder for states of the model.
        """
        report = self._core.compact(
            spans=list(spans),
            first=first,
            upto=upto,
            codec=codec,
            part_bytes=part_bytes,
            memory_limit=memory_limit,
            work=os.fspath(work),
            threads=threads,
        )
        return CompactReport.of(report)

    def anchor(
        self, version: int | None = None, *, plain_files: bool = False, work: str | os.PathLike[str] = "", threads: int = 0
    ) -> AnchorReport:
        """Store a version (None: the newest) whole, for new replicas. `plain_files`: as a checkpoint that engines can load."""
        return AnchorReport.of(self._core.anchor(version, plain_files, os.fspath(work), threads))

    def fsck(self, *, quick: bool = False, work: str | os.PathLike[str] = "", threads: int = 0) -> FsckReport:
        """Check records and objects, and decode every version. `quick` only checks that objects exist. The report lists problems.

        >>> import numpy as np, deltawire as dw
        >>> publisher = dw.Publisher("memory:fsck", {"w": np.zeros(1000)})
        >>> version = publisher.publish()
        >>> dw.Chain("memory:fsck").fsck()
        FsckReport(sound: 1 version, 1 decoded)
        """
        return FsckReport.of(self._core.fsck(quick, os.fspath(work), threads))

    def __getitem__(self, version: int) -> Manifest:
        if version < 0:
            versions = self.versions
            if -version > len(versions):
                raise IndexError(f"the chain has {plural(len(versions), 'version')}")
            version = versions[version]
        return Manifest.of(self._core.manifest(version))

    def __iter__(self) -> Iterator[Manifest]:
        return (self[version] for version in self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def __repr__(self) -> str:
        versions = self.versions
        lines = [f'Chain("{self._store.url}", run {self.run[:8]}, {plural(len(versions), "version")})']
        if len(versions) > _SHOWN:
            lines.append(f"   ...  {len(versions) - _SHOWN:,} more")
        lines += [self[version].line for version in versions[-_SHOWN:]]
        return "\n".join(lines)
