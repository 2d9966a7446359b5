"""A real vLLM server with two workers that get their parts straight from the two ranks of a trainer."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from servers import ENGINES, VllmServer

if not (ENGINES / "vllm" / "serve").exists():
    pytest.skip("vLLM is not installed: make test-engines", allow_module_level=True)

import torch
from safetensors.torch import load_file, save_file
from trainers import make_model

import deltawire as dw
from deltawire.torch import ShardPublisher

SECRET = "known to both"
RANKS, WORKERS = 2, 2


class Trainer:
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


def test_versions_go_from_ranks_to_workers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "trainer")
    shutil.copytree(folder, tmp_path / "served")
    trainer = Trainer(folder)
    (tmp_path / "secret").write_text(SECRET + "\n")
    settings = {"local": str(tmp_path / "served"), "transport": "gloo", "shards": True, "interval": 1}
    settings |= {"secret_file": str(tmp_path / "secret"), "master_address": "127.0.0.1", "master_port": trainer.port}
    settings |= {"world_size": RANKS + WORKERS, "rank_offset": RANKS}
    with VllmServer(tmp_path / "served", tmp_path / "server.log", deltawire=settings, tp=WORKERS) as running:
        before = answers(running)  # it serves what it was started from
        for version in range(2):
            assert trainer.step() == version
            assert_served(running, version)
        status = running.status()
        assert [worker["last_pause"]["staged_before"] for worker in status["workers"]] == [True] * WORKERS

        trainer.close()
        status = running.wait_until(lambda said: all(worker["host_error"] for worker in said["workers"]))
        assert str(trainer.port) in status["error"]
        assert_served(running, 1)
        trainer = Trainer(folder, trainer.port)
        assert trainer.step() == 2  # numbers go on, and what workers missed comes whole
        assert_served(running, 2)
        ours = answers(running)
    trainer.close()
    with VllmServer(folder, tmp_path / "fresh.log", tp=WORKERS) as fresh:
        theirs = answers(fresh)
    for own, other in zip(ours, theirs, strict=True):
        assert own["text"] == other["text"]
        assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)
    assert [one["logprobs"] for one in before] != [one["logprobs"] for one in ours]


def answers(server: VllmServer) -> list[dict[str, Any]]:
    return [server.complete(prompt, 16) for prompt in ("hello", "what is", "12345")]


def assert_served(server: VllmServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], len(status["workers"])) == (version, [], WORKERS)
    assert proven["num_tensors"] > 0
