"""Other projects' files (dialects) and chains: the same as `deltawire import` and `deltawire export`.

>>> import deltawire as dw
>>> "slime" in dw.dialects()
True
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from deltawire import _core
from deltawire.explain import explained
from deltawire.options import Anchors, Keys, Limits
from deltawire.progress import Progress, callback_of
from deltawire.reports import Version
from deltawire.stores import StoreLike, store_handle
from deltawire.units import human_bytes

Path = str | os.PathLike[str]
Moved = TypeVar("Moved")


def dialects() -> dict[str, str]:
    """Names of the dialects, and what each is."""
    return {str(name): str(title) for name, title in _core.dialects().items()}


@dataclass(frozen=True)
class Foreign:
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
class Imported:
    """A version that was imported."""

    version: int
    base: bool
    """It is the checkpoint that the first version is applied to."""
    source: Foreign | None
    """What was read; None: the base, or there is no file of it."""
    published: Version
    read_seconds: float
    """To read it, and to patch tensors with it."""
    seconds: float

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Imported:
        """From what the extension reports."""
        source = None if report["source"] is None else Foreign(**report["source"])
        return cls(**{**report, "source": source, "published": Version.of(report["published"])})

    def __repr__(self) -> str:
        none = "the base" if self.base else "no file"
        what = none if self.source is None else f"{self.source.encoding}, {human_bytes(self.source.file_bytes)}"
        return f"Imported(version={self.version}, from {what}, to {human_bytes(self.published.bytes)})"


@dataclass(frozen=True, repr=False)
class Exported:
    """A version that was exported."""

    target: Foreign
    note: str
    """What its reader needs to have."""
    seconds: float

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Exported:
        """From what the extension reports."""
        return cls(**{**report, "target": Foreign(**report["target"])})

    @property
    def version(self) -> int:
        """Its number, there and here."""
        return self.target.version

    def __repr__(self) -> str:
        target = self.target
        return f"Exported(version={target.version}, {target.dialect} {target.encoding}, {human_bytes(target.file_bytes)})"


class _Bridge(ABC, Generic[Moved]):
    """What moves versions one by one, in order, between a chain and another project's files."""

    _core: Any

    @abstractmethod
    def next(self) -> Moved | None:
        """Move the next version; None: there is none yet, or `last` was moved."""

    def __iter__(self) -> Iterator[Moved]:
        """All that are there now."""
        return iter(self.next, None)

    def follow(self, *, interval: float = 1.0, timeout: float | None = None) -> Iterator[Moved]:
        """Move whatever is new, for ever. Ends after `last`, or after `timeout` seconds without a new version."""
        last_new = time.monotonic()
        while not _core.is_ending():
            moved = self.next()
            if moved is not None:
                yield moved
                last_new = time.monotonic()
            elif self.done or (timeout is not None and time.monotonic() - last_new >= timeout):
                return
            else:
                time.sleep(interval if timeout is None else min(interval, timeout))

    @property
    def done(self) -> bool:
        """Whether `last` was moved."""
        return bool(self._core.done)

    def close(self) -> None:
        """Let go of the work folder and the stores."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Importer(_Bridge[Imported]):
    """Turns another project's versions into versions of a chain: the same numbers, in order, each exactly once.

    What is committed decides what comes next, so it may be killed at any instant and opened again. A version is committed if all
    of it could be read and every digest that it has is right. `BaseMismatch`: it does not belong to what the chain holds.
    `NotFound`: the next one is missing, though later ones are there.
    """

    @explained
    def __init__(
        self,
        dialect: str,
        source: StoreLike,
        store: StoreLike,
        *,
        base: Path | None = None,
        work: Path | None = None,
        first: int | None = None,
        last: int | None = None,
        source_moved: bool = False,
        source_may_be_empty: bool = False,
        missing_is_unchanged: bool = False,
        settle_seconds: float = 0.0,
        memory_bytes: int = 0,
        anchors: Anchors | Literal["only"] | None = None,
        keys: Keys | None = None,
        limits: Limits | None = None,
        codec: str = "auto",
        part_bytes: int = 64 << 20,
        plain_files: bool = False,
        single_writer: bool = False,
        progress: Progress = False,
    ) -> None:
        """Open the folder or bucket `source`, which holds versions of `dialect`, and the chain at `store`.

        `base` is the checkpoint that the first version is applied to; a new run needs it, unless its first version is whole.
        `work` is a folder where the model is kept as the chain's head has it (None: ~/.cache/deltawire/imports); made anew when
        it is not there. `first` and `last` are numbers of versions. `source_moved` says that the source is the one that was
        imported so far, though at another place. Where nothing tells whether a version is still being written, it is taken when
        its files have not changed for `settle_seconds` (`math.inf`: never; it waits for its mark or the next version).
        New tensors are made in memory up to `memory_bytes` (0: a quarter of the machine's), else in a file.

        With `source_may_be_empty` a chain begins with its base though the source has no version yet. With `missing_is_unchanged`
        a version that the source does not have, though it has later ones, changed nothing: TRL writes no file then.

        The rest is as in `Publisher`.
        """
        self._core = _core.Importer(
            dialect,
            store_handle(source),
            store_handle(store),
            base="" if base is None else os.fspath(base),
            work=_work_folder(work, "imports"),
            per_run=work is None,
            first=first,
            last=last,
            source_moved=source_moved,
            source_may_be_empty=source_may_be_empty,
            missing_is_unchanged=missing_is_unchanged,
            settle_seconds=settle_seconds,
            memory_bytes=memory_bytes,
            anchors=anchors or Anchors(),
            keys=keys or Keys(),
            limits=limits or Limits(),
            codec=codec,
            part_bytes=part_bytes,
            plain_files=plain_files,
            single_writer=single_writer,
            progress=callback_of(progress, "import"),
        )

    def next(self) -> Imported | None:
        """Import the next version; None: there is none yet, or `last` is imported."""
        report = self._core.next()
        return None if report is None else Imported.of(report)

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was imported yet."""
        head: int | None = self._core.head
        return head

    @property
    def run(self) -> str:
        """The id of the chain's run."""
        return str(self._core.run)


class Exporter(_Bridge[Exported]):
    """Writes versions of a chain in another project's files: the same numbers, in order.

    What is there already is not written again; that it is of this chain is checked (`Conflict`). May be killed at any instant.
    `Unsupported`, before anything of a version is written, names what the dialect cannot express, and the way out.
    """

    @explained
    def __init__(
        self,
        dialect: str,
        store: StoreLike,
        target: StoreLike,
        *,
        work: Path | None = None,
        first: int | None = None,
        last: int | None = None,
        encoding: str = "",
        checksum: str = "",
        buffer_bytes: int = 512 << 20,
        full: bool = False,
        anchor_every: int | None = None,
        memory_bytes: int = 0,
        threads: int = 0,
        keys: Keys | None = None,
        progress: Progress = False,
    ) -> None:
        """Open the chain at `store`, and the folder or bucket `target` for files of `dialect`.

        `work` is a folder where the model is kept as the last exported version has it (None: ~/.cache/deltawire/exports).
        `encoding` and `checksum` go by the dialect's names, its defaults if empty; files are cut at `buffer_bytes` where the
        dialect does that. With `full` every version is whole; where the dialect has whole versions in between, each
        `anchor_every`-th is (None: as its own writer does). `keys` checks the records that are read.
        """
        self._core = _core.Exporter(
            dialect,
            store_handle(store),
            store_handle(target),
            work=_work_folder(work, "exports"),
            first=first,
            last=last,
            encoding=encoding,
            checksum=checksum,
            buffer_bytes=buffer_bytes,
            full=full,
            anchor_every=anchor_every,
            memory_bytes=memory_bytes,
            threads=threads,
            keys=keys or Keys(),
            progress=callback_of(progress, "export"),
        )

    def next(self) -> Exported | None:
        """Export the next version; None: the chain has no more yet, or `last` is exported."""
        report = self._core.next()
        return None if report is None else Exported.of(report)

    @property
    def num_skipped(self) -> int:
        """Versions that were there."""
        return int(self._core.num_skipped)


def import_dialect(dialect: str, source: StoreLike, store: StoreLike, **options: Any) -> list[Imported]:
    """Import all versions that are there; `options` are those of `Importer`.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> weights = {"w": np.arange(1000, dtype=np.float32)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with dw.Publisher("memory:export", weights) as publisher:
    ...         seed = publisher.publish()
    ...         weights["w"][7] = 1.5
    ...         version = publisher.publish()
    ...     with dw.Replica("memory:export", f"{folder}/base") as replica:
    ...         pulled = replica.pull(0)
    ...     exported = dw.export_dialect("slime", "memory:export", f"{folder}/deltas", work=f"{folder}/export")
    ...     imported = dw.import_dialect(
    ...         "slime", f"{folder}/deltas", "memory:import", base=f"{folder}/base", work=f"{folder}/import"
    ...     )
    >>> exported[0].target.encoding, [(one.version, one.published.num_changed) for one in imported]
    ('xor', [(0, 0), (1, 1)])
    """
    with Importer(dialect, source, store, **options) as importer:
        return list(importer)


def export_dialect(dialect: str, store: StoreLike, target: StoreLike, **options: Any) -> list[Exported]:
    """Export all versions that are there; `options` are those of `Exporter`."""
    with Exporter(dialect, store, target, **options) as exporter:
        return list(exporter)


def _work_folder(given: Path | None, name: str) -> str:
    """As the command line tool chooses it."""
    if given is not None:
        return os.fspath(given)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "deltawire", name)
