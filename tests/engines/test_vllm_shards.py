"""A real vLLM server whose host fetches what its two workers hold from the two ranks of a trainer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from servers import ENGINES, VllmServer

if not (ENGINES / "vllm" / "serve").exists():
    pytest.skip("vLLM is not installed: make test-engines", allow_module_level=True)

from shard_trainer import WORKERS, ShardTrainer
from trainers import make_model


def settings_of(folder: Path, trainer: ShardTrainer) -> dict[str, Any]:
    return {"local": str(folder / "served"), "store": trainer.url, "shards": True, "interval": 1}


def test_versions_go_from_ranks_to_workers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "trainer")
    shutil.copytree(folder, tmp_path / "served")
    trainer = ShardTrainer(folder)
    settings = settings_of(tmp_path, trainer)
    with VllmServer(tmp_path / "served", tmp_path / "server.log", deltawire=settings, tp=WORKERS) as running:
        before = answers(running)  # it serves what it was started from
        for version in (1, 2):
            assert trainer.step() == version
            assert_served(running, version)
        status = running.status()
        assert [worker["last_pause"]["staged_before"] for worker in status["workers"]] == [True] * WORKERS
        ours = answers(running)

        trainer.close()
        status = running.wait_until(lambda said: all(worker["host_error"] for worker in said["workers"]))
        assert trainer.url in status["error"]
        assert_served(running, 2)
    assert_as_fresh(ours, folder, tmp_path)
    assert [one["logprobs"] for one in before] != [one["logprobs"] for one in ours]


def test_packed_experts_arrive_whole(tmp_path: Path) -> None:
    """On a CPU vLLM packs experts: the host receives whole versions, and vLLM's own reload loads them."""
    folder = make_model(tmp_path / "trainer", "moe")
    shutil.copytree(folder, tmp_path / "served")
    trainer = ShardTrainer(folder)
    settings = settings_of(tmp_path, trainer)
    with VllmServer(tmp_path / "served", tmp_path / "server.log", deltawire=settings, tp=WORKERS) as running:
        for version in (1, 2):
            assert trainer.step() == version
            assert_served(running, version)
        workers = running.status()["workers"]
        for worker in workers:
            assert any(".mlp.experts." in name for name in worker["reloaded"])
        assert running.log.read_text(errors="replace").count("shards.fallback: ") == WORKERS, "once, by each"
        ours = answers(running)
    trainer.close()
    assert_as_fresh(ours, folder, tmp_path)


def assert_as_fresh(ours: list[dict[str, Any]], folder: Path, logs: Path) -> None:
    """Compare with a server started from the trainer's checkpoint."""
    with VllmServer(folder, logs / "fresh.log", tp=WORKERS) as fresh:
        theirs = answers(fresh)
    for own, other in zip(ours, theirs, strict=True):
        assert own["text"] == other["text"]
        assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)


def answers(server: VllmServer) -> list[dict[str, Any]]:
    return [server.complete(prompt, 16) for prompt in ("hello", "what is", "12345")]


def assert_served(server: VllmServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], len(status["workers"])) == (version, [], WORKERS)
    # If vLLM packs all weights for the CPU's kernels, none can be proven bit by bit, and the status says so.
    assert proven["num_tensors"] > 0 or "shards.fallback" in server.log.read_text(errors="replace")
    assert proven["num_tensors"] + len(proven["unproven"]) > 0
