"""What nobody can have written to since the last version, so that it need not be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from deltawire.torch.shards import Form, Piece
from deltawire.torch.tracker import Tracker


@dataclass(frozen=True)
class Mark:
    """Where a parameter lies and how often it was written to. Two that are equal stand for the same bits."""

    storage: StorageWeakRef  # as long as this is held, no other storage has its address
    place: tuple[Any, ...]
    versions: tuple[int, int]  # of a `DTensor` torch counts writes by itself, and those to its shard at the shard
    steps: int

    @staticmethod
    def of(piece: Piece, tracker: Tracker) -> Mark | None:
        """None for what may be written to without a trace: buffers, and trainable parameters that the tracker does not watch."""
        tensor, local = piece.whole, piece.local
        if not isinstance(tensor, torch.nn.Parameter) or tensor.is_inference():
            return None
        if tensor.requires_grad and not tracker.watches(tensor):
            return None
        place = (local.data_ptr(), local.dtype, local.shape, local.stride())
        versions = (tensor._version, local._version)
        return Mark(StorageWeakRef(local.untyped_storage()), place, versions, tracker.steps_of(tensor))


class Untouched:
    """Marks of the last version; none without a tracker, and none after a failure."""

    def __init__(self, tracker: Tracker | None) -> None:
        self._tracker = tracker
        self._known: dict[Form, Mark] = {}
        self._pending: dict[Form, Mark] = {}

    def find(self, pieces: Iterable[Piece]) -> set[Form]:
        """Those that are what the last version has. All must be asked for at once."""
        self._pending = {}
        if self._tracker is None:
            return set()
        for piece in pieces:
            if (mark := Mark.of(piece, self._tracker)) is not None:
                self._pending[piece.form] = mark
        return {form for form, mark in self._pending.items() if self._known.get(form) == mark}

    def published(self) -> None:
        """What `find` was asked for is the last version now."""
        self._known, self._pending = self._pending, {}

    def forget(self) -> None:
        """Nothing is known: everything is compared the next time."""
        self._known, self._pending = {}, {}
