"""Writes and applies slime's files, generation 3 with xor, as slime does: numpy, zstandard, xxhash, a pool of threads.

usage: slime_peer.py OLD NEW THEIRS OURS THREADS REPEAT

OLD and NEW are safetensors files. Writes the version that leads from one to the other to the folder THEIRS, applies it, and
applies the one in OURS; weights are in memory, versions are files. Prints the best times in seconds as JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
import zstandard

State = dict[str, np.ndarray[Any, np.dtype[np.uint8]]]
INDEX = "model.safetensors.index.json"


def load(path: Path) -> tuple[dict[str, str], State]:
    """Metadata and tensors of a safetensors file, all as bytes."""
    data = np.fromfile(path, np.uint8)
    begin = 8 + int(data[:8].view(np.uint64)[0])
    header = json.loads(data[8:begin].tobytes())
    metadata = header.pop("__metadata__", {})
    return metadata, {name: data[begin + e["data_offsets"][0] : begin + e["data_offsets"][1]] for name, e in header.items()}


def put(path: Path, *pieces: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def encode(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> tuple[bytes, str] | None:
    """A frame and a digest; none where nothing changed."""
    change = np.bitwise_xor(old, new)
    if not change.any():
        return None
    return zstandard.ZstdCompressor(1).compress(change), xxhash.xxh3_128_hexdigest(new)


def write(old: State, new: State, folder: Path, pool: ThreadPoolExecutor) -> None:
    """One part, then the index."""
    made = dict(zip(new, pool.map(lambda name: encode(old[name], new[name]), new), strict=True))
    changed = {name: one for name, one in sorted(made.items()) if one is not None}
    header: dict[str, Any] = {"__metadata__": {name: digest for name, (_, digest) in changed.items()}}
    at = 0
    for name, (frame, _) in changed.items():
        header[name] = {"dtype": "U8", "shape": [len(frame)], "data_offsets": [at, at + len(frame)]}
        at += len(frame)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    part = "model-00000-of-00001.safetensors"
    put(folder / part, len(text).to_bytes(8, "little"), text, *(frame for frame, _ in changed.values()))
    metadata = {"version": "000001", "base_version": "000000", "delta_encoding": "xor", "compression_format": "zstd"}
    index = {"metadata": {**metadata, "checksum_format": "xxh3-128"}, "weight_map": dict.fromkeys(changed, part)}
    put(folder / INDEX, json.dumps(index).encode())


def patch(held: np.ndarray[Any, Any], frame: np.ndarray[Any, Any], digest: str) -> None:
    """In place, and checked."""
    change = np.frombuffer(zstandard.ZstdDecompressor().decompress(frame), np.uint8)
    np.bitwise_xor(held, change, out=held)
    if xxhash.xxh3_128_hexdigest(held) != digest:
        raise RuntimeError("checksum")


def apply(state: State, folder: Path, pool: ThreadPoolExecutor) -> None:
    """All parts of a version."""
    for part in sorted(folder.glob("*.safetensors")):
        digests, frames = load(part)
        list(pool.map(lambda name, frames=frames, digests=digests: patch(state[name], frames[name], digests[name]), frames))


def best(repeat: int, prepare: Callable[[], Any], work: Callable[[Any], None], check: Callable[[Any], None]) -> float:
    """The least time that `work` took."""
    times = []
    for _ in range(repeat):
        given = prepare()
        begin = time.perf_counter()
        work(given)
        times.append(time.perf_counter() - begin)
        check(given)
    return min(times)


def main() -> None:
    """Measure, and say so."""
    old, new = (load(Path(path))[1] for path in sys.argv[1:3])
    theirs, ours = (Path(path) / "weight_v000001" for path in sys.argv[3:5])
    threads, repeat = int(sys.argv[5]), int(sys.argv[6])

    def same(state: State) -> None:
        if not all(np.array_equal(state[name], new[name]) for name in new):
            raise RuntimeError("what was applied is not the new state")

    def copy() -> State:
        return {name: tensor.copy() for name, tensor in old.items()}

    with ThreadPoolExecutor(threads) as pool:
        result = {
            "write": best(repeat, lambda: None, lambda _: write(old, new, theirs, pool), lambda _: None),
            "apply_theirs": best(repeat, copy, lambda state: apply(state, theirs, pool), same),
            "apply_ours": best(repeat, copy, lambda state: apply(state, ours, pool), same),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
