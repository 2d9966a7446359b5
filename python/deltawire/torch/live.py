"""A torch model that a replica patches in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from deltawire._internal.reader import Choice
from deltawire._internal.replica import Live, TensorReplica
from deltawire._internal.stores import StoreLike
from deltawire._internal.tensors import Source
from deltawire.reports import PullReport
from deltawire.torch.gpu import count_write, gpu_of, refuse_several_gpus, stream_of
from deltawire.torch.shards import held_of, is_sharded, local_of
from deltawire.torch.state import chosen_tensors


class LiveModel(Live):
    """The tensors of a model, whole or this rank's shards. Tells torch when they are written to."""

    def __init__(self, source: Any, choice: Choice) -> None:
        self._source = source
        self._values = chosen_tensors(source, choice)
        self.cuda_stream = stream_of(gpu_of(value for _, value in self._values))
        self.rescan()

    def rescan(self) -> None:
        """Update `pairs` to the tensors' current memory."""
        refuse_several_gpus(self._values)
        self.pairs = [(name, held_of(name, value)) for name, value in self._values]
        self._places = [_place_of(value) for _, value in self._values]

    def moved(self) -> str | None:
        """A tensor whose memory has moved: by `model.to`, `p.data = ...`, or `fully_shard` in the first forward pass."""
        for (name, value), place in zip(self._values, self._places, strict=True):
            if _place_of(value) != place:
                return name
        return None

    def written(self) -> None:
        """Tell autograd of a write in place, and let `fully_shard` gather its tensors again."""
        tensors = [value for _, value in self._values if isinstance(value, torch.Tensor)]
        tensors += [local_of(value) for value in tensors if is_sharded(value)]
        count_write(tensors)
        if isinstance(self._source, torch.nn.Module):
            for module in self._source.modules():
                reshard = getattr(module, "reshard", None)
                if reshard is not None and hasattr(module, "unshard"):
                    reshard()


def _place_of(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    local = local_of(value) if is_sharded(value) else value
    return local.data_ptr(), local.dtype, local.shape, local.stride()


def follow(
    store: StoreLike,
    model: Source | torch.nn.Module,
    *,
    interval: float = 5,
    until: int | None = None,
    timeout: float | None = None,
    **options: Any,
) -> Iterator[PullReport]:
    """Keep a live model at the newest version; yields a report per version. Arguments as in `TensorReplica` and its `follow`.

    >>> import torch, deltawire as dw
    >>> trainer, server = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    >>> version = dw.Publisher("memory:followed", trainer).publish()
    >>> for pulled in dw.torch.follow("memory:followed", server, until=0):
    ...     print(pulled.version, torch.equal(server.weight, trainer.weight))
    0 True
    """
    with TensorReplica(store, model, **options) as replica:
        yield from replica.follow(interval=interval, until=until, timeout=timeout)
