#!/usr/bin/env python3
"""slime's files, generation 3, written and read by a second implementation: numpy, zstandard, xxhash.

usage: slime_test.py DELTAWIRE; exits 77 (skipped) where a package is not installed.

Versions of several ranks, both encodings and all checksums are written as slime writes them and imported; then the chain is
exported and decoded here. Every tensor must come out the same, NaN payloads and signs of zeros included.
"""

import itertools
import json
import pathlib
import sys
import tempfile
import zlib

from sparse_files import STORED, Program, np, read_safetensors, write_safetensors

try:
    import xxhash
    import zstandard
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

INDEX = "model.safetensors.index.json"
CHECKSUMS = {"xxh3-128": lambda data: xxhash.xxh3_128_hexdigest(data), "adler32": lambda data: f"{zlib.adler32(data):08x}"}
try:
    import blake3

    CHECKSUMS["blake3"] = lambda data: blake3.blake3(data).hexdigest()
except ImportError:
    print("without blake3, which is not installed")


def load(path):
    """Metadata, and {name: (dtype, shape, bytes)}."""
    metadata, tensors = read_safetensors(path.read_bytes())
    return metadata, {name: (dtype, shape, raw.tobytes()) for name, (dtype, shape, raw) in tensors.items()}


def save(path, tensors, metadata):
    raw = {name: (dtype, shape, np.frombuffer(data, STORED[dtype])) for name, (dtype, shape, data) in tensors.items()}
    path.write_bytes(write_safetensors(raw, metadata))


def encode(encoding, old, new):
    old, new = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    content = (old ^ new).tobytes()
    if encoding == "overwrite":
        at = np.flatnonzero(old != new)
        content = np.uint32(len(at)).tobytes() + at.astype(np.uint32).tobytes() + new[at].tobytes()
    return zstandard.ZstdCompressor(1).compress(content)


def decode(encoding, old, frame):
    content = zstandard.ZstdDecompressor().decompress(frame)
    held = np.frombuffer(old, np.uint8).copy()
    if encoding == "xor":
        return (held ^ np.frombuffer(content, np.uint8)).tobytes()
    count = int.from_bytes(content[:4], "little")
    assert len(content) == 4 + 5 * count
    at = np.frombuffer(content[4 : 4 + 4 * count], np.uint32)
    assert (np.diff(at.astype(np.int64)) > 0).all()
    held[at] = np.frombuffer(content[4 + 4 * count :], np.uint8)
    return held.tobytes()


def write_version(folder, version, encoding, checksum, old, new, ranks):
    folder = folder / f"weight_v{version:06d}"
    folder.mkdir(parents=True)
    changed = [name for name in new if new[name] != old[name]]
    weight_map = {}
    for rank in range(ranks):
        file = f"model-{rank:05d}-of-{ranks:05d}.safetensors"
        frames = {name: encode(encoding, old[name][2], new[name][2]) for name in sorted(changed[rank::ranks])}
        digests = {name: CHECKSUMS[checksum](new[name][2]) for name in reversed(frames)}
        save(folder / file, {name: ("U8", [len(frame)], frame) for name, frame in frames.items()}, digests)
        weight_map |= dict.fromkeys(frames, file)
    words = {"version": f"{version:06d}", "base_version": f"{version - 1:06d}", "delta_encoding": encoding}
    words |= {"compression_format": "zstd", "checksum_format": checksum}
    (folder / INDEX).write_text(json.dumps({"metadata": words, "weight_map": weight_map}))


def read_version(folder, version, state):
    folder = folder / f"weight_v{version:06d}"
    index = json.loads((folder / INDEX).read_text())
    words = index["metadata"]
    assert words["version"] == f"{version:06d}" and words["base_version"] == f"{version - 1:06d}", words
    state, seen = dict(state), {}
    for path in sorted(folder.glob("*.safetensors")):
        digests, frames = load(path)
        assert list(frames) == sorted(frames)
        for name, (kind, _, frame) in frames.items():
            assert kind == "U8" and name not in seen
            seen[name] = path.name
            dtype, shape, old = state[name]
            state[name] = (dtype, shape, decode(words["delta_encoding"], old, frame))
            assert CHECKSUMS[words["checksum_format"]](state[name][2]) == digests[name], name
    assert seen == index["weight_map"]
    return state


def make_states():
    """Three states: the seed and two steps."""
    random = np.random.default_rng(5)
    kinds = {"BF16": np.uint16, "F32": np.uint32, "F8_E4M3": np.uint8, "I64": np.uint64}
    sizes = {"one": 1, "small": 301, "block": 70_001, "large": 400_003}
    seed = {}
    for dtype, kind in kinds.items():
        for size, count in sizes.items():
            seed[f"{size}.{dtype}"] = (dtype, [count], random.integers(0, np.iinfo(kind).max, count, kind, True).tobytes())
    states = [seed]
    for _ in range(2):
        state = {}
        for name, (dtype, shape, data) in states[-1].items():
            values = np.frombuffer(data, kinds[dtype]).copy()
            mask = random.random(len(values)) < 0.012
            values[mask] ^= random.integers(0, 8, mask.sum(), values.dtype, True)
            if dtype == "BF16":
                values[0] = random.choice([0x8000, 0x0000, 0x7FC1, 0xFF81, 0x7F80])
            state[name] = (dtype, shape, values.tobytes())
        states.append(state)
    return states


def check(deltawire, folder, encoding, checksum, ranks, states):
    folder.mkdir()
    program = Program(deltawire, folder)
    save(folder / "base.safetensors", states[0], {"format": "pt"})
    for version in (1, 2):
        write_version(folder / "theirs", version, encoding, checksum, states[version - 1], states[version], ranks)
    program.run("import", "slime", folder / "theirs", folder / "store", "--base", folder / "base.safetensors")
    pulled = program.pulled(folder / "store", 2)
    assert {name: (dtype, shape, raw.tobytes()) for name, (dtype, shape, raw) in pulled.items()} == states[2]
    program.run("export", "slime", folder / "store", folder / "ours")
    state = states[0]
    for version in (1, 2):
        state = read_version(folder / "ours", version, state)
        assert state == states[version], version


def main():
    states = make_states()
    with tempfile.TemporaryDirectory() as temporary:
        for encoding, checksum, ranks in itertools.product(("xor", "overwrite"), CHECKSUMS, (1, 3)):
            folder = pathlib.Path(temporary) / f"{encoding}-{checksum}-{ranks}"
            check(sys.argv[1], folder, encoding, checksum, ranks, states)
            print(f"{encoding}, {checksum}, {ranks} ranks: the same tensors both ways")


if __name__ == "__main__":
    main()
