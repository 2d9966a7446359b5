"""vLLM's own trainer flow: `send_weights()` of the backend deltawire, with a real server."""

from __future__ import annotations

import pytest
from servers import VllmServer, need

need("vllm")

import torch
from trainers import DTYPE, make_model
from transformers import AutoModelForCausalLM
from vllm.distributed.weight_transfer.base import ModuleSource
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

from deltawire.engines.vllm.plugin import register
from deltawire.engines.vllm.trainer import DeltawireTrainerInit


class Client:
    """The client interface that vLLM needs from a trainer, over HTTP."""

    def __init__(self, server: VllmServer) -> None:
        self._server = server

    def init_weight_transfer_engine(self, init_info: dict) -> None:
        self._server.post("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._server.post("/start_weight_update")

    def update_weights(self, update_info: dict) -> None:
        self._server.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._server.post("/finish_weight_update", {"weight_version": weight_version})


def test_send_weights(tmp_path):
    register()
    folder = make_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPE)
    allowed = {"allow_stores": [str(tmp_path / "store")], "allow_locals": [str(tmp_path / "local")]}
    with VllmServer(folder, tmp_path / "server.log", deltawire=allowed) as server:
        info = DeltawireTrainerInit(rank=0, store=str(tmp_path / "store"), local=str(tmp_path / "local"), timeout=60)
        trainer = WeightTransferTrainerFactory.trainer_init(info, client=Client(server), source=ModuleSource(model))
        prompt = "a prefix that is long enough to fill blocks of the cache, which hold a few tokens each " * 2
        for _ in range(2):
            server.logprobs(prompt)  # what it leaves in the cache is the old version's
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.01)
            trainer.send_weights()
        assert server.get("/weight_info")["weight_version"] == "2"
        assert not server.get("/is_paused")["is_paused"]
        ours = server.logprobs(prompt)
        trainer.shutdown()
    model.save_pretrained(folder)
    with VllmServer(folder, tmp_path / "fresh.log") as fresh:
        assert ours == pytest.approx(fresh.logprobs(prompt), abs=1e-5)
