"""The workers of one engine: they go to a version together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from deltawire.errors import Cancelled, Error, InternalError


class Group(Protocol):
    """Processes that can tell each other something small."""

    rank: int
    size: int

    def gather(self, words: Any) -> list[Any]:
        """What all of them say, this one too, by rank."""


class Alone:
    """A worker without others."""

    rank, size = 0, 1

    def gather(self, words: Any) -> list[Any]:
        """What this one says."""
        return [words]


class TorchGroup:
    """A process group of torch, on the host: small words need no GPU, and do not wait for one."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self._dist, self._group = dist, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, words: Any) -> list[Any]:
        """What all ranks say."""
        gathered: list[Any] = [None] * self.size
        self._dist.all_gather_object(gathered, words, group=self._group)
        return gathered


def agree(group: Group, call: Callable[[], Any]) -> Any:
    """What `call` gives, if it succeeds on all workers; else every worker raises: none goes on alone, to wait for the others."""
    result, failure = None, None
    try:
        result = call()
    except Exception as error:  # the engine's own code may raise anything
        failure = as_error(error)
    raise_for_all(group.gather(None if failure is None else str(failure)), failure)
    return result


def as_error(error: Exception) -> Error:
    """The engine's own code may raise anything."""
    return error if isinstance(error, Error) else InternalError(f"{type(error).__name__}: {error}")


def raise_for_all(words: Sequence[str | None], failure: Exception | None) -> None:
    """This one's failure, or that another has one: `words` are what all said of it."""
    if failure is not None:
        raise failure
    others = [f"worker {rank}: {word}" for rank, word in enumerate(words) if word is not None]
    if others:
        raise Cancelled("; ".join(others))
