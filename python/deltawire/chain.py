"""Looking at a chain: its versions and what they changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltawire import _core
from deltawire.stores import StoreLike, store_handle
from deltawire.units import human_bytes, percent, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 10  # versions in a repr


@dataclass(frozen=True)
class Part:
    """An object of a version."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class TensorSpec:
    """A tensor without its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Manifest:
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
    bytes: int
    num_tensors: int
    num_elements: int
    num_changed: int
    seconds: float
    codec: str
    state: str
    manifest: str
    """sha-256 of this record."""
    parent: str
    anchor: int
    """The newest version stored whole when this was committed."""
    anchor_bytes: int
    chain_bytes: int
    """Of all versions up to this one."""

    @classmethod
    def of(cls, report: dict[str, Any]) -> Manifest:
        """From what the extension reports."""
        return cls(**{**report, "parts": tuple(Part(*part) for part in report["parts"])})

    @property
    def density(self) -> float:
        """The share of elements that changed."""
        return self.num_changed / self.num_elements if self.num_elements else 0.0

    @property
    def line(self) -> str:
        """For a list of versions."""
        return f"{self.version:>6}  {self.created}  {human_bytes(self.bytes):>8}  {self._what}"

    @property
    def _what(self) -> str:
        return f"full ({self.reason})" if self.full else percent(self.num_changed, self.num_elements)

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, {self._what}, {human_bytes(self.bytes)}, {self.created})"


class Chain:
    """The versions of a run. `chain[12]` is the manifest of version 12, `chain[-1]` of the newest; iteration gives all.

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

    def __init__(self, store: StoreLike, *, trust_key: str | os.PathLike[str] = "") -> None:
        """Open the chain at `store`; `NotFound` when there is none. With `trust_key` its records must be signed."""
        self._store = store_handle(store)
        self._core = _core.Chain(self._store, os.fspath(trust_key))

    @property
    def run(self) -> str:
        """The run's id."""
        return self._core.run

    @property
    def head(self) -> int | None:
        """The newest version; None: nothing was published yet."""
        return self._core.head()

    @property
    def versions(self) -> list[int]:
        """The versions that are there, oldest first: those that were pruned are not."""
        return self._core.versions()

    def tensors(self, version: int) -> list[TensorSpec]:
        """Names, dtypes and shapes of a version's tensors."""
        return [TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in self._core.tensors(version)]

    def changes(self, version: int) -> dict[str, float]:
        """The share of elements that changed, by tensor; empty for a version that is stored whole. Reads its parts."""
        return {name: changed / elements for name, (changed, elements) in self._core.changes(version).items()}

    def num_changed(self, version: int) -> dict[str, int]:
        """How many elements changed, by tensor: as `changes`."""
        return {name: changed for name, (changed, _) in self._core.changes(version).items()}

    def plot(self, last: int | None = None) -> Figure:
        """Draw density and bytes per version, and a heat map of changes per layer (matplotlib). `last`: only so many versions."""
        from deltawire.plot import plot_chain

        return plot_chain(self, last)

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
