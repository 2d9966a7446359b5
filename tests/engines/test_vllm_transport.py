"""A real vLLM server with two workers that gets versions straight from the trainer: over HTTP, and through a process group."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from servers import ENGINES, VllmServer

if not (ENGINES / "vllm" / "serve").exists():
    pytest.skip("vLLM is not installed: make test-engines", allow_module_level=True)

from trainers import serving_trainer

TOKEN = "known to both"


@pytest.mark.parametrize("group", [False, True], ids=["http", "group"])
def test_receives_versions_from_the_publisher(tmp_path: Path, group: bool) -> None:
    trainer = serving_trainer(tmp_path, group=group, token=TOKEN)
    settings = trainer.settings() | {"local": str(tmp_path / "local")}

    def server() -> VllmServer:
        return VllmServer(tmp_path / "local", tmp_path / "server.log", deltawire=settings, tp=2)

    with server() as running:
        running.wait_for(0)
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
        ours = [again.complete(prompt, 16) for prompt in ("hello", "what is", "12345")]
    trainer.close()
    with VllmServer(trainer.folder, tmp_path / "fresh.log", tp=2) as fresh:
        theirs = [fresh.complete(prompt, 16) for prompt in ("hello", "what is", "12345")]
    for own, other in zip(ours, theirs, strict=True):
        assert own["text"] == other["text"]
        assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)


def assert_served(server: VllmServer, version: int) -> None:
    status = server.wait_for(version)
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], len(status["workers"])) == (version, [], 2)
    assert proven["num_tensors"] > 0
