"""Examples run, in their short form; each ends by comparing bits itself."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NEEDS = {"train_and_follow": ("torch", "safetensors"), "lora": ("torch",), "megatron_like": (), "ray_actor": ("ray",)}


@pytest.mark.parametrize("name", NEEDS)
def test_example_runs(name: str) -> None:
    for module in NEEDS[name]:
        pytest.importorskip(module)
    done = subprocess.run([sys.executable, FOLDER / f"{name}.py", "--short"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit for bit" in done.stdout
    assert done.stderr == "" or name == "ray_actor"  # Ray tells how it starts


def test_every_example_is_run_and_documented() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {*NEEDS, "follow"}  # which train_and_follow runs
    readme = (FOLDER / "README.md").read_text()
    assert all(f"({name}.py)" in readme for name in names)


def test_splits_fused_attention_by_heads() -> None:
    spec = importlib.util.spec_from_file_location("megatron_like", FOLDER / "megatron_like.py")
    assert spec is not None
    assert spec.loader is not None
    example = sys.modules["megatron_like"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.Shape(groups=2, heads_per_group=2, head_dim=1, hidden=1)
    fused = np.array([["q0"], ["q1"], ["k0"], ["v0"], ["q2"], ["q3"], ["k1"], ["v1"]])
    query, key, value = (part.ravel().tolist() for part in example.split_qkv(fused, model))
    assert (query, key, value) == (["q0", "q1", "q2", "q3"], ["k0", "k1"], ["v0", "v1"])
