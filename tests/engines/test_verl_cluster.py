"""verl's own manager over a local Ray: verl_cluster.py, in a process of its own. Skipped without verl."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import deltawire as dw

HERE = Path(__file__).parent


@pytest.mark.skipif(find_spec("verl") is None or find_spec("ray") is None, reason="verl is not installed: scripts/venv DIR verl")
def test_manager_updates_every_worker(tmp_path: Path) -> None:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "verl_cluster.py"), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"version (\d), .*equal: (\w+)", done.stdout) == [("0", "True"), ("1", "True"), ("2", "True")]
    assert dw.Chain(tmp_path / "store").head == 2
