"""Quantised modules of vLLM, real layers and kernels without a server: a loader that breaks, and versions after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from servers import ENGINES, cpu_has_bfloat16, need

need("vllm")
if not cpu_has_bfloat16():
    pytest.skip("vLLM's kernels for quantised weights want bfloat16, which this CPU has not", allow_module_level=True)

from quantised_trainer import INT8

SKIPPED = 77


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("int4-g32", "qwen3"),
        (INT8, "qwen3"),
        ("fp8-block", "qwen3"),
        ("compressed-fp8-channel", "qwen3"),
        ("fp8-tensor", "qwen3"),
        ("mxfp4", "qwen3"),
        ("fp8-block", "moe"),
        ("compressed-fp8-block", "moe"),
        ("int8-channel", "moe"),
        ("int4-g128", "moe"),
    ],
)
def test_failing_loader_is_rolled_back_and_later_versions_work(tmp_path, format, kind):
    program = Path(__file__).with_name("vllm_modules.py")
    environment = os.environ | {"LD_PRELOAD": str(ENGINES / "vllm" / "libsbgemm.so"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, program, tmp_path, format, kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode == SKIPPED:
        pytest.skip(last[0])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "as a fresh model" in last[0]
