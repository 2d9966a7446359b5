#!/usr/bin/env python3
"""From publish() to proven by all replicas: a folder, HTTP, a process group, and a broadcast of all weights.

    transports.py [--mib MIB] [--replicas N] [--versions N] [--density X] [--json]

Replicas are processes that keep tensors in memory. The ways take turns version by version, so that what else the machine does
hits all of them. Times are of the host's clock. The broadcast sends every byte of the model by gloo, and checks nothing.
"""

import argparse
import json
import multiprocessing
import shutil
import socket
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import deltawire as dw
from deltawire.torch import Broadcast, Rendezvous
from deltawire.torch.rendezvous import Meeting, Wire

WAYS = ("folder", "http", "group", "all weights")


def weights_of(mib: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (2048, 4096)
    return {
        f"layer.{i}": torch.randn(shape, generator=generator).mul_(0.02).bfloat16()
        for i in range(max(1, mib * (1 << 20) // (shape[0] * shape[1] * 2)))
    }


def step(weights: dict[str, torch.Tensor], density: float, seed: int) -> None:
    """The smallest weights change most often, as with Adam."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in weights.values():
        likely = 1 / tensor.float().abs().clamp_(min=1e-3)
        likely *= density / likely.mean()
        tensor.view(torch.int16).bitwise_xor_(torch.rand(tensor.shape, generator=generator) < likely)


def place(port: int, rank: int, size: int) -> Rendezvous:
    return Rendezvous(master_address="127.0.0.1", master_port=port, world_size=size, rank=rank)


def tensors_of(weights: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.view(torch.uint8).reshape(-1) for tensor in weights.values()]


def follow(way: str, where: Any, rank: int, size: int, mib: int, out: Connection) -> None:
    torch.set_num_threads(1)
    mine = {name: torch.zeros_like(tensor) for name, tensor in weights_of(mib).items()}
    if way == "all weights":
        gloo, nccl = Meeting(place(where, rank, size)).form(600, lambda: None)
        wire, flag = Wire(gloo, nccl, 0, 600, lambda: None), torch.zeros(1, dtype=torch.uint8)
        while True:
            wire.announce(flag)
            if flag[0] == 255:
                return
            for tensor in tensors_of(mine):
                wire.broadcast(tensor)
            out.send((int(flag[0]), time.time(), {}))
    store, broadcast = where, None
    if way == "group":
        broadcast = Broadcast(place(where[1], rank, size), where[0])
        store = broadcast.store
    try:
        for pulled in dw.TensorReplica(store, mine).follow(interval=30):
            out.send((pulled.version, time.time(), {"pull": pulled.seconds, "ahead": pulled.num_ahead}))
    except dw.Error:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--versions", type=int, default=8)
    parser.add_argument("--density", type=float, default=0.012)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="deltawire-bench.", dir=memory if memory.is_dir() else None))
    weights, size = weights_of(options.mib), options.replicas + 1
    ways: dict[str, tuple[Any, list[Any], list[Any]]] = {}
    ends: list[Any] = []
    for way in WAYS:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        where: Any = str(root / way)
        store: Any = where
        if way == "http":
            store = f"memory:{way}"
            ends.append(dw.serve(store))
            where = ends[-1].url
        elif way == "group":
            where = (where, port)
        elif way == "all weights":
            where = port
        replicas, pipes = [], []
        for rank in range(1, size):
            here, there = context.Pipe()
            replicas.append(context.Process(target=follow, args=(way, where, rank, size, options.mib, there), daemon=True))
            replicas[-1].start()
            pipes.append(here)
        if way == "all weights":
            gloo, nccl = Meeting(place(port, 0, size)).form(600, lambda: None)
            publisher: Any = Wire(gloo, nccl, 0, 600, lambda: None)
        else:
            if way == "group":
                ends.append(Broadcast(place(port, 0, size), store))
                ends[-1].wait()
                store = ends[-1].store
            publisher = dw.Publisher(store, weights, anchors=dw.Anchors(every=0, by_bytes=False))
        ways[way] = (publisher, replicas, pipes)
    results: dict[str, dict[str, list[Any]]] = {way: {"publish": [], "held": [], "bytes": [], "replica": []} for way in WAYS}
    for version in range(options.versions + 1):
        if version:
            step(weights, options.density, version)
        for way, (publisher, _, pipes) in ways.items():
            began = time.time()
            if way == "all weights":
                publisher.announce(torch.full((1,), version, dtype=torch.uint8))
                for tensor in tensors_of(weights):
                    publisher.broadcast(tensor)
                sent = sum(tensor.nbytes for tensor in weights.values())
            else:
                sent = publisher.publish().bytes
            published, last = time.time() - began, 0.0
            for pipe in pipes:
                number, when, more = pipe.recv()
                assert number == version, (way, number, version)
                last = max(last, when - began)
                if version:
                    results[way]["replica"].append(more)
            if version:
                for name, value in (("publish", published), ("held", last), ("bytes", sent)):
                    results[way][name].append(value)
    for _, replicas, _ in ways.values():
        for process in replicas:
            process.kill()
    for end in reversed(ends):
        end.close()
    shutil.rmtree(root, ignore_errors=True)
    if options.json:
        print(json.dumps(results))
        return
    print(f"{options.mib} MiB, {options.density:.2%} changed, {options.replicas} replicas; median (least) of {options.versions}")
    for way, result in results.items():
        publish, held = ((statistics.median(times) * 1e3, min(times) * 1e3) for times in (result["publish"], result["held"]))
        print(
            f"{way:12} {result['bytes'][-1] / 1e6:8.2f} MB   publish {publish[0]:6.0f} ({publish[1]:.0f}) ms   "
            f"proven by all {held[0]:6.0f} ({held[1]:.0f}) ms   {result['replica'][-1]}"
        )


if __name__ == "__main__":
    main()
