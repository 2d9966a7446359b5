"""Other projects' files (dialects) and chains: the same as `deltawire import` and `deltawire export`.

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
    """Names of the dialects, and what each is."""
    return {str(name): str(title) for name, title in _core.dialects().items()}


class Importer(Steps[ImportReport]):
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
        codec: str = "auto",
        progress: Progress = False,
        options: PublishOptions | None = None,
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

        The rest is as in `Publisher`; of `options`: `limits`, `part_bytes`, `plain_files` and `single_writer`.
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
            codec=codec,
            options=_import_options(options or PublishOptions()),
            progress=callback_of(progress, "import"),
        )

    def next(self) -> ImportReport | None:
        """Import the next version; None: there is none yet, or `last` is imported."""
        report = self._core.next()
        return None if report is None else ImportReport.of(report)

    @property
    def head(self) -> int | None:
        """The newest version of the chain; None: nothing was imported yet."""
        head: int | None = self._core.head
        return head


class Exporter(Steps[ExportReport]):
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

    def next(self) -> ExportReport | None:
        """Export the next version; None: the chain has no more yet, or `last` is exported."""
        report = self._core.next()
        return None if report is None else ExportReport.of(report)

    @property
    def num_skipped(self) -> int:
        """Versions that were there."""
        return int(self._core.num_skipped)


def import_dialect(dialect: str, source: StoreLike, store: StoreLike, **options: Any) -> list[ImportReport]:
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
    """Export all versions that are there; `options` are those of `Exporter`."""
    with Exporter(dialect, store, target, **options) as exporter:
        return list(exporter)


def _import_options(given: PublishOptions) -> PublishOptions:
    usable = ("limits", "part_bytes", "plain_files", "single_writer")
    if given != PublishOptions(**{name: getattr(given, name) for name in usable}):
        raise InvalidArgument(f"Importer: of dw.PublishOptions it takes {', '.join(usable)} alone")
    return given


def _work_folder(given: Path | None, name: str) -> str:
    """As the command line tool chooses it."""
    if given is not None:
        return os.fspath(given)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "deltawire", name)
