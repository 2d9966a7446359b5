"""Deltas between two states in memory, and between two checkpoints on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

from deltawire import _core
from deltawire._internal.options import Path
from deltawire._internal.output import Progress, callback_of, human_bytes, percent, plural
from deltawire._internal.tensors import Source, readable, writable
from deltawire.reports import ApplyReport, DiffReport, Entry, VerifyReport

_SHOWN = 10  # entries in a repr


class Delta:
    """Changes between two states. Immutable; from `diff` or `Delta.open(path)`."""

    def __init__(self, core: _core.Delta) -> None:
        self._core = core
        self.entries: tuple[Entry, ...] = tuple(map(Entry.of, core.entries))
        """Sorted by tensor."""

    @classmethod
    def open(cls, path: Path) -> Delta:
        """A delta on disk, one file or a folder of parts, checked.

        >>> import tempfile, numpy as np, deltawire as dw
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dw.diff({"w": np.zeros(9)}, {"w": np.ones(9)}).save(f"{folder}/delta.safetensors")
        ...     len(dw.Delta.open(f"{folder}/delta.safetensors"))
        1
        """
        return cls(_core.load_delta(os.fspath(path)))

    @property
    def removed(self) -> tuple[str, ...]:
        """Tensors missing from the new state."""
        return tuple(self._core.removed)

    @property
    def base(self) -> str:
        """Digest of the old state."""
        return self._core.base

    @property
    def target(self) -> str:
        """Digest of the new state, if known."""
        return self._core.target

    @property
    def bytes(self) -> int:
        """Size of the payloads."""
        return self._core.bytes

    @property
    def num_changed(self) -> int:
        """Changed elements."""
        return sum(entry.num_changed for entry in self.entries)

    def apply_(self, tensors: Source, *, threads: int = 0, progress: Progress = False) -> ApplyReport:
        """Patch arrays in place: all tensors of the old state.

        All is checked before anything is written: `BaseMismatch` for another state. `InvalidArgument` for new, removed or
        reshaped tensors; use `apply_delta`.
        """
        return ApplyReport.of(self._core.apply(writable(tensors), threads=threads, progress=callback_of(progress, "apply")))

    def save(self, path: str | os.PathLike[str], *, part_bytes: int = 1 << 30) -> None:
        """Write one file if `path` ends in ".safetensors", else a folder."""
        self._core.save(os.fspath(path), part_bytes)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        if not self.entries and not self.removed:
            return "Delta(nothing changed)"
        elements = sum(entry.num_elements for entry in self.entries)
        lines = [
            f"Delta({plural(len(self), 'tensor')}, {self.num_changed:,} of {plural(elements, 'element')} changed "
            f"({percent(self.num_changed, elements)}), {human_bytes(self.bytes)})"
        ]
        lines += [f"  {entry}" for entry in self.entries[:_SHOWN]]
        if len(self) > _SHOWN:
            lines.append(f"  ... and {len(self) - _SHOWN:,} more")
        lines += [f"  {name}  removed" for name in self.removed]
        return "\n".join(lines)


def diff(
    old: Source,
    new: Source,
    *,
    codec: str = "auto",
    threads: int = 0,
    progress: Progress = False,
) -> Delta:
    """What changed between two states, bit by bit.

    >>> import numpy as np, deltawire as dw
    >>> old = {"w": np.zeros(1000, np.float32), "b": np.zeros(4)}
    >>> new = {"w": old["w"].copy(), "b": old["b"]}
    >>> new["w"][[3, 5]] = 1
    >>> delta = dw.diff(old, new)
    >>> delta
    Delta(1 tensor, 2 of 1,000 elements changed (0.200 %), 14 B)
      w  F32 [1000]  2 changed (0.200 %)  14 B  gaps
    >>> delta.apply_(old)
    ApplyReport(1 of 2 tensors patched, 2 elements)
    >>> np.array_equal(old["w"], new["w"])
    True
    """
    return Delta(
        _core.diff(
            readable(old),
            readable(new),
            codec=codec,
            threads=threads,
            progress=callback_of(progress, "diff"),
        )
    )


def diff_checkpoints(
    old: Path,
    new: Path,
    out: Path,
    *,
    codec: str = "auto",
    threads: int = 0,
    part_bytes: int = 1 << 30,
    progress: Progress = False,
) -> DiffReport:
    """Write the changes between two checkpoints to `out`, as `Delta.save` does."""
    return DiffReport.of(
        _core.diff_checkpoints(
            os.fspath(old),
            os.fspath(new),
            os.fspath(out),
            codec=codec,
            threads=threads,
            part_bytes=part_bytes,
            progress=callback_of(progress, "diff"),
        )
    )


def apply_delta(delta: Path, base: Path, out: Path, *, threads: int = 0, progress: Progress = False) -> ApplyReport:
    """Apply `delta` to the checkpoint `base`, into `out`. `BaseMismatch`: made from another base."""
    return ApplyReport.of(
        _core.apply_delta(
            os.fspath(delta),
            os.fspath(base),
            os.fspath(out),
            threads=threads,
            progress=callback_of(progress, "apply"),
        )
    )


def verify(a: Path, b: Path, *, threads: int = 0, progress: Progress = False) -> VerifyReport:
    """Compare two checkpoints bit by bit; the report is true if they are equal.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> version = dw.Publisher("memory:verify", {"w": np.arange(4)}).publish()
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     for folder in a, b:
    ...         with dw.Replica("memory:verify", folder) as replica:
    ...             pulled = replica.pull()
    ...     dw.verify(a, b)
    VerifyReport(bit-identical: 1 tensor, 4 elements)
    """
    return VerifyReport.of(
        _core.verify_checkpoints(os.fspath(a), os.fspath(b), threads=threads, progress=callback_of(progress, "verify"))
    )
