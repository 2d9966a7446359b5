"""Staged versions, reports of workers, and margins: parts of other workers that are needed to decode deltas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from deltawire._internal.identity import Identity
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.map import EngineMap, bits
from deltawire.engines.undo import Undo
from deltawire.live import Exchange

Margins = dict[str, list[tuple[tuple[int, ...], torch.Tensor]]]
"""Boxes of tensors, by offset, that belong to other workers, but share a coded tile with boxes of this worker."""

_MARGIN_BYTES = 64 << 20  # maximum per tensor; otherwise it is read from the checkpoint


@dataclass
class Staged:
    """A version that is ready to be written."""

    version: Identity
    base: Identity | None
    exchanges: list[Exchange]
    reload: list[tuple[str, torch.Tensor]]  # for the engine's loader; copies, because the checkpoint may change
    from_deltas: bool  # False: from comparing all weights with the local checkpoint
    from_local: bool = False  # the engine loads the whole local checkpoint
    written: Collection[int] | None = None  # memory that is written to; None: unknown
    margins: Margins = field(default_factory=dict)  # of this version, for tensors that need them
    undecoded: Collection[str] = ()  # tensors whose margins were not updated
    # Progress of the write.
    swapping: int = 0  # exchanges started
    swapped: int = 0  # exchanges finished
    undo: Undo | None = None  # of the engine's loader

    @property
    def num_changed(self) -> int:
        """Number of exchanged elements."""
        return sum(exchange.num_changed for exchange in self.exchanges)

    def write(self) -> None:
        """Swap all exchanges, during the pause."""
        for exchange in self.exchanges:
            self.swapping += 1
            exchange.swap()
            self.swapped += 1

    @property
    def reloads(self) -> bool:
        """Whether the engine's own loader is needed."""
        return self.from_local or bool(self.reload)

    @property
    def is_lost(self) -> bool:
        """Whether a swap failed, so that the old weights cannot be restored."""
        return self.swapping != self.swapped

    def take_back(self) -> None:
        """Revert the write, last step first."""
        if self.undo is not None:
            self.undo.put_back()
        for exchange in reversed(self.exchanges[: self.swapped]):
            exchange.swap()
        self.swapping = self.swapped = 0


@dataclass
class Pause:
    """Seconds of the last update. `wait` is for other workers."""

    version: int
    staged_before: bool  # False: staged during the pause
    changed: int
    stage: float = 0.0
    wait: float = 0.0
    swap: float = 0.0
    reload: float = 0.0
    proof: float = 0.0
    total: float = 0.0


@dataclass
class Report:
    """State of a worker."""

    served: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None
    suspect: str | None = None
    """Why the served weights may be wrong: the message of the last failed proof."""
    staged_device_bytes: int = 0
    staged_host_bytes: int = 0
    last_pause: dict[str, Any] | None = None
    error: str | None = None
    proof: dict[str, Any] | None = None
    summed: bool = False
    """Sums of weights written without a proof are ready for `prove`."""
    parameters: int = 0
    tensors: int = 0
    reloaded: list[str] = field(default_factory=list)


def read_margins(checkpoint: LocalCheckpoint, the_map: EngineMap, known: Margins, missing: Mapping[str, list[Any]]) -> Margins:
    """Read the `missing` margins, and the `known` ones of the same tensors, from the checkpoint."""
    found: Margins = {}
    for name, more in missing.items():
        tensor = bits(checkpoint.read(name))
        boxes = [*((offset, array.shape) for offset, array in known.get(name, ())), *more]
        if sum(prod(extent) for _, extent in boxes) * tensor.element_size() > _MARGIN_BYTES:
            continue
        device = the_map.arrays[the_map.windows[name][0].array].device
        for offset, extent in boxes:
            part = tensor[tuple(slice(first, first + n) for first, n in zip(offset, extent, strict=True))]
            found.setdefault(name, []).append((tuple(offset), part.clone().to(device)))
    return found
