"""Ranks that publish together: which rank publishes which part, and how all learn of a failure."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

from deltawire.errors import Cancelled, Error, InvalidArgument, Unavailable, from_status

Result = TypeVar("Result")
Form = TypeVar("Form", bound=Hashable)


class Group(Protocol):
    """Interface for ranks without a torch process group, such as mpi4py or JAX.

    All ranks call `all_gather` equally often, from the publishing thread. If one ends, it must raise on the others.
    """

    @property
    def rank(self) -> int:
        """This process, from 0."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def all_gather(self, data: bytes) -> Sequence[bytes]:
        """The data of every process, by rank."""


class Ranks:
    """The ranks of a group, which exchange forms, reports and errors. Each rank writes weights to the store itself."""

    def __init__(self, group: Group) -> None:
        if not all(hasattr(group, name) for name in ("rank", "size", "all_gather")):
            raise InvalidArgument(
                f"group: {type(group).__name__} is neither a torch process group nor a dw.Group (rank, size, all_gather)"
            )
        self._group = group
        self.rank, self.world = group.rank, group.size
        self._forms: list[list[Any]] = [[] for _ in range(self.world)]
        self._shared: list[Any] | None = None

    def all_gather(self, data: bytes) -> list[bytes]:
        """The data of all ranks, by rank."""
        try:
            return list(self._group.all_gather(data))
        except (RuntimeError, OSError) as error:  # a rank has ended, or the group timed out
            first = str(error).strip().split("\n")[0]
            raise Unavailable(f"rank {self.rank} of {self.world}: another rank does not answer: {first}") from error

    def gather(self, about: str, words: Any) -> list[Any]:
        """The objects of all ranks, by rank. All ranks must pass the same `about`."""
        head = f"deltawire {about}\n".encode()
        gathered = self.all_gather(head + pickle.dumps(words))
        for rank, data in enumerate(gathered):
            if not data.startswith(head):
                raise InvalidArgument(
                    f"rank {self.rank} sent {about}, but rank {rank} something else; every rank must publish every version"
                )
        return [pickle.loads(data[len(head) :]) for data in gathered]

    def all_or_none(self, call: Callable[[], Result]) -> Result:
        """The result of `call`. If it fails on a rank, every rank raises an error that names that rank."""
        result, failure = None, None
        try:
            result = call()
        except Exception as error:
            failure = error
        words = self.gather("failures", None if failure is None else _words(failure))
        if failure is not None:
            raise failure
        for rank, said in enumerate(words):
            if said is not None:
                raise from_status(said[0], f"rank {rank} failed: {said[1]}")
        return cast(Result, result)

    def share_out(self, forms: Iterable[Form]) -> set[Form]:
        """The forms that this rank publishes: the lowest of the ranks that hold the same box does."""
        forms = list(forms)
        news = self.gather("boxes", None if forms == self._shared else forms)  # usually None: unchanged
        self._shared = forms
        for rank, theirs in enumerate(news):
            if theirs is not None:
                self._forms[rank] = theirs
        lower = {form for theirs in self._forms[: self.rank] for form in theirs}
        return set(forms) - lower

    def forget(self) -> None:
        """After a failure: another rank may not have received this one's forms."""
        self._shared = None

    @property
    def names(self) -> set[str]:
        """Tensors of which any rank held a part in the last `share_out`."""
        return {form.name for theirs in self._forms for form in theirs}


def _words(failure: Exception) -> tuple[int, str]:
    """Code and message, for other ranks."""
    if isinstance(failure, Error):
        return failure.exit_status, failure.message
    return Cancelled.exit_status, f"{type(failure).__name__}: {failure}"
