"""A real SGLang server with two workers that get their parts straight from the two ranks of a trainer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from servers import ENGINES, SglangServer

if not (ENGINES / "sglang" / "serve").exists():
    pytest.skip("SGLang is not installed: make test-engines", allow_module_level=True)

import torch
from sglang_trainer import outputs
from shard_trainer import RANKS, SECRET, WORKERS, ShardTrainer
from trainers import make_model

TWO_WORKERS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


def test_versions_go_from_ranks_to_workers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "trainer", dtype=torch.bfloat16)
    shutil.copytree(folder, tmp_path / "served")
    trainer = ShardTrainer(folder)
    settings = TWO_WORKERS | {"DELTAWIRE_LOCAL": str(tmp_path / "served"), "DELTAWIRE_TRANSPORT": "gloo"}
    settings |= {"DELTAWIRE_USE_P2P_WEIGHT_UPDATE": "1", "DELTAWIRE_SECRET": SECRET, "DELTAWIRE_INTERVAL": "1"}
    settings |= {"DELTAWIRE_MASTER_ADDRESS": "127.0.0.1", "DELTAWIRE_MASTER_PORT": str(trainer.port)}
    settings |= {"DELTAWIRE_WORLD_SIZE": str(RANKS + WORKERS), "DELTAWIRE_RANK_OFFSET": str(RANKS)}
    with SglangServer(tmp_path / "served", tmp_path / "server.log", "--tp", "2", settings=settings) as running:
        before = outputs(running)  # it serves what it was started from
        for version in range(2):
            assert trainer.step() == version
            assert_served(running, version)
        status = running.status()
        assert [worker["last_pause"]["staged_before"] for worker in status["workers"]] == [True] * WORKERS

        trainer.close()
        status = running.wait_until(lambda said: all(worker["host_error"] for worker in said["workers"]))
        assert str(trainer.port) in status["error"]
        assert_served(running, 1)
        trainer = ShardTrainer(folder, trainer.port)
        assert trainer.step() == 2  # numbers go on
        assert_served(running, 2)
        ours = outputs(running)
    trainer.close()
    with SglangServer(folder, tmp_path / "fresh.log", "--tp", "2", settings=TWO_WORKERS) as fresh:
        assert outputs(fresh) == ours
    assert before != ours


def assert_served(server: SglangServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], proven["unproven"], len(status["workers"])) == (version, [], [], WORKERS)
    assert proven["num_tensors"] > 0
