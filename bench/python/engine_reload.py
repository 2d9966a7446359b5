"""A real server's pause for a version, against its own reload from disk and against numpy: same server, same run.

usage: ~/.cache/deltawire-engines/ENGINE/venv/bin/python bench/python/engine_reload.py vllm|sglang [--steps N] [--changed SHARE]

The server (`make test-engines` installs it) serves a model of 40 M weights from a local checkpoint and follows a chain. For
each version: its pause as it says, in parts; the time of the engine's own reload from the local checkpoint, paused as long; the time
that numpy takes to write the same elements, `a[positions] = values`, tensor by tensor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "build" / "python"), str(ROOT / "tests" / "engines")]

import torch  # noqa: E402
from servers import Server, SglangServer, VllmServer  # noqa: E402
from trainers import Trainer, new_trainer  # noqa: E402

SHAPE = dict(vocab_size=16384, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, head_dim=64, intermediate_size=1536)


def start(engine: str, folder: Path, store: str) -> Server:
    local, log = folder / "local", folder / "log"
    if engine == "vllm":
        return VllmServer(local, log, deltawire={"store": store, "local": str(local), "interval": 0.2})
    settings = {"DELTAWIRE_STORE": store, "DELTAWIRE_LOCAL": str(local), "DELTAWIRE_INTERVAL": "0.2"}
    return SglangServer(local, log, settings=settings)


def reload_seconds(server: Server, local: Path) -> float:
    began = time.perf_counter()
    if isinstance(server, VllmServer):
        server.post("/pause?mode=keep")
        server.post("/collective_rpc", {"method": "reload_weights"})
        server.post("/resume")
    else:
        server.post("/update_weights_from_disk", {"model_path": str(local), "flush_cache": False})
    return time.perf_counter() - began


def numpy_seconds(old: dict[str, torch.Tensor], new: dict[str, torch.Tensor]) -> float:
    took = 0.0
    for name, tensor in old.items():
        before, after = tensor.view(torch.int16).numpy().reshape(-1), new[name].view(torch.int16).numpy().reshape(-1)
        positions = (before != after).nonzero()[0]
        values = after[positions]
        began = time.perf_counter()
        before[positions] = values
        took += time.perf_counter() - began
    return took


def step(server: Server, trainer: Trainer, local: Path, changed: float) -> dict[str, float]:
    old = {name: tensor.clone() for name, tensor in trainer.weights.items()}
    status = server.wait_for(trainer.step(changed))
    parts: list[dict[str, Any]] = [worker["last_pause"] for worker in status["workers"]]
    return {
        "pause": status["pause_seconds"],
        "swap": max(part["swap"] for part in parts),
        "proof": max(part["proof"] for part in parts),
        "numpy": numpy_seconds(old, trainer.weights),
        "reload": reload_seconds(server, local),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("engine", choices=["vllm", "sglang"])
    asked.add_argument("--steps", type=int, default=5)
    asked.add_argument("--changed", type=float, default=0.012)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainer = new_trainer(folder, shape=SHAPE)
        count = sum(tensor.numel() for tensor in trainer.weights.values())
        with start(options.engine, folder, trainer.store) as server:
            server.wait("/deltawire/ready", 120)
            steps = [step(server, trainer, folder / "local", options.changed) for _ in range(options.steps)]
        trainer.close()
    print(f"{options.engine}: {count / 1e6:.1f} M weights, {100 * options.changed:g} % changed, median of {len(steps)} versions")
    medians = {part: statistics.median(one[part] for one in steps) for part in steps[0]}
    for part, seconds in medians.items():
        print(f"  {part:7} {1e3 * seconds:9.2f} ms  {seconds / medians['reload']:8.4f} of a reload")
    both = medians["swap"] + medians["proof"]
    print(f"  swap and proof: {both / medians['numpy']:.2f} x numpy; swap alone {medians['swap'] / medians['numpy']:.2f} x")


if __name__ == "__main__":
    main()
