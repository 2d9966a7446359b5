"""A torch model that a replica patches in place."""

from __future__ import annotations

from typing import Any

import torch

from deltawire.choice import Choice
from deltawire.errors import Unsupported
from deltawire.live import Live
from deltawire.torch.gpu import stream_of
from deltawire.torch.shards import is_sharded
from deltawire.torch.state import chosen_tensors


class LiveModel(Live):
    """The tensors of a model, and torch's knowledge that they were written to."""

    def __init__(self, source: Any, choice: Choice) -> None:
        self.cuda_stream = stream_of(source)
        self.pairs = chosen_tensors(source, choice)
        for name, value in self.pairs:
            if is_sharded(value):
                raise Unsupported(f'tensor "{name}": is sharded; replicas patch whole tensors')

    def written(self) -> None:
        """Count it as one write in place, for autograd and for `track`."""
        tensors = [value for _, value in self.pairs if isinstance(value, torch.Tensor) and not value.is_inference()]
        torch.autograd.graph.increment_version(tensors)
