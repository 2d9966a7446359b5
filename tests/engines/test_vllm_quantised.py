"""Quantised models in a real vLLM server: updated alive, they answer as a fresh server of the version does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import VllmServer, assert_equal, cpu_has_bfloat16, need

need("vllm")
if not cpu_has_bfloat16():
    pytest.skip("vLLM's kernels for quantised weights want bfloat16, which this CPU has not", allow_module_level=True)

from quantised_trainer import INT8, QuantisedTrainer

# The last line of a traceback, in a log or outside; not the one that points to another.
_RAISED = re.compile(r"(?:^|[\])] )[\w.]*Error: ((?!.*See root cause above).+)$", re.MULTILINE)


def answers(server: VllmServer) -> list[dict]:
    server.call("POST", "/reset_prefix_cache")
    return server.answers()


@contextmanager
def served(trainer: QuantisedTrainer, *flags: str, tp: int = 1) -> Iterator[VllmServer]:
    """A server that follows; formats that vLLM does not serve on this machine are skipped, with vLLM's reason."""
    settings = {"store": trainer.store, "local": str(trainer.folder / "local"), "interval": 1}
    server = VllmServer(trainer.folder / "local", trainer.folder / "server.log", *flags, deltawire=settings, tp=tp)
    try:
        server.__enter__()
    except AssertionError:
        skip_what_a_plain_server_refuses(trainer.checkpoint(), trainer.folder / "plain.log", tp)
        raise
    with server:
        yield server


def skip_what_a_plain_server_refuses(folder: Path, log: Path, tp: int) -> None:
    try:
        with VllmServer(folder, log, tp=tp) as plain:
            answers(plain)
    except AssertionError:
        raised = _RAISED.findall(log.read_text(errors="replace"))
        if not raised:  # it was killed, or is slow: that says nothing of the format
            raise
        pytest.skip(f"vLLM: {raised[0][:300]}")


@pytest.mark.parametrize(
    ("format", "kind", "tp"),
    [
        ("int4-g32", "qwen3", 1),
        (INT8, "qwen3", 1),
        ("fp8-block", "qwen3", 1),
        ("fp8-block", "moe", 1),
        ("compressed-fp8-channel", "qwen3", 1),
        ("int4-g128-asymmetric", "qwen3", 2),
        ("fp8-tensor", "qwen3", 1),
        ("nvfp4", "qwen3", 1),
    ],
)
def test_versions_equal_a_fresh_server(tmp_path, format, kind, tp):
    trainer = QuantisedTrainer(tmp_path, format, kind)
    with served(trainer, tp=tp) as server:
        server.wait_for(0)
        before = answers(server)
        for names in ("", "self_attn.k_proj", "down_proj", "norm"):  # modules alone, fused or not, and none of them
            status = server.wait_for(trainer.step(names))
        assert all(worker["error"] is None for worker in status["workers"])
        reloaded = status["workers"][0]["reloaded"]
        assert any("q_proj" in name for name in reloaded)
        assert not any("layernorm" in name for name in reloaded), "these are as they are in the checkpoint"
        proven = server.post("/deltawire/prove")
        assert proven["wrong"] == [] and set(proven["unproven"]) == set(reloaded)
        ours = answers(server)
        assert [own["logprobs"]["token_logprobs"] for own in ours] != [own["logprobs"]["token_logprobs"] for own in before]
    trainer.close()
    with VllmServer(trainer.checkpoint(), tmp_path / "fresh.log", tp=tp) as fresh:
        assert_equal(ours, answers(fresh))


def test_nan_scale_is_not_served(tmp_path):
    trainer = QuantisedTrainer(tmp_path, "int4-g32")
    with served(trainer) as server:
        server.wait_for(trainer.step())
        before = answers(server)
        version = trainer.publish_damaged("layers.1.mlp.up_proj.weight_scale")
        status = server.wait_until(lambda status: "scale 0 is nan" in str(status))
        assert status["version"] == version - 1
        assert_equal(answers(server), before)
        server.wait_for(trainer.step())
        ours = answers(server)
    trainer.close()
    with VllmServer(trainer.checkpoint(), tmp_path / "fresh.log") as fresh:
        assert_equal(ours, answers(fresh))
