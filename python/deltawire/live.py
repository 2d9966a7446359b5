"""What a replica patches in place."""

from __future__ import annotations

import sys
from typing import Any

from deltawire.choice import Choice
from deltawire.errors import InvalidArgument
from deltawire.tensors import Source, named_tensors


class Live:
    """Arrays under their names in the chain; `deltawire.torch` has one that knows modules."""

    cuda_stream = 0

    def __init__(self, source: Source, choice: Choice) -> None:
        if choice.select.trainable_only:
            raise InvalidArgument("trainable_only: a torch module knows what is trainable, arrays do not")
        chosen = ((name, value) for name, value in named_tensors(source) if choice.has(name))
        self.pairs: list[tuple[str, Any]] = list(choice.renamed(chosen))

    def written(self) -> None:
        """They may have been written to."""

    def moved(self) -> str | None:
        """The first that lies elsewhere in memory than `pairs` say: numpy's never do."""
        return None

    def look_again(self) -> None:
        """Let `pairs` be where the arrays are now."""


def live_tensors(source: Source, choice: Choice) -> Live:
    """Those of torch where torch is in use; it is not imported to find out."""
    if "torch" not in sys.modules:
        return Live(source, choice)
    from deltawire.torch.live import LiveModel

    return LiveModel(source, choice)
