"""examples/grpo_disaggregated, as its README says: TRL's trainer and a real server, with a store between them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packing import are_linears_packed
from servers import ENGINES, need

need("vllm")
pytest.importorskip("trl")

RUN = Path(__file__).parents[2] / "examples/grpo_disaggregated/run"


def test_learns_while_the_server_serves_every_version(tmp_path):
    out = tmp_path / "out"
    command = [RUN, "--steps", "12", "--out", out, "--engines", ENGINES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "live weights of the server are version 12, bit for bit" in done.stdout
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert [step["version"] for step in steps] == list(range(13)) == [step["served"] for step in steps]
    noise = max(1e-4, 5 * steps[0]["logprob_difference"])  # the server's arithmetic, with the weights that it started from
    for step in steps[1:]:
        assert step["bytes"] < step["full_bytes"] / 2
        assert step["logprob_difference"] < noise
        proof = step["proof"]
        assert (proof["version"], proof["mode"], proof["wrong"]) == (step["version"], "all", [])
        assert proof["num_tensors"] + len(proof["unproven"]) == 25
        assert are_linears_packed() or proof["unproven"] == []  # what is packed cannot be compared bit by bit


def test_reports_missing_packages(tmp_path):
    done = subprocess.run([RUN, "--engines", tmp_path, "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is no vLLM in" in done.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    done = subprocess.run([RUN, "--engines", ENGINES, "--out", tmp_path / "full"], capture_output=True, text=True)
    assert "is not empty" in done.stderr
    assert (tmp_path / "full" / "thesis.txt").exists()
