"""Quantised models in a real SGLang server: updated alive, they answer as a fresh server of the version does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from servers import SglangServer, need

need("sglang")

from quantised_trainer import INT8, QuantisedTrainer
from sglang_trainer import outputs

# The last line of a traceback, in a log or outside.
_RAISED = re.compile(r"(?:^|[\])] )[\w.]*Error: (.+)$", re.MULTILINE)


def skip_what_a_plain_server_refuses(folder: Path, log: Path) -> None:
    try:
        with SglangServer(folder, log) as plain:
            outputs(plain)
    except AssertionError:
        raised = _RAISED.findall(log.read_text(errors="replace"))
        if not raised:  # it was killed, or is slow: that says nothing of the format
            raise
        pytest.skip(f"SGLang: {raised[-1][:300]}")


@pytest.mark.parametrize("format", ["fp8-block", "int4-g32", INT8])
def test_versions_equal_a_fresh_server(tmp_path, format):
    """Formats that SGLang does not serve on this machine are skipped, with SGLang's reason."""
    trainer = QuantisedTrainer(tmp_path, format)
    settings = {"DELTAWIRE_STORE": trainer.store, "DELTAWIRE_LOCAL": str(tmp_path / "local"), "DELTAWIRE_INTERVAL": "1"}
    server = SglangServer(tmp_path / "local", tmp_path / "server.log", settings=settings)
    try:
        server.__enter__()
    except AssertionError:
        skip_what_a_plain_server_refuses(trainer.checkpoint(), tmp_path / "plain.log")
        raise
    with server:
        server.wait_for(0)
        before = outputs(server)
        for names in ("", "self_attn.k_proj", "mlp.down_proj"):
            server.wait_for(trainer.step(names))
        assert server.post("/deltawire/prove")["wrong"] == []
        ours = outputs(server)
        assert ours != before
    trainer.close()
    with SglangServer(trainer.checkpoint(), tmp_path / "fresh.log") as fresh:
        for (own, own_scores), (other, scores) in zip(ours, outputs(fresh), strict=True):
            assert own == other
            assert own_scores == pytest.approx(scores, abs=1e-5)
