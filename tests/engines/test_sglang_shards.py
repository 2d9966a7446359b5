"""A real SGLang server whose host fetches what its two workers hold from the two ranks of a trainer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from servers import ENGINES, SglangServer

if not (ENGINES / "sglang" / "serve").exists():
    pytest.skip("SGLang is not installed: make test-engines", allow_module_level=True)

import torch
from sglang_trainer import outputs
from shard_trainer import WORKERS, ShardTrainer
from trainers import make_model

TWO_WORKERS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


def test_versions_go_from_ranks_to_workers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "trainer", dtype=torch.bfloat16)
    shutil.copytree(folder, tmp_path / "served")
    trainer = ShardTrainer(folder)
    settings = TWO_WORKERS | {"DELTAWIRE_LOCAL": str(tmp_path / "served"), "DELTAWIRE_STORE": trainer.url}
    settings |= {"DELTAWIRE_USE_P2P_WEIGHT_UPDATE": "1", "DELTAWIRE_INTERVAL": "1"}
    with SglangServer(tmp_path / "served", tmp_path / "server.log", "--tp", "2", settings=settings) as running:
        before = outputs(running)  # it serves what it was started from
        for version in (1, 2):
            assert trainer.step() == version
            assert_served(running, version)
        status = running.status()
        assert [worker["last_pause"]["staged_before"] for worker in status["workers"]] == [True] * WORKERS
        ours = outputs(running)

        trainer.close()
        status = running.wait_until(lambda said: all(worker["host_error"] for worker in said["workers"]))
        assert trainer.url in status["error"]
        assert_served(running, 2)
    with SglangServer(folder, tmp_path / "fresh.log", "--tp", "2", settings=TWO_WORKERS) as fresh:
        assert outputs(fresh) == ours
    assert before != ours


def assert_served(server: SglangServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], proven["unproven"], len(status["workers"])) == (version, [], [], WORKERS)
    assert proven["num_tensors"] > 0
