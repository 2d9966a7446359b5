"""An engine's pause on a GPU: the worker's own code over a model in the layout of engines, without an engine.

usage: engines.py [--layers N] [--changed SHARE] [--local FOLDER] [--tp N] [--repeat N]

Publishes versions of a model in Hugging Face's layout (36 layers are 8.19 B parameters, Qwen3-8B's shape), and lets a worker stage
and write them into fused parameters (qkv, gate_up): whole, and as one of `--tp` ranks. Prints where the time of a version goes:
publish(), fetch, stage, the pause with its swap and its proof; and what a `TensorReplica` takes for the same. serving.py has the
timeline of a real server.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import deltawire as dw
from deltawire import _core
from deltawire._internal.stores import store_handle
from deltawire.engines.proof import Pieces
from deltawire.engines.worker import Worker
from deltawire.live import Proof

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 4096, 32, 8, 128, 12288, 151936
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tensors_of(layers: int, scale: int) -> dict[str, torch.Tensor]:
    """Weights with the exponents of a trained model."""
    hidden, inner, vocab = HIDDEN // scale, INNER // scale, VOCAB // scale
    heads, kv = HEADS * HEAD // scale, KV_HEADS * HEAD // scale
    coded: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        coded[name] = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) * 0.02

    add("model.embed_tokens.weight", vocab, hidden)
    for layer in range(layers):
        base = f"model.layers.{layer}"
        for name, shape in {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (heads, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, heads),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }.items():
            add(f"{base}.{name}.weight", *shape)
    add("model.norm.weight", hidden)
    add("lm_head.weight", vocab, hidden)
    return coded


class Rank(nn.Module):
    """Parameters of a tensor-parallel rank, fused as engines fuse them, and the loader that fills them."""

    FUSED = {
        "q_proj": ("qkv", 0),
        "k_proj": ("qkv", 1),
        "v_proj": ("qkv", 2),
        "gate_proj": ("gate_up", 0),
        "up_proj": ("gate_up", 1),
    }

    def __init__(self, tensors: dict[str, torch.Tensor], rank: int, world: int) -> None:
        super().__init__()
        self.rank, self.world = rank, world
        self.at: dict[str, tuple[str, int, int]] = {}  # parameter, first row, dimension that is cut (-1: none)
        rows: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, tensor in tensors.items():
            base, _, kind = name.removesuffix(".weight").rpartition(".")
            target = f"{base}.{self.FUSED[kind][0]}" if kind in self.FUSED else f"{base}.{kind}"
            cut = -1 if tensor.dim() == 1 else 1 if kind in ("o_proj", "down_proj") else 0
            shape = [n // (world if d == cut else 1) for d, n in enumerate(tensor.shape)]
            first = rows.get(target, 0)
            self.at[name] = (target, first, cut)
            rows[target] = first + shape[0]
            shapes[target] = (rows[target], *shape[1:])
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16), requires_grad=False)
                for name, shape in shapes.items()
            }
        )

    def load_weights(self, weights: Any) -> None:
        """As an engine's loader does it."""
        for name, tensor in weights:
            target, first, cut = self.at[name]
            part = tensor
            if cut >= 0:
                size = tensor.shape[cut] // self.world
                part = tensor.narrow(cut, self.rank * size, size)
            self.weights[target.replace(".", "/")].data.narrow(0, first, part.shape[0]).copy_(part)


def change(tensors: dict[str, torch.Tensor], share: float) -> int:
    """A step: some elements one step up or down."""
    changed = 0
    for tensor in tensors.values():
        mask = torch.rand(tensor.shape, device=DEVICE) < share
        tensor.view(torch.int16).add_(mask.to(torch.int16))
        changed += int(mask.sum())
    return changed


class Sum:
    """Milliseconds: best and middle."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def add(self, seconds: float) -> None:
        self.times.append(1e3 * seconds)

    def __str__(self) -> str:
        return f"{min(self.times):8.2f} {statistics.median(self.times):8.2f}"


def measure(options: argparse.Namespace, folder: Path) -> None:
    tensors = tensors_of(options.layers, options.scale)
    total = sum(tensor.numel() for tensor in tensors.values())
    store, local = str(folder / "store"), str(folder / "local")
    publisher = dw.Publisher(store, tensors)
    publisher.publish()
    models = {f"TP 1 of {total / 1e9:.2f} B": (0, 1), f"TP {options.tp}, rank 1": (1, options.tp)}
    ranks = {name: Rank(tensors, *place) for name, place in models.items()}
    for rank in ranks.values():
        rank.load_weights(tensors.items())
    spool = _core.Spool(store_handle(store), Path(local), accept=dw.Accept())
    parts: dict[tuple[str, str], Sum] = {}

    def add(name: str, part: str, seconds: float) -> None:
        parts.setdefault((name, part), Sum()).add(seconds)

    with dw.Replica(store, local) as replica, dw.TensorReplica(store, {k: v.clone() for k, v in tensors.items()}) as plain:
        spool.fetch_new(None, None)
        replica.pull()
        plain.pull()
        workers = {name: Worker(rank, local, name=f"w{number}") for number, (name, rank) in enumerate(ranks.items())}
        for name, worker in workers.items():
            began = time.perf_counter()
            worker.attach()
            print(f"{name}: found and compared in {time.perf_counter() - began:.1f} s, {worker.report.parameters} parameters")
        pieces = {name: Pieces(worker._the_map) for name, worker in workers.items()}
        for version in range(options.repeat + 1):
            changed = change(tensors, options.changed)
            began = time.perf_counter()
            publisher.publish()
            published = time.perf_counter()
            spool.fetch_new(0, 0)
            fetched = time.perf_counter()
            plain.pull()
            pulled = time.perf_counter()
            if version == 0:  # a rank may need it, once, for tiles that its slice cuts
                replica.pull()
            else:
                add("", "publish()", published - began)
                add("", "fetch", fetched - published)
                add("", "TensorReplica.pull()", pulled - fetched)
            for name, worker in workers.items():
                began = time.perf_counter()
                worker.stage()
                staged = time.perf_counter() - began
                report = worker.report
                whole = worker is next(iter(workers.values()))
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
                worker.update(verify="all" if whole else "off")
                pause = worker.report.last_pause
                assert pause is not None and pause["staged_before"]
                if version == 0:
                    sizes = f"{report.staged_device_bytes / 1e6:.0f} MB device, {report.staged_host_bytes / 1e6:.0f} MB host"
                    print(f"{name}: {pause['changed']:,} elements staged in {sizes}")
                    continue
                add(name, "stage, while it serves", staged)
                add(name, "pause: swap", pause["swap"])
                if whole:
                    add(name, "pause: proof of all tensors", pause["proof"])
                    add(name, "fetch, stage and pause / TensorReplica.pull(), %",
                        (fetched - published + staged + pause["total"]) / (pulled - fetched) / 10)
                else:  # what one rank does for it; the sums of the others come over the group
                    began = time.perf_counter()
                    Proof()._core.add(pieces[name].of(worker._the_map.plain), 0)
                    add(name, "pause: its part of the proof", time.perf_counter() - began)
                add(name, "pause: all", pause["total"])
        print(f"{changed:,} of {total:,} changed ({100 * changed / total:.2f} %)")
        for (name, part), times in parts.items():
            print(f"{name:20} {part:50} {times}{'' if part.endswith('%') else ' ms'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--scale", type=int, default=1, help="divides every width: for a try on a small machine")
    parser.add_argument("--changed", type=float, default=0.012)
    parser.add_argument("--local", type=Path, default=None, help="for the store and the host's folder; default: in /dev/shm")
    parser.add_argument("--tp", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=4)
    options = parser.parse_args()
    local = options.local or Path(tempfile.mkdtemp(prefix="deltawire-engines-", dir="/dev/shm"))
    try:
        measure(options, local)
    finally:
        if options.local is None:
            shutil.rmtree(local)


if __name__ == "__main__":
    main()
