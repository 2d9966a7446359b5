"""A real SGLang server with two workers that gets versions straight from the trainer: over HTTP, and through a process group."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import ENGINES, SglangServer

if not (ENGINES / "sglang" / "serve").exists():
    pytest.skip("SGLang is not installed: make test-engines", allow_module_level=True)

import torch
from sglang_trainer import outputs
from trainers import receive_versions, serving_trainer

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

    ours = receive_versions(trainer, server, outputs)
    trainer.close()
    with SglangServer(trainer.folder, tmp_path / "fresh.log", "--tp", "2", settings=TWO_WORKERS) as fresh:
        assert outputs(fresh) == ours
