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
    """Converted from a dict of the extension by field types: lists become tuples; dicts and tuples become records."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Self:
        """From a dict of the extension."""
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
        """The share of elements that changed; 0 for a whole version."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0


@dataclass(frozen=True)
class Phase(_Report):
    """When a step began and ended, in seconds since the call. Phases overlap."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, repr=False)
class PublishReport(_Counted):
    """A published version."""

    number: int
    bytes: int
    full: bool
    """Stored whole."""
    reason: str
    committed: bool
    """False: nothing changed."""
    anchored: bool
    run: str
    manifest: str
    num_tensors: int
    num_changed_tensors: int
    num_added: int
    num_removed: int
    num_reshaped: int
    """New shape or dtype."""
    num_elements: int
    num_changed: int
    """Added tensors count whole."""
    weights_bytes: int
    """The model's size."""
    num_parts: int
    seconds: float
    phases: tuple[Phase, ...]
    dense_float32: bool
    """Most float32 weights changed."""
    warnings: tuple[str, ...]
    """Problems that did not prevent the commit."""
    note: str
    """What was not published."""
    codec: str

    @property
    def identity(self) -> Identity:
        """Pass this to callers that wait for the version."""
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
    """Result of a pull."""

    version: int
    from_version: int | None
    changed: bool
    """False: already there."""
    bytes: int
    run: str
    manifest: str
    repaired: bool
    repair_reason: str
    recovered: bool
    num_hops: int
    num_tensors: int
    num_changed: int
    weights_bytes: int
    staged_device_bytes: int
    """GPU memory of what was prepared."""
    seconds: float
    patch_seconds: float
    """While weights were written."""
    phases: tuple[Phase, ...]
    path: Path | None
    """None: in memory."""
    whole: bool
    """Began with a whole version."""
    num_side_files: int
    num_ahead: int
    """Tensors from `prepare_ahead`."""
    set_aside: tuple[str, ...]
    """New places of conflicting files."""

    def __repr__(self) -> str:
        if not self.changed:
            return f"PullReport(version={self.version}, was there)"
        before = "nothing" if self.from_version is None else str(self.from_version)
        repaired = f', repaired: "{self.repair_reason}"' if self.repaired else ""
        return f"PullReport(version={self.version}, from {before}, {human_bytes(self.bytes)} in {self.seconds:.3g} s{repaired})"


@dataclass(frozen=True)
class ReplicaState(_Report):
    """The contents of a local checkpoint, from `.deltawire/state.json`."""

    run: str
    version: int
    manifest: str
    state: str
    """Digest of all weights."""
    patching_to: int | None
    """Files are incomplete."""
    updated: str
    serving: Identity | None
    """What the engine loaded."""

    @property
    def identity(self) -> Identity:
        """The version it holds."""
        return Identity(self.run, self.version, self.manifest)


@dataclass(frozen=True)
class ReplicaStatus(_Report):
    """A replica's heartbeat, not authenticated."""

    name: str
    held: Identity | None
    serving: Identity | None
    """What its engine loaded."""
    fetching: int | None
    seen: int
    """Unix seconds."""
    age_seconds: int
    """By the store's clock."""
    interval_seconds: int
    gone: bool
    """Silent for three intervals."""
    host: str
    pid: int
    error: str
    """Of the last pull."""


@dataclass(frozen=True)
class Holder(_Report):
    """A known replica."""

    name: str
    held: Identity | None
    missing: str
    """Why not; empty: it holds it."""


@dataclass(frozen=True)
class HoldersReport(_Report):
    """Which replicas hold a version; true if enough."""

    version: Identity
    replicas: tuple[Holder, ...]
    num_holding: int
    complete: bool
    seconds: float

    def __bool__(self) -> bool:
        return self.complete


@dataclass(frozen=True, repr=False)
class Entry(_Counted):
    """A delta of one tensor or part."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    """Empty: whole tensor."""
    extent: tuple[int, ...]
    codec: str
    whole: bool
    """New tensor."""
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
    num_parts: int
    base: str
    target: str
    metadata_changed: tuple[str, ...]
    """`__metadata__` keys that differ."""

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
    target_known: bool

    def __repr__(self) -> str:
        return f"ApplyReport({self.num_patched:,} of {plural(self.num_tensors, 'tensor')} patched, {self.num_changed:,} elements)"


@dataclass(frozen=True)
class Difference(_Report):
    """How a tensor differs."""

    tensor: str
    what: str
    """"only in A", "dtype", ...; empty: elements."""
    num_different: int
    num_elements: int
    coordinate: tuple[int, ...] | None
    """First difference."""
    old_bits: str
    new_bits: str


@dataclass(frozen=True, repr=False)
class VerifyReport(_Report):
    """Result of a comparison; true if equal."""

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
    """A tensor without data."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Part(_Report):
    """A stored object."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class SideFile(Part):
    """A file beside the weights, such as a tokenizer."""


@dataclass(frozen=True, repr=False)
class Manifest(_Counted):
    """The commit record of a version."""

    run: str
    version: int
    base: int | None
    """None: stored whole."""
    full: bool
    reason: str
    created: str
    publisher: str
    parts: tuple[Part, ...]
    files: tuple[SideFile, ...]
    bytes: int
    num_tensors: int
    num_elements: int
    num_changed: int
    seconds: float
    codec: str
    quantization: str
    """JSON; empty: none."""
    state: str
    manifest: str
    parent: str
    anchor: int
    """The newest whole version then."""
    anchor_bytes: int
    chain_bytes: int
    """All versions so far."""
    signed_by: str
    """Verified only with trusted keys."""

    @property
    def identity(self) -> Identity:
        """Version and run."""
        return Identity(self.run, self.version, self.manifest)

    @property
    def line(self) -> str:
        """One line for lists."""
        return f"{self.version:>6}  {self.created}  {human_bytes(self.bytes):>8}  {self._what}"

    @property
    def _what(self) -> str:
        return f"full ({self.reason})" if self.full else percent(self.num_changed, self.num_elements)

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, {self._what}, {human_bytes(self.bytes)}, {self.created})"


@dataclass(frozen=True)
class Hop(_Report):
    """One step: fetch these parts to reach `version`."""

    kind: Literal["delta", "merged", "anchor"]
    from_version: int | None
    """None: whole version."""
    version: int
    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, repr=False)
class Plan(_Report):
    """The cheapest path to a version."""

    version: int
    hops: tuple[Hop, ...]
    """Empty: nothing to do."""
    bytes: int
    all_deltas_bytes: int
    anchor_bytes: int
    notes: tuple[str, ...]
    """Damaged records."""

    def __repr__(self) -> str:
        return f"Plan(version={self.version}, {plural(len(self.hops), 'hop')}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class Kept(_Report):
    """Why `Chain.gc` keeps versions."""

    why: Literal["newest", "pinned", "lease"]
    replica: str
    until: int
    """Unix seconds."""
    first: int
    last: int
    anchor: int


@dataclass(frozen=True)
class Waiting(_Report):
    """Why objects are not deleted yet."""

    why: Literal["grace period", "lease", "recent", "unreadable heartbeat"]
    replica: str
    until: int
    """Unix seconds; 0: unknown."""
    num_objects: int
    bytes: int


@dataclass(frozen=True, repr=False)
class GcReport(_Report):
    """What `Chain.gc` removes."""

    head: int
    kept: tuple[tuple[int, int], ...]
    """Ranges."""
    reasons: tuple[Kept, ...]
    num_versions: int
    num_hops: int
    num_noted: int
    """To be deleted later."""
    noted_bytes: int
    num_deleted: int
    deleted_bytes: int
    num_waiting: int
    """Not deleted yet."""
    waiting: tuple[Waiting, ...]
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
    """Of the single versions."""
    written: bool
    skipped: str
    """Reason."""


@dataclass(frozen=True, repr=False)
class CompactReport(_Report):
    """What `Chain.compact` did."""

    merged: tuple[MergedDelta, ...]
    num_there: int
    seconds: float

    def __repr__(self) -> str:
        written = sum(one.written for one in self.merged)
        return f"CompactReport({plural(written, 'merged delta')} written, {self.num_there:,} there before)"


@dataclass(frozen=True)
class AnchorReport(_Report):
    """What `Chain.anchor` did."""

    version: int
    written: bool
    """False: already whole."""
    bytes: int
    num_files: int
    seconds: float


@dataclass(frozen=True, repr=False)
class FsckReport(_Report):
    """What `Chain.fsck` found; true if nothing is damaged."""

    problems: tuple[str, ...]
    """Lost or damaged."""
    warnings: tuple[str, ...]
    head: int
    num_versions: int
    num_hops: int
    num_parts: int
    num_files: int
    bytes: int
    num_decoded: int
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
    """One copied version, merged delta or anchor."""

    kind: Literal["version", "merged", "anchor"]
    version: int
    base: int | None
    num_objects: int
    num_there: int
    """Already there."""
    bytes: int
    """Copied."""
    begins: bool
    """First, or after a gap."""
    collected: GcReport | None
    seconds: float

    def __repr__(self) -> str:
        copied = plural(self.num_objects - self.num_there, "object")
        return f"MirrorReport({self.kind} {self.version}, {copied}, {human_bytes(self.bytes)})"


@dataclass(frozen=True)
class RepairReport(_Report):
    """What `Mirror.repair` did."""

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
    """None: whole or unknown."""
    full: bool
    encoding: str
    checksum: str
    num_tensors: int
    num_files: int
    file_bytes: int


@dataclass(frozen=True, repr=False)
class ImportReport(_Report):
    """An imported version."""

    version: int
    base: bool
    """The base checkpoint."""
    source: Foreign | None
    """None: no file."""
    published: PublishReport
    read_seconds: float
    seconds: float

    def __repr__(self) -> str:
        none = "the base" if self.base else "no file"
        what = none if self.source is None else f"{self.source.encoding}, {human_bytes(self.source.file_bytes)}"
        return f"ImportReport(version={self.version}, from {what}, to {human_bytes(self.published.bytes)})"


@dataclass(frozen=True, repr=False)
class ExportReport(_Report):
    """An exported version."""

    target: Foreign
    note: str
    """What the reader needs."""
    seconds: float

    @property
    def version(self) -> int:
        """Its number."""
        return self.target.version

    def __repr__(self) -> str:
        target = self.target
        return f"ExportReport(version={target.version}, {target.dialect} {target.encoding}, {human_bytes(target.file_bytes)})"
