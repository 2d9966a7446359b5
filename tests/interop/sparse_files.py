"""Shared by tests of dialects: safetensors files, a model with training steps, and the command line. Needs numpy."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
from contextlib import contextmanager

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

STORED = {"BF16": "<u2", "F16": "<u2", "F32": "<u4", "I64": "<u8", "I32": "<i4", "U8": "<u1", "U16": "<u2", "U32": "<u4"}
STORED["F8_E4M3"] = "<u1"


def read_safetensors(data):
    """Metadata, and name -> (dtype, shape, raw elements)."""
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["dtype"], entry["shape"], np.frombuffer(data[begin:end], STORED[entry["dtype"]]))
    return metadata, tensors


def write_safetensors(tensors, metadata):
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        data = raw.astype(STORED[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def first_model(rng, shapes):
    """Numbers around 1 as raw bits, never NaN."""
    model = {}
    for name, (dtype, shape) in shapes.items():
        width = np.dtype(STORED[dtype]).itemsize
        raw = rng.integers(0, 256, (int(np.prod(shape)), width), np.uint8)
        raw[:, -1] &= 0x3F
        model[name] = (dtype, shape, raw.reshape(-1).view(STORED[dtype]).copy())
    return model


def next_model(rng, model, share, special):
    """Change some elements of most tensors; also write `special` values: zeros, infinities, NaN."""
    after = {}
    for number, (name, (dtype, shape, raw)) in enumerate(model.items()):
        new = raw.copy()
        if number % 4 != 3 and len(new):
            where = np.flatnonzero(rng.random(len(new)) < share)
            new[where] ^= rng.integers(1, 128, len(where)).astype(new.dtype)
            for value in special.get(dtype, []):
                new[rng.integers(len(new))] = value
        after[name] = (dtype, shape, new)
    return after


def same(a, b):
    return a.keys() == b.keys() and all(
        a[name][:2] == b[name][:2] and np.array_equal(a[name][2], b[name][2]) for name in a
    )


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, pathlib.Path(folder)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))

    def run(self, *words, status=0):
        done = subprocess.run([self.path, *map(str, words)], capture_output=True, text=True, env=self.environment)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def pulled(self, store, version):
        replica = self.folder / f"replica-{pathlib.Path(store).name}-{version}"
        self.run("pull", store, replica, "--version", version, "-q")
        (file,) = replica.glob("*.safetensors")
        return read_safetensors(file.read_bytes())[1]

    def publish(self, store, models):
        for number, model in enumerate(models):
            file = self.folder / f"publish-{number}.safetensors"
            file.write_bytes(write_safetensors(model, {}))
            self.run("publish", file, store, "-q")


@contextmanager
def both_ways(path, dialect, models, encodings, write, read, *export):
    """Import their files of each version into a chain, export the trainer's chain, and read both with their reader."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = Program(path, folder)
        base = folder / "base.safetensors"
        base.write_bytes(write_safetensors(models[0], {}))
        program.publish(folder / "trainer", models)
        for encoding in encodings:
            theirs, chain, ours = (folder / f"{what}-{encoding}" for what in ("theirs", "chain", "ours"))
            for version in range(1, len(models)):
                write(theirs, version, models, encoding)
            program.run("import", dialect, theirs, chain, "--base", base)
            program.run("export", dialect, folder / "trainer", ours, "--encoding", encoding, *export)
            held = models[0]
            for version, model in enumerate(models):
                assert same(program.pulled(chain, version), model), (encoding, version)
                held = read(ours, version, held, encoding) if version else held
                assert same(held, model), (encoding, version)
        yield program, folder
    print(f"{dialect}: {', '.join(encodings)}: {len(models) - 1} versions each way")
