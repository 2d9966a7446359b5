"""Ranks that publish together: who publishes what, and whose failure it was."""

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
    """The ranks of a group. Only forms, reports and failures go through it; weights go to the store, from each rank."""

    def __init__(self, group: Group) -> None:
        if not all(hasattr(group, name) for name in ("rank", "size", "all_gather")):
            raise InvalidArgument(
                f"group: a {type(group).__name__} is neither a torch process group nor a dw.Group (rank, size, all_gather)"
            )
        self._group = group
        self.rank, self.world = group.rank, group.size
        self._forms: list[list[Any]] = [[] for _ in range(self.world)]
        self._shared: list[Any] | None = None

    def all_gather(self, data: bytes) -> list[bytes]:
        """What all ranks give, by rank."""
        try:
            return list(self._group.all_gather(data))
        except (RuntimeError, OSError) as error:  # a rank that ended, or the group's time-out, as torch and others say it
            first = str(error).strip().split("\n")[0]
            raise Unavailable(f"rank {self.rank} of {self.world}: another rank does not answer: {first}") from error

    def gather(self, about: str, words: Any) -> list[Any]:
        """What all ranks say, this one too, by rank. All must say it `about` the same."""
        head = f"deltawire {about}\n".encode()
        gathered = self.all_gather(head + pickle.dumps(words))
        for rank, data in enumerate(gathered):
            if not data.startswith(head):
                raise InvalidArgument(
                    f"rank {self.rank} reports {about}, rank {rank} something different: every rank must publish every version"
                )
        return [pickle.loads(data[len(head) :]) for data in gathered]

    def all_or_none(self, call: Callable[[], Result]) -> Result:
        """What `call` gives, on every rank. Where one of them fails all do, with an error that names it."""
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
        """Which of the forms are this rank's to publish: of those that hold the same box, replicas, the lowest rank has it."""
        forms = list(forms)
        news = self.gather("boxes", None if forms == self._shared else forms)  # most of the time there are none
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
        """Of all tensors that a rank holds something of, as of the last `share_out`."""
        return {form.name for theirs in self._forms for form in theirs}


def _words(failure: Exception) -> tuple[int, str]:
    """Code and message, for the others."""
    if isinstance(failure, Error):
        return failure.exit_status, failure.message
    return Cancelled.exit_status, f"{type(failure).__name__}: {failure}"
