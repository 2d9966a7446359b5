"""Scales of what several ranks hold: torchrun on the CPU. quantised_ranks_worker.py has the cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

WORKER = Path(__file__).with_name("quantised_ranks_worker.py")
CASES = [
    "quantised_together",
    "quantised_with_hysteresis",
    "what_no_rank_has_is_carried_along",
    "a_rank_with_nan_is_named",
    "a_rank_that_died_is_told",
]


@pytest.fixture(scope="module", params=[2, 4])
def output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}"]
    done = subprocess.run(
        [*launch, WORKER, tmp_path_factory.mktemp("ranks"), *CASES],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_ranks(output: str, case: str) -> None:
    assert f"passed: {case}\n" in output, output
