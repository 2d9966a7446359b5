#!/usr/bin/env python3
"""slime's first generation by a second reader and writer, in numpy: theirs to ours and back.

usage: slime_gen1_test.py DELTAWIRE; exits 77 (skipped) where numpy is not installed. `deltas_zstd` is left out where there is
no `zstd` program.
"""

import functools
import json
import shutil
import subprocess
import sys

from sparse_files import both_ways, first_model, next_model, np, read_safetensors, write_safetensors

TORCH = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "I64": "int64"}
SHAPES = {
    "embed.weight": ("BF16", [300, 700]),
    "norm.weight": ("F32", [64]),
    "half": ("F16", [40, 3]),
    "frozen": ("BF16", [17]),
    "layers.0.w": ("BF16", [64, 64]),
    "steps": ("I64", [9]),
    "layers.1.w": ("BF16", [64, 64]),
}
SPECIAL = {"BF16": [0x8000, 0x7F80, 0x0001], "F32": [0x80000000, 0xFF800000, 1], "F16": [0x8000, 0x0001]}


def as_float32(dtype, raw):
    """Exact; the only promotion that these files need."""
    if dtype == "BF16":
        return (raw.astype("<u4") << 16).view("<f4")
    return raw.view("<f2").astype("<f4") if dtype == "F16" else raw.view("<f4")


def from_float32(dtype, values):
    if dtype == "BF16":
        bits = values.view("<u4")
        assert not (bits & 0xFFFF).any()
        return (bits >> 16).astype("<u2")
    return values.astype("<f2").view("<u2") if dtype == "F16" else values.view("<u4")


def as_float64(dtype, raw):
    return raw.view("<i8").astype("<f8") if dtype == "I64" else as_float32(dtype, raw).astype("<f8")


def checksum(positions, dtype, raw):
    p = functools.reduce(int.__xor__, positions.tobytes(), 0)
    v = int(np.bitwise_xor.reduce(as_float64(dtype, raw).view("<u8"), initial=0))
    return str(p ^ (v << 1))


def compressed(data, folder):
    """By the zstd program, which states the size of a file."""
    (folder / "plain").write_bytes(data)
    subprocess.run(["zstd", "-1", "-q", "-f", "--no-check", folder / "plain", "-o", folder / "packed"], check=True)
    return (folder / "packed").read_bytes()


def decompressed(data):
    return subprocess.run(["zstd", "-d", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def write_file(path, version, encoding, before, after, names):
    params, positions, values = [], b"", []
    dtypes = {after[name][0] for name in names}
    stored = dtypes.pop() if len(dtypes) == 1 else "F32"
    for name in names:
        dtype, shape, new = after[name]
        index = np.flatnonzero(new != before[name][2])
        packed, width = index.astype("<i4"), 4
        if encoding != "indices":
            gaps = np.diff(index, prepend=-1) - 1
            width = 2 if gaps.max() <= 65535 else 4
            packed = gaps.astype(f"<u{width}")
        done = sum(map(len, values))
        params.append({"name": name, "dtype": TORCH[dtype], "shape": shape, "pos_start": len(positions),
                       "pos_end": len(positions) + packed.nbytes, "pos_width": width, "val_start": done,
                       "val_end": done + len(index)})
        positions += packed.tobytes()
        values.append(new[index] if stored == dtype else as_float32(dtype, new[index]).view("<u4"))
    raw, blob = np.concatenate(values), np.frombuffer(positions, "<u1")
    metadata = {"params": json.dumps(params), "current_version": str(version), "encoding": encoding,
                "checksum": checksum(blob, stored, raw)}
    data = write_safetensors({"__values__": (stored, [len(raw)], raw), "__positions__": ("U8", [len(blob)], blob)}, metadata)
    path.write_bytes(compressed(data, path.parent.parent) if encoding == "deltas_zstd" else data)


def write_version(root, version, models, encoding):
    """Three ranks, the last of two flushes, one of them mixed. No DONE: slime makes none."""
    folder = root / f"weight_v{version:06d}"
    folder.mkdir(parents=True)
    before, after = models[version - 1], models[version]
    changed = [name for name in after if not np.array_equal(after[name][2], before[name][2])]
    mixed = [name for name in changed if after[name][0] != "I64"]
    files = {(0, 0): mixed[:2], (2, 0): mixed[2:3], (2, 1): mixed[3:], (5, 0): [n for n in changed if n not in mixed]}
    for (rank, flush), names in files.items():
        if names:
            write_file(folder / f"rank{rank:04d}_flush{flush:06d}.safetensors", version, encoding, before, after, names)


def read_version(root, version, model, encoding):
    """As their receiver does, but exact."""
    folder = root / f"weight_v{version:06d}"
    assert (folder / "DONE").read_bytes() == b""
    model = {name: (dtype, shape, raw.copy()) for name, (dtype, shape, raw) in model.items()}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        data = decompressed(data) if data[:4] == b"\x28\xb5\x2f\xfd" else data
        metadata, tensors = read_safetensors(data)
        (_, _, blob), (stored, _, values) = tensors["__positions__"], tensors["__values__"]
        assert metadata["checksum"] == checksum(blob, stored, values), path
        assert metadata["current_version"] == str(version) and metadata["encoding"] == encoding
        for param in json.loads(metadata["params"]):
            dtype, shape, raw = model[param["name"]]
            assert param["dtype"] == TORCH[dtype] and param["shape"] == shape
            packed = blob[param["pos_start"] : param["pos_end"]].tobytes()
            if metadata["encoding"] == "indices":
                index = np.frombuffer(packed, "<i4")
            else:
                index = np.cumsum(np.frombuffer(packed, f"<u{param['pos_width']}").astype(np.int64) + 1) - 1
            new = values[param["val_start"] : param["val_end"]]
            raw[index] = new if stored == dtype else from_float32(dtype, new.view("<f4"))
    return model


def main(path):
    encodings = ["indices", "deltas", *(["deltas_zstd"] if shutil.which("zstd") else [])]
    rng = np.random.default_rng(1)
    models = [first_model(rng, SHAPES)]
    for share in (0.01, 0.00001, 0.3):
        models.append(next_model(rng, models[-1], share, SPECIAL))
    with both_ways(path, "slime-gen1", models, encodings, write_version, read_version, "--buffer-size", "64KiB") as made:
        refusals(*made, models)


def refusals(program, folder, models):
    # One flipped bit in a value: their checksum notices, and nothing is committed.
    damaged = folder / "damaged"
    write_version(damaged, 1, models, "deltas")
    file = damaged / "weight_v000001" / "rank0002_flush000000.safetensors"
    data = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    data[header] ^= 1
    file.write_bytes(data)
    said = program.run("import", "slime-gen1", damaged, folder / "no-chain", "--base", folder / "base.safetensors", status=6)
    assert "rank0002_flush000000.safetensors: checksum" in said, said
    # A NaN, which their receivers would drop.
    after = dict(models[0])
    raw = after["half"][2].copy()
    raw[7] = 0x7E01
    after["half"] = ("F16", [40, 3], raw)
    program.publish(folder / "nan", [models[0], after])
    said = program.run("export", "slime-gen1", folder / "nan", folder / "no-nan", status=3)
    assert '"half"' in said and "NaN" in said and "export slime" in said, said
    assert not list((folder / "no-nan").rglob("*.safetensors"))


if __name__ == "__main__":
    main(sys.argv[1])
