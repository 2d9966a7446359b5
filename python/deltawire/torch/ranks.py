"""Ranks that publish together: who publishes what, and whose failure it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from deltawire.errors import Cancelled, Error, InvalidArgument, Unavailable
from deltawire.torch.shards import Form, is_sharded

Result = TypeVar("Result")


class Ranks:
    """The ranks of a process group. Only forms and failures go through it; weights go to the store, from each rank."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise InvalidArgument("group: this process is none of its ranks")
        self._forms: list[list[Form]] = [[] for _ in range(self.world)]
        self._told: list[Form] | None = None
        self.step = 0

    def all_or_none(self, call: Callable[[], Result]) -> Result:
        """What `call` gives, on every rank. Where one of them fails all do: with `Cancelled`, naming it.

        Where all fail alike, each has its own failure.
        """
        result, failure = None, None
        try:
            result = call()
        except Exception as error:
            failure = error
        words = self.tell(None if failure is None else _words(failure))
        failures = [f"rank {rank}: {word}" for rank, word in enumerate(words) if word is not None]
        if failure is not None and (len(failures) == 1 or len(set(words)) == 1):
            raise failure
        if failures:
            raise Cancelled("; ".join(failures))
        return cast(Result, result)

    def share_out(self, forms: list[Form]) -> set[Form]:
        """Which of the forms are this rank's to publish: of those that hold the same box, replicas, the lowest rank has it.

        And which publish this is, counted by all together: a rank that missed one is none behind.
        """
        news = self.tell((self.step, None if forms == self._told else forms))  # most of the time there are none
        self._told = forms
        for rank, (_, theirs) in enumerate(news):
            if theirs is not None:
                self._forms[rank] = theirs
        self.step = 1 + max(step for step, _ in news)
        lower = {form for theirs in self._forms[: self.rank] for form in theirs}
        return set(forms) - lower

    @property
    def names(self) -> set[str]:
        """Of all tensors that a rank holds something of, as of the last `share_out`."""
        return {form.name for theirs in self._forms for form in theirs}

    def tell(self, words: Any) -> list[Any]:
        """What all ranks say, this one too, by rank."""
        heard: list[Any] = [None] * self.world
        try:
            dist.all_gather_object(heard, words, group=self._group)
        except RuntimeError as error:  # as torch says it: a rank that ended, or its group's time-out
            first = str(error).strip().split("\n")[0]
            raise Unavailable(f"rank {self.rank} of {self.world}: another rank does not answer: {first}") from error
        return heard


def ranks_of(source: Any, group: Any) -> Ranks | None:
    """The ranks that hold a model; None: this process holds all of it. Without a `group`, shards are those of all processes."""
    if group is None and (not dist.is_available() or not dist.is_initialized()):
        return None
    if group is None and not _has_shards(source):
        return None
    ranks = Ranks(dist.group.WORLD if group is None else group)
    return ranks if ranks.world > 1 else None


def _has_shards(source: Any) -> bool:
    if isinstance(source, torch.nn.Module):
        return any(map(is_sharded, source.parameters()))
    return isinstance(source, Mapping) and any(map(is_sharded, source.values()))


def _words(failure: BaseException) -> str:
    return str(failure) if isinstance(failure, Error) else f"{type(failure).__name__}: {failure}"
