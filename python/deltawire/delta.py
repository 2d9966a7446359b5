"""Deltas between two states in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deltawire import _core
from deltawire.progress import Progress, callback_of
from deltawire.reports import Applied
from deltawire.tensors import Source, readable, writable
from deltawire.units import human_bytes, percent, plural

_SHOWN = 10  # entries in a repr


@dataclass(frozen=True, repr=False)
class Entry:
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

    @classmethod
    def of(cls, report: dict[str, Any]) -> Entry:
        """From what the extension reports."""
        return cls(**{**report, **{key: tuple(report[key]) for key in ("shape", "offset", "extent")}})

    @property
    def density(self) -> float:
        """The share of elements that changed."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0

    def __repr__(self) -> str:
        box = f" box {list(self.offset)}+{list(self.extent)}" if self.offset else ""
        changed = "whole" if self.whole else f"{self.num_changed:,} changed ({percent(self.num_changed, self.num_elements)})"
        return f"{self.tensor}  {self.dtype} {list(self.shape)}{box}  {changed}  {human_bytes(self.bytes)}  {self.codec}"


class Delta:
    """What changed between two states: entries, one for each tensor that did. From `diff` or `load`; immutable."""

    def __init__(self, core: _core.Delta) -> None:
        self._core = core
        self.entries: tuple[Entry, ...] = tuple(map(Entry.of, core.entries))
        """Sorted by tensor."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Tensors that the new state does not have."""
        return tuple(self._core.removed)

    @property
    def base(self) -> str:
        """Digest of the state that it was made from."""
        return self._core.base

    @property
    def target(self) -> str:
        """Digest of the state that it leads to; empty in parts of a chain, whose manifest has it."""
        return self._core.target

    @property
    def bytes(self) -> int:
        """Of all payloads."""
        return self._core.bytes

    @property
    def num_changed(self) -> int:
        """Elements."""
        return sum(entry.num_changed for entry in self.entries)

    def apply_(self, tensors: Source, *, threads: int = 0, progress: Progress = False) -> Applied:
        """Patch arrays in place: all tensors of the state that the delta was made from.

        Nothing is written before everything is decoded and proven: `BaseMismatch` when the arrays hold another state.
        `InvalidArgument` when tensors come, go or change their form; that is for `apply_delta`.
        """
        return Applied(**self._core.apply(writable(tensors), threads=threads, progress=callback_of(progress, "apply")))

    def save(self, path: str | os.PathLike[str], *, part_bytes: int = 1 << 30) -> None:
        """Write one file when the name ends in ".safetensors", else a folder of parts. It appears whole or not at all."""
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
    Applied(1 of 2 tensors patched, 2 elements)
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


def load(path: str | os.PathLike[str]) -> Delta:
    """A delta on disk, one file or a folder of parts, checked.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dw.diff({"w": np.zeros(9)}, {"w": np.ones(9)}).save(f"{folder}/delta.safetensors")
    ...     len(dw.load(f"{folder}/delta.safetensors"))
    1
    """
    return Delta(_core.load_delta(os.fspath(path)))
