"""What calls return: plain, frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from deltawire._internal.identity import Identity
from deltawire._internal.output import human_bytes, percent, plural


class _Report:
    """Made from what the extension reports, by the types of its fields: lists become tuples, dicts and tuples their records."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Self:
        """From what the extension reports."""
        hints = _hints_of(cls)  # type: ignore[arg-type]  # of mypy's idea of Self
        return cls(**{name: _converted(hints[name], value) for name, value in report.items()})


@cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _converted(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is tuple:
        return tuple(_converted(kinds[0], item) for item in value)
    if len(kinds) == 1:  # or None
        return _converted(kinds[0], value)
    if isinstance(hint, type) and issubclass(hint, _Report) and isinstance(value, Mapping):
        return hint.of(value)
    return hint(*value) if isinstance(value, tuple) else value  # Identity, Phase, Part, ...


class _Counted(_Report):
    """A report that counts the elements that changed."""

    num_elements: int
    num_changed: int

    @property
    def density(self) -> float:
        """The share of elements that changed; 0 of a version that is stored whole, which is not compared."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0


@dataclass(frozen=True)
class Phase(_Report):
    """When a step began and ended, in seconds since the call did. Phases overlap."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, repr=False)
class PublishReport(_Counted):
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

    @property
    def identity(self) -> Identity:
        """What engines must serve: hand this, rather than `number`, to whoever waits for it."""
        return Identity(self.run, self.number, self.manifest)

    def __repr__(self) -> str:
        if not self.committed:
            return f"PublishReport(number={self.number}, nothing changed)"
        counts = ((self.num_added, "added"), (self.num_removed, "removed"), (self.num_reshaped, "reshaped"))
        schema = "".join(f", {plural(count, 'tensor')} {what}" for count, what in counts if count)
        size = human_bytes(self.bytes)
        if self.full:
            return f'PublishReport(number={self.number}, full{schema}, {size}, "{self.reason}")'
        share = percent(self.num_changed, self.num_elements)
        changed = f", {self.num_changed:,} of {self.num_elements:,} changed ({share})" if self.num_elements else ""
        return f"PublishReport(number={self.number}{changed}{schema}, {size})"


@dataclass(frozen=True)
class SnapshotMemory(_Report):
    """Bytes that a publisher's snapshot takes."""

    host: int
    pinned: int
    device: int
    disk: int


@dataclass(frozen=True, repr=False)
class PullReport(_Report):
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

    def __repr__(self) -> str:
        if not self.changed:
            return f"PullReport(version={self.version}, was there)"
        before = "nothing" if self.from_version is None else str(self.from_version)
        repaired = f', repaired: "{self.repair_reason}"' if self.repaired else ""
        return f"PullReport(version={self.version}, from {before}, {human_bytes(self.bytes)} in {self.seconds:.3g} s{repaired})"


@dataclass(frozen=True)
class ReplicaState(_Report):
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

    @property
    def identity(self) -> Identity:
        """What is held."""
        return Identity(self.run, self.version, self.manifest)


@dataclass(frozen=True)
class ReplicaStatus(_Report):
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


@dataclass(frozen=True, repr=False)
class Entry(_Counted):
    """What a delta says of one tensor, or of one box of it."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    """Of the box; empty: all of the tensor."""
    extent: tuple[int, ...]
    codec: str
    whole: bool
    """The base has no such tensor: this brings it."""
    num_changed: int
    num_elements: int
    bytes: int

    def __repr__(self) -> str:
        box = f" box {list(self.offset)}+{list(self.extent)}" if self.offset else ""
        changed = "whole" if self.whole else f"{self.num_changed:,} changed ({percent(self.num_changed, self.num_elements)})"
        return f"{self.tensor}  {self.dtype} {list(self.shape)}{box}  {changed}  {human_bytes(self.bytes)}  {self.codec}"


@dataclass(frozen=True, repr=False)
class DiffReport(_Counted):
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

    def __repr__(self) -> str:
        share = percent(self.num_changed, self.num_elements)
        return f"DiffReport({self.num_changed:,} of {self.num_elements:,} changed ({share}), {human_bytes(self.bytes)})"


@dataclass(frozen=True, repr=False)
class ApplyReport(_Report):
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
        return f"ApplyReport({self.num_patched:,} of {plural(self.num_tensors, 'tensor')} patched, {self.num_changed:,} elements)"


@dataclass(frozen=True)
class Difference(_Report):
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


@dataclass(frozen=True, repr=False)
class VerifyReport(_Report):
    """The outcome of comparing two checkpoints bit by bit; true when they are the same."""

    num_tensors: int
    num_elements: int
    num_different: int
    weights_bytes: int
    differences: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if self:
            return f"VerifyReport(bit-identical: {plural(self.num_tensors, 'tensor')}, {plural(self.num_elements, 'element')})"
        return f"VerifyReport({plural(len(self.differences), 'tensor')} differ, first {self.differences[0]})"


@dataclass(frozen=True)
class TensorSpec(_Report):
    """A tensor without its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SideFile(_Report):
    """A file of a version beside its weights: a configuration, a tokenizer."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part(_Report):
    """An object of a version, a merged delta or an anchor."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, repr=False)
class Manifest(_Counted):
    """The commit record of a version."""

    run: str
    version: int
    base: int | None
    """The version that its delta goes onto; None: it is stored whole."""
    full: bool
    reason: str
    created: str
    publisher: str
    parts: tuple[Part, ...]
    files: tuple[SideFile, ...]
    """All that it has beside its weights."""
    bytes: int
    num_tensors: int
    num_elements: int
    num_changed: int
    seconds: float
    codec: str
    quantization: str
    """How the weights were quantised, JSON, see docs/quantised.md; empty: they are the trainer's."""
    state: str
    manifest: str
    """sha-256 of this record."""
    parent: str
    anchor: int
    """The newest version stored whole when this was committed."""
    anchor_bytes: int
    chain_bytes: int
    """Of all versions up to this one."""
    signed_by: str
    """The public key that it says it is signed with; empty: none. True where keys are trusted."""

    @property
    def identity(self) -> Identity:
        """Which version of which run it is."""
        return Identity(self.run, self.version, self.manifest)

    @property
    def line(self) -> str:
        """For a list of versions."""
        return f"{self.version:>6}  {self.created}  {human_bytes(self.bytes):>8}  {self._what}"

    @property
    def _what(self) -> str:
        return f"full ({self.reason})" if self.full else percent(self.num_changed, self.num_elements)

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, {self._what}, {human_bytes(self.bytes)}, {self.created})"


@dataclass(frozen=True)
class Hop(_Report):
    """One step of a plan: fetch these parts, be at `version`."""

    kind: Literal["delta", "merged", "anchor"]
    from_version: int | None
    """What it goes onto; None: it is a whole version."""
    version: int
    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, repr=False)
class Plan(_Report):
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

    def __repr__(self) -> str:
        return f"Plan(version={self.version}, {plural(len(self.hops), 'hop')}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class Kept(_Report):
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
class Waiting(_Report):
    """Why objects of versions that are gone are not deleted yet."""

    why: Literal["grace period", "lease", "recent", "unreadable heartbeat"]
    replica: str
    """Whose lease it is."""
    until: int
    """When the last of them may go, in seconds since 1970 by the store's clock; 0: not known."""
    num_objects: int
    bytes: int


@dataclass(frozen=True, repr=False)
class GcReport(_Report):
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

    def __repr__(self) -> str:
        deleted = f"{plural(self.num_deleted, 'object')} deleted ({human_bytes(self.deleted_bytes)})"
        return f"GcReport({plural(self.num_versions, 'version')} removed, {deleted}, {self.num_noted:,} noted)"


@dataclass(frozen=True)
class MergedDelta(_Report):
    """One delta for several versions."""

    base: int
    version: int
    bytes: int
    separate_bytes: int
    """Of the versions that it spans."""
    written: bool
    skipped: str
    """Why it was not written."""


@dataclass(frozen=True, repr=False)
class CompactReport(_Report):
    """What `Chain.compact` did."""

    merged: tuple[MergedDelta, ...]
    """Written or skipped now."""
    num_there: int
    """Those that were there before."""
    seconds: float

    def __repr__(self) -> str:
        written = sum(one.written for one in self.merged)
        return f"CompactReport({plural(written, 'merged delta')} written, {self.num_there:,} there before)"


@dataclass(frozen=True)
class AnchorReport(_Report):
    """What `Chain.anchor` did."""

    version: int
    written: bool
    """False: it was stored whole already."""
    bytes: int
    num_files: int
    seconds: float


@dataclass(frozen=True, repr=False)
class FsckReport(_Report):
    """What `Chain.fsck` found; true when nothing is damaged."""

    problems: tuple[str, ...]
    """Damage: something that was published cannot be had as it was."""
    warnings: tuple[str, ...]
    """Unusual, but nothing is lost."""
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

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        what = f"{plural(self.num_versions, 'version')}, {self.num_decoded:,} decoded"
        if self:
            return f"FsckReport(sound: {what})"
        return f"FsckReport(DAMAGED: {what}, {plural(len(self.problems), 'problem')}, first: {self.problems[0]})"


@dataclass(frozen=True, repr=False)
class MirrorReport(_Report):
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
    collected: GcReport | None
    """What the mirror's own retention removed then."""
    seconds: float

    def __repr__(self) -> str:
        copied = plural(self.num_objects - self.num_there, "object")
        return f"MirrorReport({self.kind} {self.version}, {copied}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class RepairReport(_Report):
    """What `Mirror.repair` looked at, and what it copied again."""

    num_versions: int
    num_hops: int
    num_objects: int
    num_repaired: int
    repaired_bytes: int


@dataclass(frozen=True)
class Foreign(_Report):
    """A version in another project's files."""

    dialect: str
    version: int
    base: int | None
    """None: it is whole, or the dialect does not tell."""
    full: bool
    encoding: str
    checksum: str
    """Empty: it has none."""
    num_tensors: int
    num_files: int
    file_bytes: int


@dataclass(frozen=True, repr=False)
class ImportReport(_Report):
    """A version that was imported."""

    version: int
    base: bool
    """It is the checkpoint that the first version is applied to."""
    source: Foreign | None
    """What was read; None: the base, or there is no file of it."""
    published: PublishReport
    read_seconds: float
    """To read it, and to patch tensors with it."""
    seconds: float

    def __repr__(self) -> str:
        none = "the base" if self.base else "no file"
        what = none if self.source is None else f"{self.source.encoding}, {human_bytes(self.source.file_bytes)}"
        return f"ImportReport(version={self.version}, from {what}, to {human_bytes(self.published.bytes)})"


@dataclass(frozen=True, repr=False)
class ExportReport(_Report):
    """A version that was exported."""

    target: Foreign
    note: str
    """What its reader needs to have."""
    seconds: float

    @property
    def version(self) -> int:
        """Its number, there and here."""
        return self.target.version

    def __repr__(self) -> str:
        target = self.target
        return f"ExportReport(version={target.version}, {target.dialect} {target.encoding}, {human_bytes(target.file_bytes)})"


@dataclass(frozen=True)
class Shipped(_Report):
    """What became of a version at one replica."""

    name: str
    address: str
    rank: int | None
    """In the group that carried it; None: it was not in it."""
    version: int | None
    """That it holds; None: nothing, or it does not say."""
    bytes: int
    """Sent to it since the version before was committed."""
    seconds: float
    """From the commit until it held the version."""
    error: str
    """Empty: it holds the version."""


@dataclass(frozen=True)
class ShipReport(_Report):
    """What became of the newest version."""

    version: int | None
    carrier: str
    """Empty: nobody was there to carry it to."""
    epoch: int
    """How many groups there were so far."""
    bytes: int
    """That went to the whole group at once."""
    replicas: tuple[Shipped, ...]
    phases: tuple[Phase, ...]
    """Since the first object was put: "encode" (to the commit), "send", "apply"."""
    warnings: tuple[str, ...]
    """One for each replica that does not hold it, and why."""
