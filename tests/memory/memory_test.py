#!/usr/bin/env python3
"""Publishing takes no more memory than --memory-limit says, whatever the size of the model.

usage: memory_test.py DELTAWIRE SPARSE_DISK [--gigabytes N] [--limit MIB] [--threads N]

A sparse model is published as a seed, after a few changes, and after a stretch of it has changed
entirely, each by a process that may not have more private writable memory than the limit: the kernel
refuses it (RLIMIT_DATA; heap, anonymous mappings and stacks of threads count, mapped files do not).
That the fence stands is shown by a process that needs more than it is given: it ends as out of memory.
SPARSE_DISK is the preloaded library that keeps copies of the model sparse too.
"""
import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
OUT_OF_MEMORY = 10
MOST_NOISE = 512 * MIB  # that cannot be sparse
STACK = 1 * MIB  # of a thread: its size counts, not what is used of it


def write_model(path, size):
    """Zeros of bf16: a quarter in one tensor, a quarter in tensors of 64 MiB, the rest in tensors of 16 MiB."""
    tensors, at = {}, 0

    def add(name, num_bytes):
        nonlocal at
        rows = num_bytes // 8192
        tensors[name] = {"dtype": "BF16", "shape": [rows, 4096], "data_offsets": [at, at + rows * 8192]}
        at += rows * 8192

    add("embed", size // 4)
    for i in range(size // 4 // (64 * MIB)):
        add(f"layers.{i:04}.mlp", 64 * MIB)
    for i in range((size - at) // (16 * MIB)):
        add(f"layers.{i:04}.attn", 16 * MIB)
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + at)
    return tensors, 8 + len(header)


def change_few(path, tensors, data):
    """Change one weight in every tensor, and a thousand in the largest."""
    with open(path, "r+b") as file:
        for name, tensor in tensors.items():
            begin, end = tensor["data_offsets"]
            count = 1000 if name == "embed" else 1
            for i in range(count):
                file.seek(data + begin + (end - begin) // 2 // count * i)
                file.write(b"\x80\x3f")


def change_stretch(path, tensors, data, size):
    """Overwrite the start of the largest tensor and small ones with noise."""
    with open(path, "r+b") as file:
        begin, end = tensors["embed"]["data_offsets"]
        file.seek(data + begin)
        file.write(os.urandom(min(size // 2, end - begin)))
        small = [tensor["data_offsets"][0] for name, tensor in tensors.items() if name.endswith("attn")]
        for begin in small[:size // 2 // (16 * MIB)]:
            file.seek(data + begin)
            file.write(os.urandom(16 * MIB))


class Machine:
    def __init__(self, binary, library, home):
        self.binary = str(Path(binary).resolve())
        self.environment = {**os.environ, "HOME": str(home), "LD_PRELOAD": str(Path(library).resolve())}

    def run(self, *args, fence):
        """Run within a memory limit. Returns the exit status, the output, and the largest RssAnon seen."""
        def inside():
            resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
            resource.setrlimit(resource.RLIMIT_DATA, (fence, fence))
        process = subprocess.Popen([self.binary, *map(str, args)], env=self.environment, preexec_fn=inside,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seen = 0
        while process.poll() is None:
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                seen = max([seen] + [int(l.split()[1]) * 1024 for l in lines if l.startswith("RssAnon")])
            except OSError:
                pass
            time.sleep(0.002)
        return process.returncode, process.stdout.read(), seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("library")
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--limit", type=int, default=256, help="MiB")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    limit = options.limit * MIB
    stretch = min(2 * limit, MOST_NOISE)
    with tempfile.TemporaryDirectory(prefix="deltawire-memory.", dir=os.environ.get("TMPDIR")) as folder:
        root = Path(folder)
        machine = Machine(options.binary, options.library, root)
        model = root / "model.safetensors"
        tensors, data = write_model(model, int(options.gigabytes * 1e9) // (64 * MIB) * (64 * MIB))
        publish = ["publish", model, root / "store", "--snapshot", root / "snapshot", "--memory-limit",
                   f"{options.limit}MiB", "--threads", options.threads, "--no-anchors", "--json"]
        steps = [("seed", "full", lambda: None),
                 ("few changes", "delta", lambda: change_few(model, tensors, data)),
                 ("a stretch changed", "delta", lambda: change_stretch(model, tensors, data, stretch))]
        for version, (what, kind, change) in enumerate(steps):
            change()
            start = time.monotonic()
            code, printed, seen = machine.run(*publish, fence=limit)
            assert code == 0, f"{what}: exit {code}: {printed}"
            report = json.loads(printed)
            assert (report["version"], report["kind"]) == (version, kind), printed
            assert not report["warnings"], printed
            print(f"{what}: {report['full_bytes'] / 1e9:.1f} GB of weights, {report['bytes'] / 1e6:.1f} MB "
                  f"published within {options.limit} MiB; {seen / MIB:.0f} MiB resident, "
                  f"{time.monotonic() - start:.1f} s", flush=True)
        change_stretch(model, tensors, data, stretch)
        code, printed, _ = machine.run(*publish, fence=min(limit // 8, 64 * MIB))
        assert code == OUT_OF_MEMORY, f"behind a fence that is too near: exit {code}: {printed}"
        used = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
        print(f"files took {used / 1e9:.2f} GB of disk")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"memory test failed: {error}")
