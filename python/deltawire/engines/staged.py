"""A version that waits beside an engine's weights, and what a worker has of other workers' to decode the next one."""

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
"""Boxes of tensors, by offset, that belong to other workers: a payload may code them together with what is held."""

_MARGIN_BYTES = 64 << 20  # of one tensor; a larger rest is read from the checkpoint


@dataclass
class Staged:
    """A version that waits beside the weights to be written."""

    version: Identity
    base: Identity | None
    exchanges: list[Exchange]
    reload: list[tuple[str, torch.Tensor]]  # what the engine has to load itself: the local checkpoint may go on meanwhile
    from_deltas: bool  # else found by comparing all weights with the local checkpoint
    from_local: bool = False  # the engine has to load the whole local checkpoint
    written: Collection[int] | None = None  # memory that is written to; None: what the engine loads is not known
    margins: Margins = field(default_factory=dict)  # of this version, for tensors that could not be decoded without
    undecoded: Collection[str] = ()  # whose margins stayed what they were
    # What was done with it.
    swapping: int = 0  # exchanges that were begun,
    swapped: int = 0  # and that ended
    undo: Undo | None = None  # of what the engine loaded

    @property
    def num_changed(self) -> int:
        """Elements that are exchanged."""
        return sum(exchange.num_changed for exchange in self.exchanges)

    def write(self) -> None:
        """The pause's own work."""
        for exchange in self.exchanges:
            self.swapping += 1
            exchange.swap()
            self.swapped += 1

    @property
    def reloads(self) -> bool:
        """Whether the engine's own loader has something to do."""
        return self.from_local or bool(self.reload)

    @property
    def is_lost(self) -> bool:
        """What was there before cannot be put back: a swap ended half-way."""
        return self.swapping != self.swapped

    def take_back(self) -> None:
        """The last step first."""
        if self.undo is not None:
            self.undo.put_back()
        for exchange in reversed(self.exchanges[: self.swapped]):
            exchange.swap()
        self.swapping = self.swapped = 0


@dataclass
class Pause:
    """What the last update cost, in seconds. Only `swap`, `reload` and `proof` are work; `wait` is for the other workers."""

    version: int
    staged_before: bool  # else it was staged in the pause
    changed: int
    stage: float = 0.0
    wait: float = 0.0
    swap: float = 0.0
    reload: float = 0.0
    proof: float = 0.0
    total: float = 0.0


@dataclass
class Report:
    """What a worker says of itself."""

    served: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None
    suspect: str | None = None
    """Why what is served may not be what it is said to be: a proof that failed, and was not made up for yet."""
    staged_device_bytes: int = 0
    staged_host_bytes: int = 0
    last_pause: dict[str, Any] | None = None
    error: str | None = None
    proof: dict[str, Any] | None = None
    summed: bool = False
    """What is served was written without a proof, and is added up now: `prove` has only to compare sums."""
    parameters: int = 0
    tensors: int = 0
    reloaded: list[str] = field(default_factory=list)


def read_margins(checkpoint: LocalCheckpoint, the_map: EngineMap, known: Margins, missing: Mapping[str, list[Any]]) -> Margins:
    """Those of tensors of which boxes are `missing`, the `known` ones too: all of one version."""
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
