#!/usr/bin/env python3
"""Weights from one process to another on the same GPU: CUDA IPC with proof, beside a copy through the host.

usage: bench/python/colocated.py [GIGABYTES=16]
"""

import pickle
import subprocess
import sys
import time

import torch

import deltawire as dw

TENSORS = 120


def seconds(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def engine():
    handles = pickle.load(sys.stdin.buffer)
    into = {name: torch.zeros(tuple(place[1]), dtype=place[5], device="cuda") for name, place in handles.places}
    took, num_bytes = seconds(lambda: dw.torch.take(handles, into))
    again, _ = seconds(lambda: [tensor.copy_(tensor.cpu()) for tensor in into.values()])
    gb = num_bytes / 1e9
    print(f"engine: {gb:.2f} GB taken and proven in {took:.3f} s ({gb / took:.0f} GB/s); to the host and back {again:.3f} s")


def trainer(gigabytes):
    rows = int(gigabytes * 1e9 / 2 / TENSORS / 8192)
    weights = {f"layers.{i}": torch.randn(rows, 8192, device="cuda", dtype=torch.bfloat16) for i in range(TENSORS)}
    shared_in, shared = seconds(lambda: dw.torch.share(weights))
    handles = pickle.dumps(shared.handles())
    print(f"trainer: {TENSORS} tensors added up and shared in {shared_in:.3f} s; handles are {len(handles)} bytes", flush=True)
    subprocess.run([sys.executable, __file__, "engine"], input=handles, check=True, timeout=300)
    shared.close()


if sys.argv[1:] == ["engine"]:
    engine()
else:
    trainer(float(sys.argv[1]) if len(sys.argv) > 1 else 16)
