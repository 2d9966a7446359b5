"""A real SGLang server with two workers that gets versions straight from the publisher: there is no store that it could read."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from servers import ENGINES, SglangServer

if not (ENGINES / "sglang" / "serve").exists():
    pytest.skip("SGLang is not installed: make test-engines", allow_module_level=True)

import torch
from sglang_trainer import outputs
from trainers import shipping_trainer

SECRET = "known to both"
TWO_WORKERS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


def test_versions_come_straight_from_the_publisher(tmp_path: Path) -> None:
    trainer = shipping_trainer(tmp_path, "gloo", secret=SECRET, dtype=torch.bfloat16)
    local = tmp_path / "local"
    settings = TWO_WORKERS | {"DELTAWIRE_LOCAL": str(local), "DELTAWIRE_TRANSPORT": "gloo", "DELTAWIRE_SECRET": SECRET}
    settings |= {"DELTAWIRE_MASTER_ADDRESS": "127.0.0.1", "DELTAWIRE_MASTER_PORT": str(trainer.port), "DELTAWIRE_INTERVAL": "1"}

    def server() -> SglangServer:
        return SglangServer(local, tmp_path / "server.log", "--tp", "2", settings=settings)

    with server() as running:
        running.wait("/deltawire/ready", 120)
        assert_served(running, trainer.step())
        report = trainer.shipper.settle()
        assert [(one.version, one.error) for one in report.replicas] == [(trainer.version, "")]
        assert report.carrier == "gloo" and report.bytes > 0

        trainer.restart()  # the server joins again by itself
        trainer.shipper.wait_for(1, 60)
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
