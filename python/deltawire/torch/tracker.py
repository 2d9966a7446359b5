"""Which parameters an optimizer could have changed."""

from __future__ import annotations

from typing import Any

from torch.utils.weak import WeakTensorKeyDictionary


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
