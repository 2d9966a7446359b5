"""A real SGLang server with two workers that gets versions straight from the trainer: over HTTP, and through a process group."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from servers import ENGINES, SglangServer

if not (ENGINES / "sglang" / "serve").exists():
    pytest.skip("SGLang is not installed: make test-engines", allow_module_level=True)

import torch
from sglang_trainer import outputs
from trainers import serving_trainer

TOKEN = "known to both"
TWO_WORKERS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


@pytest.mark.parametrize("group", [False, True], ids=["http", "group"])
def test_receives_versions_from_the_publisher(tmp_path: Path, group: bool) -> None:
    trainer = serving_trainer(tmp_path, group=group, token=TOKEN, dtype=torch.bfloat16)
    local = tmp_path / "local"
    settings = {f"DELTAWIRE_{name.upper()}": str(value) for name, value in trainer.settings().items()}
    settings |= TWO_WORKERS | {"DELTAWIRE_LOCAL": str(local)}

    def server() -> SglangServer:
        return SglangServer(local, tmp_path / "server.log", "--tp", "2", settings=settings)

    with server() as running:
        running.wait("/deltawire/ready", 120)
        trainer.joined()
        assert_served(running, trainer.step())

        trainer.restart()  # the server joins again by itself
        trainer.joined()
        assert_served(running, trainer.step())

        running.stop(signal.SIGKILL)
    for _ in range(3):
        trainer.step()
    with server() as again:
        assert_served(again, trainer.version)
        assert_served(again, trainer.step())
        ours = outputs(again)
    trainer.close()
    with SglangServer(trainer.folder, tmp_path / "fresh.log", "--tp", "2", settings=TWO_WORKERS) as fresh:
        assert outputs(fresh) == ours


def assert_served(server: SglangServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], proven["unproven"], len(status["workers"])) == (version, [], [], 2)
    assert proven["num_tensors"] > 0
