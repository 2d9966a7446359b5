"""What the tests of sparse dialects share: safetensors files, a model that is trained, and the command line. Needs numpy."""

import json
import os
import pathlib
import struct
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

STORED = {"BF16": "<u2", "F16": "<u2", "F32": "<u4", "I64": "<u8", "I32": "<i4", "U8": "<u1", "U16": "<u2", "U32": "<u4"}


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
    """Numbers around 1, as raw bits: what is drawn is never NaN."""
    model = {}
    for name, (dtype, shape) in shapes.items():
        width = np.dtype(STORED[dtype]).itemsize
        raw = rng.integers(0, 256, (int(np.prod(shape)), width), np.uint8)
        raw[:, -1] &= 0x3F
        model[name] = (dtype, shape, raw.reshape(-1).view(STORED[dtype]).copy())
    return model


def next_model(rng, model, share, special):
    """Some elements of most tensors are others; `special` are written, too: zeros, infinities, NaN."""
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
