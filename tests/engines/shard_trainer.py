"""A trainer of two ranks, whose versions go straight into the workers of an engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import deltawire as dw
from deltawire.torch import ShardPublisher

SECRET = "known to both"
RANKS, WORKERS = 2, 2


class ShardTrainer:
    """Ranks that hold rows of each tensor, as threads. `folder` always has the checkpoint of the newest version."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder, self._steps = folder, 0
        self.weights = load_file(folder / "model.safetensors")
        self._ranks: list[ShardPublisher] = []
        address = f"127.0.0.1:{port}"
        for rank in range(RANKS):
            options: dict[str, Any] = {"rank": rank, "ranks": RANKS, "secret": SECRET, "backend": "gloo"}
            held = {name: _rows(tensor, rank) for name, tensor in self.weights.items()}
            self._ranks.append(ShardPublisher(held, address, engine_workers=WORKERS, timeout=120, **options))
            address = self._ranks[0].address
        self.port = int(address.rpartition(":")[2])

    def step(self) -> int:
        """Some weights move; the version that is served then."""
        self._steps += 1
        generator = torch.Generator().manual_seed(self._steps)
        for tensor in self.weights.values():
            bits = tensor.view(torch.int16)
            bits ^= (torch.rand(tensor.shape, generator=generator) < 0.02).to(torch.int16) * 9
        save_file(self.weights, self.folder / "model.safetensors", metadata={"format": "pt"})
        return self.publish()

    def publish(self) -> int:
        with ThreadPoolExecutor(RANKS) as pool:
            published = list(pool.map(lambda one: one.publish(), self._ranks))
        assert [one.errors for one in published] == [{}] * RANKS
        return published[0].version

    def close(self) -> None:
        for one in reversed(self._ranks):
            one.close()


def _rows(tensor: torch.Tensor, rank: int) -> dw.Tensor:
    """A view: what the whole tensor becomes, its ranks hold."""
    size = -(-tensor.shape[0] // RANKS)
    offset = (rank * size,) + (0,) * (tensor.dim() - 1)
    return dw.Tensor(tensor[rank * size : (rank + 1) * size], shape=tuple(tensor.shape), offset=offset)
