"""A delta part is a safetensors file: the Python package must open it, and we must read what it writes.

usage: safetensors_test.py DELTAWIRE; exits 77 (skipped) where the package is not installed.
"""
import ctypes
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    print("skipped: the Python package safetensors is not installed")
    sys.exit(77)


def write(path, tensors):
    """By the package's own serialiser: name -> (dtype, shape, bytearray)."""
    specs = {}
    for name, (dtype, shape, data) in tensors.items():
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        specs[name] = safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=address, data_len=len(data))
    path.write_bytes(safetensors.serialize(specs, {"format": "pt"}))


def main(deltawire):
    rng = random.Random(1)
    old = {f"layer.{dtype}": (name, [64, 48], bytearray(rng.randbytes(64 * 48 * width)))
           for dtype, (name, width) in {"a": ("bfloat16", 2), "b": ("float32", 4), "c": ("int8", 1), "d": ("int64", 8)}.items()}
    new = {name: (dtype, shape, bytearray(data)) for name, (dtype, shape, data) in old.items()}
    for _, _, data in new.values():
        for _ in range(20):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, tensors in (("old", old), ("new", new)):
            write(folder / f"{name}.safetensors", tensors)
        for codec in ("auto", "tight", "gaps", "exponents", "raw"):
            delta = folder / f"{codec}.safetensors"
            report = json.loads(subprocess.run(
                [deltawire, "diff", folder / "old.safetensors", folder / "new.safetensors", "-o", delta,
                 "--codec", codec, "--json"], check=True, stdout=subprocess.PIPE).stdout)
            assert report["bytes"] == delta.stat().st_size, report
            # The package accepts the part, and lists one U8 vector per changed tensor.
            entries = dict(safetensors.deserialize(delta.read_bytes()))
            assert set(entries) == set(new), (codec, set(entries))
            assert all(info["dtype"] == "U8" and len(info["shape"]) == 1 for info in entries.values()), entries
            size = struct.unpack("<Q", delta.read_bytes()[:8])[0]
            metadata = json.loads(delta.read_bytes()[8:8 + size])["__metadata__"]
            assert metadata["deltawire"].startswith("delta/1 sum128 "), metadata
            assert len(metadata["deltawire.entries"].split(";")) == len(new), metadata
            out = folder / "out.safetensors"
            subprocess.run([deltawire, "apply", delta, folder / "old.safetensors", "-o", out, "--quiet"], check=True)
            # Byte for byte what the package wrote, and the package reads it back.
            assert out.read_bytes() == (folder / "new.safetensors").read_bytes(), codec
            got = dict(safetensors.deserialize(out.read_bytes()))
            assert all(bytes(got[name]["data"]) == bytes(data) for name, (_, _, data) in new.items())
    print("5 passed, 0 failed")


main(sys.argv[1])
