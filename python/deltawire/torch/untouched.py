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
    def of(piece: Piece, steps: int) -> Mark:
        """As it is now, after so many steps that could have changed it."""
        tensor, local = piece.whole, piece.local
        place = (local.data_ptr(), local.dtype, local.shape, local.stride())
        versions = (tensor._version, local._version)
        return Mark(StorageWeakRef(local.untyped_storage()), place, versions, steps)


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
        watched = self._tracker.watched()
        for piece in pieces:
            if _leaves_traces(piece.whole, watched):
                self._pending[piece.form] = Mark.of(piece, self._tracker.steps_of(piece.whole))
        return {form for form, mark in self._pending.items() if self._known.get(form) == mark}

    def published(self) -> None:
        """What `find` was asked for is the last version now."""
        self._known, self._pending = self._pending, {}

    def forget(self) -> None:
        """Nothing is known: everything is compared the next time."""
        self._known, self._pending = {}, {}


def _leaves_traces(value: Any, watched: set[int]) -> bool:
    """Whether writes to it are known: not those to buffers, nor to trainable parameters that no tracker watches."""
    if not isinstance(value, torch.nn.Parameter) or value.is_inference():
        return False
    return not value.requires_grad or id(value) in watched
