"""What a replica patches in place."""

from __future__ import annotations

import sys
from typing import Any

from deltawire.choice import Choice
from deltawire.tensors import Source, named_tensors


class Live:
    """Arrays under their names in the chain; `deltawire.torch` has one that knows modules."""

    cuda_stream = 0

    def __init__(self, source: Source, choice: Choice) -> None:
        chosen = ((name, value) for name, value in named_tensors(source) if choice.has(name))
        self.pairs: list[tuple[str, Any]] = list(choice.renamed(chosen))

    def written(self) -> None:
        """They may have been written to."""


def live_tensors(source: Source, choice: Choice) -> Live:
    """Those of torch where torch is in use; it is not imported to find out."""
    if "torch" not in sys.modules:
        return Live(source, choice)
    from deltawire.torch.live import LiveModel

    return LiveModel(source, choice)
