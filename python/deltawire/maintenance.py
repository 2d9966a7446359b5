"""What calls that plan, keep and check a chain return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deltawire.identity import Identity, identity_of
from deltawire.units import human_bytes, plural


@dataclass(frozen=True)
class Part:
    """An object of a version, a merged delta or an anchor."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Hop:
    """One step of a plan: fetch these parts, be at `version`."""

    kind: Literal["delta", "merged", "anchor"]
    from_version: int | None
    """What it goes onto; None: it is a whole version."""
    version: int
    bytes: int
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Hop:
        """From what the extension reports."""
        return cls(**{**report, "parts": tuple(Part(*part) for part in report["parts"])})


@dataclass(frozen=True, repr=False)
class Plan:
    """The cheapest way to a version."""

    version: int
    hops: tuple[Hop, ...]
    """Empty: nothing to do."""
    bytes: int
    all_deltas_bytes: int
    """What every single version would take."""
    anchor_bytes: int
    """Of the newest version that is stored whole."""
    notes: tuple[str, ...]
    """Records that are damaged, and that the plan goes around."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Plan:
        """From what the extension reports."""
        return cls(**{**report, "hops": tuple(map(Hop.of, report["hops"])), "notes": tuple(report["notes"])})

    def __repr__(self) -> str:
        return f"Plan(version={self.version}, {plural(len(self.hops), 'hop')}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class ReplicaStatus:
    """What a replica has left in the store about itself. A hint: whoever may write to the store can write one."""

    name: str
    held: Identity | None
    """What it holds; of another run than the chain's: it follows another one."""
    serving: Identity | None
    """What its engine was last told to load, and took."""
    fetching: int | None
    """The version that it is on its way to."""
    seen: int
    """When it wrote this, in seconds since 1970."""
    age_seconds: int
    """How long ago the store took it, by the store's clock where it has one."""
    interval_seconds: int
    """How often it writes."""
    gone: bool
    """It has been silent for three times as long: its process has ended, or cannot write any more."""
    host: str
    pid: int
    error: str
    """Why its last pull failed, or why its note cannot be read; empty: neither."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> ReplicaStatus:
        """From what the extension reports."""
        return cls(**{**report, "held": identity_of(report["held"]), "serving": identity_of(report["serving"])})


@dataclass(frozen=True)
class Kept:
    """Why `Chain.gc` keeps versions."""

    why: Literal["newest", "pinned", "lease"]
    replica: str
    """Whose lease it is."""
    until: int
    """When the lease expires, in seconds since 1970 by the store's clock."""
    first: int
    """What is wanted begins with this version,"""
    last: int
    """and ends with this one."""
    anchor: int
    """Versions from here on are kept to reach it."""


@dataclass(frozen=True)
class Waiting:
    """Why objects of versions that are gone are not deleted yet."""

    why: Literal["grace period", "lease", "recent", "unreadable heartbeat"]
    replica: str
    """Whose lease it is."""
    until: int
    """When the last of them may go, in seconds since 1970 by the store's clock; 0: not known."""
    num_objects: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Collected:
    """What `Chain.gc` removed, or would remove."""

    head: int
    kept: tuple[tuple[int, int], ...]
    """Ranges of versions, first and last."""
    reasons: tuple[Kept, ...]
    """For these."""
    num_versions: int
    """Records that were removed."""
    num_hops: int
    """Anchors and merged deltas that were removed."""
    num_noted: int
    """Objects that a later call deletes."""
    noted_bytes: int
    num_deleted: int
    """Objects whose grace period was over."""
    deleted_bytes: int
    num_waiting: int
    """Objects noted earlier, not due yet or being read,"""
    waiting: tuple[Waiting, ...]
    """and why."""
    num_orphans: int
    num_forgotten: int
    num_temporaries: int
    notes: tuple[str, ...]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Collected:
        """From what the extension reports."""
        own = {
            "kept": tuple(map(tuple, report["kept"])),
            "reasons": tuple(Kept(**reason) for reason in report["reasons"]),
            "waiting": tuple(Waiting(**waiting) for waiting in report["waiting"]),
            "notes": tuple(report["notes"]),
        }
        return cls(**{**report, **own})

    def __repr__(self) -> str:
        deleted = f"{plural(self.num_deleted, 'object')} deleted ({human_bytes(self.deleted_bytes)})"
        return f"Collected({plural(self.num_versions, 'version')} removed, {deleted}, {self.num_noted:,} noted)"


@dataclass(frozen=True)
class MergedDelta:
    """One delta for several versions."""

    base: int
    version: int
    bytes: int
    separate_bytes: int
    """Of the versions that it spans."""
    made: bool
    skipped: str
    """Why it was not made."""


@dataclass(frozen=True, repr=False)
class Compacted:
    """What `Chain.compact` did."""

    merged: tuple[MergedDelta, ...]
    """Made or skipped now."""
    num_there: int
    """Those that were there before."""
    seconds: float

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Compacted:
        """From what the extension reports."""
        return cls(**{**report, "merged": tuple(MergedDelta(**one) for one in report["merged"])})

    def __repr__(self) -> str:
        made = sum(one.made for one in self.merged)
        return f"Compacted({plural(made, 'merged delta')} made, {self.num_there:,} there before)"


@dataclass(frozen=True)
class Anchored:
    """What `Chain.anchor` did."""

    version: int
    made: bool
    """False: it was stored whole already."""
    bytes: int
    num_files: int
    seconds: float


@dataclass(frozen=True, repr=False)
class Checked:
    """What `Chain.fsck` found; true when nothing is damaged."""

    problems: tuple[str, ...]
    """Damage: something that was published cannot be had as it was."""
    warnings: tuple[str, ...]
    """Odd, but nothing is lost."""
    head: int
    num_versions: int
    num_hops: int
    num_parts: int
    num_files: int
    bytes: int
    num_decoded: int
    """Versions whose every tensor was decoded, and is right."""
    num_orphans: int
    orphan_bytes: int
    num_waiting: int
    waiting_bytes: int

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Checked:
        """From what the extension reports."""
        return cls(**{**report, "problems": tuple(report["problems"]), "warnings": tuple(report["warnings"])})

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        what = f"{plural(self.num_versions, 'version')}, {self.num_decoded:,} decoded"
        if self:
            return f"Checked(sound: {what})"
        return f"Checked(DAMAGED: {what}, {plural(len(self.problems), 'problem')}, first: {self.problems[0]})"
