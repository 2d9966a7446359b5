"""A real vLLM server with two workers that gets versions straight from the trainer: over HTTP, and through a process group."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import ENGINES, VllmServer

if not (ENGINES / "vllm" / "serve").exists():
    pytest.skip("vLLM is not installed: make test-engines", allow_module_level=True)

from trainers import receive_versions, serving_trainer

TOKEN = "known to both"
PROMPTS = ("hello", "what is", "12345")


@pytest.mark.parametrize("group", [False, True], ids=["http", "group"])
def test_receives_versions_from_the_publisher(tmp_path: Path, group: bool) -> None:
    trainer = serving_trainer(tmp_path, group=group, token=TOKEN)
    settings = trainer.settings() | {"local": str(tmp_path / "local")}

    def server() -> VllmServer:
        return VllmServer(tmp_path / "local", tmp_path / "server.log", deltawire=settings, tp=2)

    ours = receive_versions(trainer, server, lambda own: [own.complete(prompt, 16) for prompt in PROMPTS])
    trainer.close()
    with VllmServer(trainer.folder, tmp_path / "fresh.log", tp=2) as fresh:
        theirs = [fresh.complete(prompt, 16) for prompt in PROMPTS]
    for own, other in zip(ours, theirs, strict=True):
        assert own["text"] == other["text"]
        assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)
