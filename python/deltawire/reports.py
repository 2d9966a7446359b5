"""What calls return: plain, frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltawire.identity import Identity, identity_of
from deltawire.units import human_bytes, percent, plural


@dataclass(frozen=True)
class Phase:
    """When a step began and ended, in seconds since the call did. Phases overlap."""

    name: str
    begin: float
    end: float


def _with_phases(report: Mapping[str, Any]) -> dict[str, Any]:
    return {**report, "phases": tuple(Phase(*phase) for phase in report["phases"])}


@dataclass(frozen=True, repr=False)
class Version:
    """A version of a chain that was just published."""

    number: int
    bytes: int
    """Of its parts in the store."""
    full: bool
    """Stored whole; `reason` says why."""
    reason: str
    committed: bool
    """False: nothing had changed, and `number` is the version that was there."""
    anchored: bool
    run: str
    manifest: str
    """sha-256 of its manifest."""
    num_tensors: int
    num_changed_tensors: int
    num_added: int
    num_removed: int
    num_reshaped: int
    """Tensors that the version before has not, that it alone has, and that have another shape or dtype than there."""
    num_elements: int
    num_changed: int
    """Of a delta; tensors that were added or reshaped count whole."""
    weights_bytes: int
    """Of the model."""
    num_parts: int
    seconds: float
    phases: tuple[Phase, ...]
    dense_float32: bool
    """Most of the weights are float32, and most of their elements changed: said once per publisher, and not of the seed."""
    warnings: tuple[str, ...]
    """What went wrong beside the commit: the version stands."""
    note: str
    """What a checkpoint's folder holds that does not travel; said once per publisher, and when it changes."""
    codec: str
    """That was asked for."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Version:
        """From what the extension reports."""
        return cls(**{**_with_phases(report), "warnings": tuple(report["warnings"])})

    @property
    def identity(self) -> Identity:
        """What engines must serve: hand this, rather than `number`, to whoever waits for it."""
        return Identity(self.run, self.number, self.manifest)

    @property
    def density(self) -> float:
        """The share of elements that changed; 0 of a version that is stored whole, which is not compared."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0

    def __repr__(self) -> str:
        if not self.committed:
            return f"Version(number={self.number}, nothing changed)"
        counts = ((self.num_added, "added"), (self.num_removed, "removed"), (self.num_reshaped, "reshaped"))
        schema = "".join(f", {plural(count, 'tensor')} {what}" for count, what in counts if count)
        size = human_bytes(self.bytes)
        if self.full:
            return f'Version(number={self.number}, full{schema}, {size}, "{self.reason}")'
        share = percent(self.num_changed, self.num_elements)
        changed = f", {self.num_changed:,} of {self.num_elements:,} changed ({share})" if self.num_elements else ""
        return f"Version(number={self.number}{changed}{schema}, {size})"


@dataclass(frozen=True)
class SnapshotMemory:
    """Bytes that a publisher's snapshot takes."""

    host: int
    pinned: int
    device: int
    disk: int


@dataclass(frozen=True, repr=False)
class Pull:
    """What a replica did to reach a version."""

    version: int
    from_version: int | None
    """What it held before; None: nothing of use."""
    changed: bool
    """False: it was there already."""
    bytes: int
    """Fetched."""
    run: str
    manifest: str
    """sha-256 of the version's manifest."""
    repaired: bool
    repair_reason: str
    recovered: bool
    """Finished a step that an earlier process had begun."""
    num_hops: int
    num_tensors: int
    num_changed: int
    weights_bytes: int
    staged_device_bytes: int
    """Of a GPU's memory, for what was decoded before the pause."""
    seconds: float
    patch_seconds: float
    """The window in which weights change."""
    phases: tuple[Phase, ...]
    path: Path | None
    """The checkpoint; None: tensors in memory."""
    whole: bool
    """Began with a version that is stored whole."""
    num_side_files: int
    """Files beside the weights that came anew or went."""
    num_ahead: int
    """Tensors that were decoded before the version was committed: `prepare_ahead`."""
    set_aside: tuple[str, ...]
    """Where files are now that were in the way of the version's, and were not the chain's, or were edited."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Pull:
        """From what the extension reports."""
        path, aside = report["path"], tuple(report["set_aside"])
        return cls(**{**_with_phases(report), "path": path if str(path) != "." else None, "set_aside": aside})

    def __repr__(self) -> str:
        if not self.changed:
            return f"Pull(version={self.version}, was there)"
        before = "nothing" if self.from_version is None else str(self.from_version)
        repaired = f', repaired: "{self.repair_reason}"' if self.repaired else ""
        return f"Pull(version={self.version}, from {before}, {human_bytes(self.bytes)} in {self.seconds:.3g} s{repaired})"


@dataclass(frozen=True)
class ReplicaState:
    """What a local checkpoint holds, from its `.deltawire/state.json`."""

    run: str
    version: int
    manifest: str
    """sha-256 of the version's manifest."""
    state: str
    """Digest of all weights."""
    patching_to: int | None
    """A patch is half-way: the files are not to be read."""
    updated: str
    serving: Identity | None
    """What the engine was last told to load, and took."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> ReplicaState:
        """From what the extension reports."""
        return cls(**{**report, "serving": identity_of(report["serving"])})

    @property
    def identity(self) -> Identity:
        """What is held."""
        return Identity(self.run, self.version, self.manifest)


@dataclass(frozen=True, repr=False)
class Diffed:
    """What `diff_checkpoints` found."""

    num_tensors: int
    num_changed_tensors: int
    num_added: int
    num_removed: int
    num_elements: int
    num_changed: int
    weights_bytes: int
    bytes: int
    """Of all files of the delta."""
    num_parts: int
    base: str
    target: str
    metadata_changed: tuple[str, ...]
    """Keys of `__metadata__` that differ; a delta carries tensors only."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Diffed:
        """From what the extension reports."""
        return cls(**{**report, "metadata_changed": tuple(report["metadata_changed"])})

    @property
    def density(self) -> float:
        """The share of elements that changed."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0

    def __repr__(self) -> str:
        share = percent(self.num_changed, self.num_elements)
        return f"Diffed({self.num_changed:,} of {self.num_elements:,} changed ({share}), {human_bytes(self.bytes)})"


@dataclass(frozen=True, repr=False)
class Applied:
    """What applying a delta did."""

    num_tensors: int
    num_patched: int
    num_added: int
    num_removed: int
    num_changed: int
    weights_bytes: int
    target: str
    """State digest of the result."""
    target_known: bool
    """Whether the delta said what the result's state must be."""

    def __repr__(self) -> str:
        return f"Applied({self.num_patched:,} of {plural(self.num_tensors, 'tensor')} patched, {self.num_changed:,} elements)"


@dataclass(frozen=True)
class Difference:
    """Where a tensor of two checkpoints differs."""

    tensor: str
    what: str
    """"only in A", "dtype", ...; empty when elements differ."""
    num_different: int
    num_elements: int
    coordinate: tuple[int, ...] | None
    """Of the first element that differs."""
    old_bits: str
    new_bits: str

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Difference:
        """From what the extension reports."""
        first = report["first"]
        return cls(
            tensor=report["tensor"],
            what=report["what"],
            num_different=report["num_different"],
            num_elements=report["num_elements"],
            coordinate=tuple(first["coordinate"]) if first else None,
            old_bits=first["old_bits"] if first else "",
            new_bits=first["new_bits"] if first else "",
        )


@dataclass(frozen=True, repr=False)
class Verified:
    """The outcome of comparing two checkpoints bit by bit; true when they are the same."""

    num_tensors: int
    num_elements: int
    num_different: int
    weights_bytes: int
    differences: tuple[Difference, ...]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Verified:
        """From what the extension reports."""
        return cls(**{**report, "differences": tuple(map(Difference.of, report["differences"]))})

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if self:
            return f"Verified(bit-identical: {plural(self.num_tensors, 'tensor')}, {plural(self.num_elements, 'element')})"
        return f"Verified({plural(len(self.differences), 'tensor')} differ, first {self.differences[0]})"
