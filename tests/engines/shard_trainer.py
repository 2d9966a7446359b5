"""A trainer of two ranks, from whose memory the workers of an engine fetch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import torch
from safetensors.torch import load_file, save_file

import deltawire as dw
from deltawire.torch import RankStore

RANKS, WORKERS = 2, 2


@dataclass(frozen=True)
class _Rank:
    rank: int
    size: int
    given: list[bytes]
    barrier: Barrier

    def all_gather(self, data: bytes) -> list[bytes]:
        self.given[self.rank] = data
        self.barrier.wait(timeout=240)
        every = list(self.given)
        self.barrier.wait(timeout=240)
        return every


class ShardTrainer:
    """Ranks that hold rows of each tensor, as threads. `folder` always has the checkpoint of the newest version."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._steps = folder, 0
        self.weights = load_file(folder / "model.safetensors")
        given, barrier = [b""] * RANKS, Barrier(RANKS)
        group = [_Rank(rank, RANKS, given, barrier) for rank in range(RANKS)]
        self._pool = ThreadPoolExecutor(RANKS)
        self._stores = list(self._pool.map(RankStore, group))
        self.url = self._stores[0].url
        held = [{name: _rows(tensor, rank) for name, tensor in self.weights.items()} for rank in range(RANKS)]
        self._ranks = [dw.Publisher(one.store, held[rank], group=group[rank]) for rank, one in enumerate(self._stores)]
        self.publish()

    def step(self) -> int:
        """Change some weights and publish; return the version."""
        self._steps += 1
        generator = torch.Generator().manual_seed(self._steps)
        for tensor in self.weights.values():
            bits = tensor.view(torch.int16)
            bits ^= (torch.rand(tensor.shape, generator=generator) < 0.02).to(torch.int16) * 9
        save_file(self.weights, self.folder / "model.safetensors", metadata={"format": "pt"})
        return self.publish()

    def publish(self) -> int:
        return next(iter({one.number for one in self._pool.map(lambda one: one.publish(), self._ranks)}))

    def close(self) -> None:
        for one in (*self._ranks, *self._stores):
            one.close()
        self._pool.shutdown()


def _rows(tensor: torch.Tensor, rank: int) -> dw.Tensor:
    """A view, so that the ranks see changes of the whole tensor."""
    size = -(-tensor.shape[0] // RANKS)
    offset = (rank * size,) + (0,) * (tensor.dim() - 1)
    return dw.Tensor(tensor[rank * size : (rank + 1) * size], shape=tuple(tensor.shape), offset=offset)
