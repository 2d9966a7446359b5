"""From what a trainer hands over to the tensors of one publish."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from deltawire import _core
from deltawire.choice import Choice
from deltawire.errors import InvalidArgument
from deltawire.ranks import Ranks
from deltawire.tensors import Source, Tensor, named_tensors, readable

Result = TypeVar("Result")


class Reader:
    """For arrays of any kind; `deltawire.torch` has one that knows modules, shards and what was not touched."""

    cuda_stream = 0

    def __init__(self, choice: Choice, ranks: Ranks | None) -> None:
        if choice.select.trainable_only:
            raise InvalidArgument("trainable_only: a torch module knows what is trainable, arrays do not")
        self._choice = choice
        self.ranks = ranks

    def together(self, call: Callable[[], Result]) -> Result:
        """What `call` gives; where there are ranks, a failure of one is raised by all."""
        return call() if self.ranks is None else self.ranks.all_or_none(call)

    def read(self, source: Source) -> list[_core.Tensor]:
        """This rank's tensors as they are now; a failure of one rank is raised by all."""
        return self.together(lambda: readable(self._choice.renamed(self._chosen(source))))

    def compare(self, source: Source, checkpoint: str) -> str:
        """Of a reader that quantises: where the checkpoint is not what the model is quantised to, in words; empty: nowhere."""
        return ""

    def published(self) -> str:
        """What `read` gave last is the newest version. Gives what is to be said of it; empty: nothing."""
        return ""

    def failed(self) -> None:
        """It is not, or nobody knows."""

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Around what may fail between `read` and `published`."""
        try:
            yield
        except BaseException:
            self.failed()
            raise

    def _chosen(self, source: Source) -> Iterator[tuple[str, Any]]:
        for name, value in named_tensors(source):
            if self._choice.has(name):
                yield name, cast(value, self._choice.cast)


def cast(value: Any, dtype: str | None) -> Any:
    """The array as one of that dtype if it holds floats; integers stay what they are."""
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    if dtype is None or tensor.cast is not None or tensor.dtype is not None:
        return value
    name = str(getattr(tensor.array, "dtype", "")).removeprefix("torch.")
    return replace(tensor, cast=dtype) if name in ("float64", "float32", "float16", "bfloat16") else value


def reader_for(source: Source | None, choice: Choice, group: Any, **options: Any) -> Reader:
    """One for torch where torch is in use, or is needed to quantise; it is not imported to find out."""
    if "torch" not in sys.modules and options.get("quantizer") is None:
        ranks = None if group is None else Ranks(group)
        return Reader(choice, ranks if ranks is not None and ranks.world > 1 else None)
    from deltawire.torch.ranks import ranks_of
    from deltawire.torch.reader import TorchReader

    return TorchReader(choice, ranks_of(source, group), source, **options)
