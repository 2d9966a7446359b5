#!/usr/bin/env python3
"""A second implementation of sum128, written from docs/format.md alone, section 6: numpy, and plain integers.

usage: sum128_test.py DELTAWIRE; exits 77 (skipped) where numpy is not installed.

It checks every digest of a chain that the program has published, whole tensors and single bytes, and adds shards up.
"""
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from format_test import read_safetensors, write_checkpoint
from sparse_files import np

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def word_key(lane, column):
    return mix(0x243F6A8885A308D3 + (64 * lane + column + 1) * STEP & MASK)


def segment_key(lane, segment):
    return mix((0x13198A2E03707344, 0xA4093822299F31D0)[lane] + (segment + 1) * STEP & MASK) | 1


def plain_sums(data, first=0):
    """Word by word, as specified; `first` is the position of the first word."""
    sums = [0, 0]
    for i in range(0, len(data), 8):
        word, position = int.from_bytes(data[i:i + 8], "little"), first + i // 8
        for lane in range(2):
            key = word_key(lane, position % 64)
            low, high = (word + key) % (1 << 32), ((word >> 32) + (key >> 32)) % (1 << 32)
            sums[lane] = (sums[lane] + segment_key(lane, position // 64) * (low * high)) & MASK
    return sums


def mix_all(x):
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def sums_of(data):
    """The same with numpy, whose 64-bit integers wrap."""
    words = np.frombuffer(data + bytes(-len(data) % 512), "<u8").reshape(-1, 64)
    low_half, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    valid = (np.arange(words.size) < (len(data) + 7) // 8).reshape(words.shape)
    result = []
    for lane, seed in enumerate((0x13198A2E03707344, 0xA4093822299F31D0)):
        keys = np.array([word_key(lane, column) for column in range(64)], np.uint64)
        low = (words + keys) & low_half
        high = ((words >> shift) + (keys >> shift)) & low_half
        products = np.where(valid, low * high, np.uint64(0)).sum(axis=1, dtype=np.uint64)
        segments = np.arange(1, len(words) + 1, dtype=np.uint64) * np.uint64(STEP) + np.uint64(seed)
        result.append(int((products * (mix_all(segments) | np.uint64(1))).sum(dtype=np.uint64)))
    return result


def finish(sums, size):
    length = mix(((0x082EFA98EC4E6C89 + STEP) & MASK) ^ size)
    a, b = (sums[0] + length) & MASK, (sums[1] + mix(length + STEP & MASK)) & MASK
    b ^= mix(a + STEP & MASK)
    a ^= mix(b + 2 * STEP & MASK)
    b ^= mix(a + 3 * STEP & MASK)
    a ^= mix(b + 4 * STEP & MASK)
    return a.to_bytes(8, "little") + b.to_bytes(8, "little")


def check_vectors():
    text = (pathlib.Path(__file__).parents[2] / "docs/format.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| vector ")]
    inputs = {"(no bytes)": b"", "`a`": b"a", "`deltawire`": b"deltawire", "512 zeros": bytes(512),
              "100,000 bytes, byte i is (i * i >> 3) mod 256": bytes((i * i >> 3) & 255 for i in range(100000))}
    assert len(rows) == len(inputs), rows
    for name, digest in rows:
        data = inputs[name.strip().removeprefix("vector ").strip()]
        assert sums_of(data) == plain_sums(data)
        assert finish(sums_of(data), len(data)).hex() == digest.strip().strip("`"), name
    return len(rows)


def check_shards(rng):
    for _ in range(50):
        data = rng.randbytes(rng.randrange(1, 3000))
        cuts = sorted({0, len(data), *(rng.randrange(0, len(data), 8) for _ in range(4))})
        shards = [plain_sums(data[a:b], a // 8) for a, b in zip(cuts, cuts[1:])]
        whole = [sum(shard[lane] for shard in shards) & MASK for lane in range(2)]
        assert whole == sums_of(data)
    return 50


def check_chain(deltawire, rng):
    forms = {"a.weight": ("BF16", [300, 77], 2), "b.odd": ("U8", [1, 13], 1), "c.scalar": ("F32", [], 4),
             "d.empty": ("F16", [0, 4], 2), "e.wide": ("F64", [5, 9], 8), "f.big": ("BF16", [700, 1024], 2)}

    def elements(shape):
        return int(np.prod(shape, dtype=np.int64))

    tensors = {name: (dtype, shape, bytearray(rng.randbytes(elements(shape) * width)))
               for name, (dtype, shape, width) in forms.items()}
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        store, checkpoint = folder / "store", folder / "model.safetensors"
        for version in range(3):
            write_checkpoint(checkpoint, tensors)
            subprocess.run([deltawire, "publish", checkpoint, store, "--snapshot", folder / "snapshot",
                            "--quiet"], check=True)
            manifest = json.loads((store / f"manifests/{version:010}.json").read_bytes())
            assert manifest["digest"] == "sum128", manifest["digest"]
            digests = base64.b64decode(manifest["digests"])
            _, held = read_safetensors(checkpoint)
            for i, name in enumerate(sorted(held)):
                data = bytes(held[name][2])
                assert digests[16 * i:16 * i + 16] == finish(sums_of(data), len(data)), (version, name)
                checked += 1
            for _, _, data in tensors.values():
                for _ in range(min(5, len(data))):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return checked


def main(deltawire):
    rng = random.Random(13)
    passed = check_vectors() + check_shards(rng) + check_chain(deltawire, rng)
    print(f"{passed} passed, 0 failed")


main(sys.argv[1])
