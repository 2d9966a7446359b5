"""Which parameters an optimizer could have changed, and what need not be compared for that reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from deltawire.torch.shards import Form, Piece


class Tracker:
    """Watches optimizers: which parameters took part in a `step()`. `track` makes one; `Publisher(tracker=...)` uses it."""

    def __init__(self, optimizers: tuple[Any, ...]) -> None:
        self._optimizers = [_innermost(optimizer) for optimizer in optimizers]
        self._steps: Any = WeakTensorKeyDictionary()
        self._hooks = [
            register(lambda optimizer, *_: self._note(optimizer))
            for optimizer in self._optimizers
            for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook)
        ]

    def watched(self) -> set[int]:
        """The parameters that the optimizers have now, by `id`."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        return {id(parameter) for group in groups for parameter in group["params"]}

    def steps_of(self, parameter: Any) -> int:
        """How often a step could have changed it: a number that grows with each."""
        return int(self._steps.get(parameter, 0))

    def close(self) -> None:
        """Watch no longer: all that is trainable is compared again."""
        for hook in self._hooks:
            hook.remove()
        self._optimizers = []

    def _note(self, optimizer: Any) -> None:
        # Before and after: a closure makes gradients during the step, some optimizers drop them there.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._steps[parameter] = self.steps_of(parameter) + 1


def track(*optimizers: Any) -> Tracker:
    """Note during each `step()` which parameters it could change, so that `publish()` skips the others.

    A parameter is skipped, not even read, if it lies where it lay at the last version, torch's version counter says that it was
    not written to since, it took part in no step, and it is frozen or one of these optimizers'. Everything else is compared bit
    by bit: buffers, trainable parameters that no tracked optimizer has, and everything after a failure.

    Torch counts what is written in place: `copy_`, `load_state_dict`, `init`, views of it, a replica that patches it. It does
    not count what goes through `.data`, numpy or raw pointers: those who write to parameters that way, other than in a tracked
    optimizer's step, must not track.

    >>> import torch, deltawire as dw
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    >>> frozen = model[0].requires_grad_(False)
    >>> optimizer = torch.optim.AdamW(model[1].parameters())
    >>> publisher = dw.Publisher("memory:tracked", model, tracker=dw.torch.track(optimizer))
    >>> seed = publisher.publish()
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> version = publisher.publish()                   # reads model[1] alone
    >>> dw.Chain("memory:tracked").changes(1).keys()
    dict_keys(['1.bias', '1.weight'])
    """
    return Tracker(optimizers)


def _innermost(optimizer: Any) -> Any:
    """What accelerate and others wrap: steps of theirs are steps of it."""
    while not hasattr(optimizer, "register_step_post_hook") and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


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
