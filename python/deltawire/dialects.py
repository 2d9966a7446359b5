"""Imports and exports other projects' files (dialects), like `deltawire import` and `deltawire export`.

>>> import deltawire as dw
>>> "slime" in dw.dialects.names()
True
"""

from __future__ import annotations

import os
from typing import Any, Literal

from deltawire import _core
from deltawire._internal.options import Anchors, Keys, PublishOptions, explained
from deltawire._internal.output import Progress, callback_of
from deltawire._internal.steps import Steps
from deltawire._internal.stores import StoreLike, store_handle
from deltawire.errors import InvalidArgument
from deltawire.reports import ExportReport, ImportReport

Path = str | os.PathLike[str]


def names() -> dict[str, str]:
    """Names and descriptions of the dialects."""
    return {str(name): str(title) for name, title in _core.dialects().items()}


class Importer(Steps[ImportReport]):
    """Imports another project's versions into a chain, with the same numbers. It can be killed and reopened.

    `BaseMismatch`: a version does not fit the chain. `NotFound`: a version is missing while later ones exist.
    """

    _core: _core.Importer

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
        memory_bytes: int = 0,
        anchors: Anchors | Literal["only"] | None = None,
        keys: Keys | None = None,
        codec: str = "auto",
        progress: Progress = False,
        options: PublishOptions | None = None,
    ) -> None:
        """Read versions of `dialect` from the folder or bucket `source`.

        `base`: the checkpoint before the first version. `work`: folder for the model. `first`, `last`: versions. `source_moved`:
        the same source has a new place. `source_may_be_empty`: publish the base before the first version exists.
        `missing_is_unchanged`: as in TRL. `memory_bytes`: for new tensors; beyond it a file. The rest is as in `Publisher`;
        `options`: only `limits`, `part_bytes`, `plain_files`, `single_writer`.
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
            memory_bytes=memory_bytes,
            anchors=anchors or Anchors(),
            keys=keys or Keys(),
            codec=codec,
            options=_import_options(options or PublishOptions()),
            progress=callback_of(progress, "import"),
        )

    def next(self) -> ImportReport | None:
        """Import the next version; None: none yet."""
        report = self._core.next()
        return None if report is None else ImportReport.of(report)

    @property
    def head(self) -> int | None:
        """The chain's newest version."""
        return self._core.head


class Exporter(Steps[ExportReport]):
    """Writes versions of a chain as another project's files, with the same numbers. It can be killed.

    `Conflict`: the files belong to another chain. `Unsupported` names what the dialect cannot express, and the alternative.
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
        """Write to the folder or bucket `target`.

        `work`: folder for the model. `encoding`, `checksum`: the dialect's names. `buffer_bytes`: file size. `full`: every
        version whole; `anchor_every`: every N-th.
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

    def next(self) -> ExportReport | None:
        """Export the next version; None: none yet."""
        report = self._core.next()
        return None if report is None else ExportReport.of(report)

    @property
    def num_skipped(self) -> int:
        """Versions already there."""
        return int(self._core.num_skipped)


def import_dialect(dialect: str, source: StoreLike, store: StoreLike, **options: Any) -> list[ImportReport]:
    """Import all existing versions; `options` as in `Importer`.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> weights = {"w": np.arange(1000, dtype=np.float32)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with dw.Publisher("memory:export", weights) as publisher:
    ...         seed = publisher.publish()
    ...         weights["w"][7] = 1.5
    ...         version = publisher.publish()
    ...     with dw.Replica("memory:export", f"{folder}/base") as replica:
    ...         pulled = replica.pull(0)
    ...     exported = dw.dialects.export_dialect("slime", "memory:export", f"{folder}/deltas", work=f"{folder}/export")
    ...     imported = dw.dialects.import_dialect(
    ...         "slime", f"{folder}/deltas", "memory:import", base=f"{folder}/base", work=f"{folder}/import"
    ...     )
    >>> exported[0].target.encoding, [(one.version, one.published.num_changed) for one in imported]
    ('xor', [(0, 0), (1, 1)])
    """
    with Importer(dialect, source, store, **options) as importer:
        return list(importer)


def export_dialect(dialect: str, store: StoreLike, target: StoreLike, **options: Any) -> list[ExportReport]:
    """Export all existing versions; `options` as in `Exporter`."""
    with Exporter(dialect, store, target, **options) as exporter:
        return list(exporter)


def _import_options(given: PublishOptions) -> PublishOptions:
    usable = ("limits", "part_bytes", "plain_files", "single_writer")
    if given != PublishOptions(**{name: getattr(given, name) for name in usable}):
        raise InvalidArgument(f"Importer: options: supports only {', '.join(usable)}")
    return given


def _work_folder(given: Path | None, name: str) -> str:
    """The same default as in the command line tool."""
    if given is not None:
        return os.fspath(given)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "deltawire", name)
