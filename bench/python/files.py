"""`deltawire diff` of two safetensors files against the same in numpy: compare, code, compress, hash, write.

usage: files.py DELTAWIRE OLD NEW [--rounds N]

The peers' pipeline is what tools for sparse weight updates do, written plainly: one thread, both files mapped, for
each tensor `flatnonzero(old != new)`, distances between positions and the new values, zstd level 1 of both, xxh3-128
of the tensor before and after, one file in the end. Best of the rounds, taken in turn.
"""

import argparse
import ctypes
import ctypes.util
import json
import os
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import xxhash

WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}


class Zstd:
    """Level 1 of the system's libzstd."""

    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
        self.library.ZSTD_compressBound.restype = self.library.ZSTD_compress.restype = ctypes.c_size_t
        self.library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
        self.library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def compress(self, array):
        room = np.empty(self.library.ZSTD_compressBound(array.nbytes), np.uint8)
        size = self.library.ZSTD_compress(room.ctypes.data, room.nbytes, array.ctypes.data, array.nbytes, 1)
        return room[:size]


def tensors_of(path):
    mapped = np.memmap(path, np.uint8, "r")
    size = struct.unpack("<Q", mapped[:8].tobytes())[0]
    header = json.loads(mapped[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    for name, tensor in sorted(header.items()):
        begin, end = tensor["data_offsets"]
        yield name, mapped[8 + size + begin : 8 + size + end].view(WORDS[BITS.get(tensor["dtype"], 8) // 8])


def numpy_diff(zstd, old, new, out):
    entries, payloads = {}, []
    for (name, before), (_, after) in zip(tensors_of(old), tensors_of(new), strict=True):
        positions = np.flatnonzero(before != after)
        gaps = np.diff(positions, prepend=-1).astype(np.uint32)
        coded = [zstd.compress(gaps), zstd.compress(after[positions])]
        payloads += coded
        entries[name] = [[len(part) for part in coded], xxhash.xxh3_128_hexdigest(before), xxhash.xxh3_128_hexdigest(after)]
    with open(out, "wb") as file:
        text = json.dumps(entries).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        for payload in payloads:
            file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def timed(work):
    begin, spent = time.perf_counter(), os.times()
    work()
    end = os.times()
    cpu = sum(end[:4]) - sum(spent[:4])
    return time.perf_counter() - begin, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deltawire")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    old, new, zstd = arguments.old, arguments.new, Zstd()
    with tempfile.TemporaryDirectory(dir=old.parent) as folder:
        ours, peers = Path(folder, "ours.safetensors"), Path(folder, "peers.bin")
        ways = {
            "deltawire diff": (
                lambda: subprocess.run([arguments.deltawire, "diff", old, new, "-o", ours, "-q"], check=True),
                ours,
            ),
            "numpy + zstd + xxh3": (lambda: numpy_diff(zstd, old, new, peers), peers),
        }
        best = {name: (float("inf"), float("inf")) for name in ways}
        for _ in range(arguments.rounds):
            for name, (work, out) in ways.items():
                best[name] = min(best[name], timed(work))
                ways[name] = (work, out)
        sizes = {name: out.stat().st_size for name, (_, out) in ways.items()}
    for name, (seconds, cpu) in best.items():
        print(f"{name:20} {seconds:6.2f} s  {cpu:6.2f} s of cores  {sizes[name] / 1e6:8.2f} MB")
    (ours_s, _), (peers_s, _) = best.values()
    print(f"{peers_s / ours_s:.2f} x")


if __name__ == "__main__":
    main()
