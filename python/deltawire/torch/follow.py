"""A live model at the newest version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from deltawire.reports import Pull
from deltawire.stores import StoreLike
from deltawire.tensor_replica import TensorReplica
from deltawire.tensors import Source


def follow(
    store: StoreLike,
    model: Source | torch.nn.Module,
    *,
    interval: float = 5,
    until: int | None = None,
    timeout: float | None = None,
    **options: Any,
) -> Iterator[Pull]:
    """Keep a live model at the newest version: patched in place, proven by digest, one step for each version that was seen.

    `interval`, `until` and `timeout` are those of `TensorReplica.follow`, `options` those of `TensorReplica`.

    >>> import torch, deltawire as dw
    >>> trainer, server = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    >>> version = dw.Publisher("memory:followed", trainer).publish()
    >>> for pulled in dw.torch.follow("memory:followed", server, until=0):
    ...     print(pulled.version, torch.equal(server.weight, trainer.weight))
    0 True
    """
    with TensorReplica(store, model, **options) as replica:
        yield from replica.follow(interval=interval, until=until, timeout=timeout)
