"""A version over gloo, from publish() until all receivers hold it, against torch's own broadcast of all weights: same processes.

usage: build/venv/bin/python bench/python/carriers.py [--receivers N] [--megabytes M] [--changed SHARE] [--rounds N]

One trainer, N receivers with tensors in memory. In each round: torch.distributed.broadcast of every tensor, a barrier at its end; a
delta by `deltawire.ship` over a group of gloo; a whole version the same way. Times are the trainer's, until the last receiver has it.
What receivers hold is proven by digest with each version; torch's broadcast proves nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "build" / "python"), str(ROOT / "python" / "tests")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from rank_processes import Rank, run_ranks  # noqa: E402

import deltawire as dw  # noqa: E402
import deltawire.ship  # noqa: E402
from deltawire import _core  # noqa: E402

WAYS = ("broadcast", "delta", "full")


def weights_of(megabytes: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    rows = max(1, megabytes * (1 << 20) // 16 // 2 // 1024)
    return {f"layer.{n}": (torch.randn(rows, 1024, generator=generator) * 0.02).to(torch.bfloat16) for n in range(16)}


def step(weights: dict[str, torch.Tensor], share: float, seed: int) -> None:
    """As an optimizer moves them: the last bits of some."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in weights.values():
        bits = tensor.view(torch.int16)
        bits ^= (torch.rand(tensor.shape, generator=generator) < share).to(torch.int16)


def train(rank: Rank, flags: argparse.Namespace) -> list[Any]:
    weights = weights_of(flags.megabytes)
    shippers = {way: deltawire.ship.serve(f"memory:{way}", backend="gloo", keep_versions=2) for way in WAYS[1:]}
    rank.given({way: shipper.address for way, shipper in shippers.items()})
    publishers = {
        way: dw.Publisher(shipper.store, weights, anchors="only" if way == "full" else None)
        for way, shipper in shippers.items()
    }
    for way, shipper in shippers.items():
        shipper.wait_for(flags.receivers, 60)
        publishers[way].publish()
        shipper.settle()
    results: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
    for number in range(flags.rounds):
        step(weights, flags.changed, number)
        dist.barrier()
        began = time.perf_counter()
        for tensor in weights.values():
            dist.broadcast(tensor.view(torch.uint8), 0)
        dist.barrier()
        results["broadcast"].append((time.perf_counter() - began, sum(tensor.nbytes for tensor in weights.values())))
        for way in WAYS[1:]:
            began = time.perf_counter()
            publishers[way].publish()
            report = shippers[way].settle()
            took = time.perf_counter() - began
            assert [one.version for one in report.replicas] == [number + 1] * flags.receivers, report
            results[way].append((took, report.bytes))
    for publisher in publishers.values():
        publisher.close()
    dist.barrier()
    return [results]


def receive(rank: Rank, flags: argparse.Namespace) -> None:
    addresses = rank.given()
    weights = weights_of(flags.megabytes)
    held = {way: {name: torch.empty_like(tensor) for name, tensor in weights.items()} for way in WAYS[1:]}
    stores = {way: deltawire.ship.join(addresses[way]) for way in WAYS[1:]}
    replicas = {way: dw.TensorReplica(stores[way], held[way]) for way in WAYS[1:]}
    watches = {way: _core.Watch(replicas[way]._store) for way in WAYS[1:]}

    def follow(way: str, version: int) -> None:
        while replicas[way].version != version:
            try:
                replicas[way].pull()
            except dw.NotFound:  # nothing yet
                pass
            if replicas[way].version != version:
                watches[way].wait(0.5)

    for way in WAYS[1:]:
        follow(way, 0)
    for number in range(flags.rounds):
        dist.barrier()
        for tensor in weights.values():
            dist.broadcast(tensor.view(torch.uint8), 0)
        dist.barrier()
        for way in WAYS[1:]:
            follow(way, number + 1)
            assert all(torch.equal(held[way][name].view(torch.int16), weights[name].view(torch.int16)) for name in weights)
    for replica in replicas.values():
        replica.close()
    dist.barrier()


def one(rank: Rank, flags: argparse.Namespace, port: int) -> list[Any] | None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank.rank, world_size=rank.size)
    return train(rank, flags) if rank.rank == 0 else receive(rank, flags)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--changed", type=float, default=0.012)
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    (results,) = run_ranks(1 + flags.receivers, one, flags, store.port)[0]
    print(f"{flags.megabytes} MiB of bf16, {flags.changed:.2%} changed, {flags.receivers} receivers, {flags.rounds} rounds")
    print(f"{'':12}{'best':>12}{'median':>12}{'bytes to each':>18}")
    for way in WAYS:
        times = [took for took, _ in results[way]]
        size = statistics.median(size for _, size in results[way])
        print(f"{way:12}{min(times) * 1e3:>9.1f} ms{statistics.median(times) * 1e3:>9.1f} ms{size:>18,.0f}")


if __name__ == "__main__":
    main()
