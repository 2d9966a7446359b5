"""Deltas between states in memory."""

import json
from pathlib import Path

import numpy as np
import pytest
from states import ARRAY_DTYPES, bits, random_array

import deltawire as dw


def two_states(seed: int = 1) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All dtypes; a few elements of each tensor differ, in some tensors none or all."""
    random = np.random.default_rng(seed)
    old = {f"{dtype}.{count}": random_array(random, dtype, (count,)) for dtype in ARRAY_DTYPES for count in (0, 1, 3000)}
    new = {name: array.copy() for name, array in old.items()}
    for name, array in new.items():
        dtype = name.split(".")[0]
        if dtype == "I16":
            continue
        chosen = random.random(len(array)) < (1 if dtype == "F16" else 0.01)
        array[chosen] = random_array(random, dtype, (int(chosen.sum()),))
    return old, new


@pytest.mark.parametrize("codec", ["auto", "tight", "gaps", "raw", "adaptive", "exponents"])
def test_every_codec_gives_the_new_state(codec: str, tmp_path: Path) -> None:
    old, new = two_states()
    delta = dw.diff(old, new, codec=codec)
    assert not any(entry.tensor.startswith("I16") for entry in delta)
    delta.save(tmp_path / "delta.safetensors")
    delta.save(tmp_path / "parts", part_bytes=1000)
    for source in delta, dw.Delta.open(tmp_path / "delta.safetensors"), dw.Delta.open(tmp_path / "parts"):
        state = {name: array.copy() for name, array in old.items()}
        applied = source.apply_(state)
        assert bits(state) == bits(new)
        assert applied.num_patched == len(delta)
        assert applied.num_changed == delta.num_changed
        assert applied.target == delta.target
        assert (source.base, source.target, len(source)) == (delta.base, delta.target, len(delta))


def test_entries_say_what_changed() -> None:
    old = {"a": np.zeros((10, 10), np.float16), "b": np.zeros(5)}
    new = {"a": old["a"].copy(), "b": old["b"]}
    new["a"][0, :3] = 1
    delta = dw.diff(old, new)
    [entry] = delta
    assert (entry.tensor, entry.dtype, entry.shape) == ("a", "F16", (10, 10))
    assert (entry.num_changed, entry.num_elements, entry.density) == (3, 100, 0.03)
    assert (entry.whole, entry.offset) == (False, ())
    assert entry.bytes == delta.bytes
    assert repr(delta).splitlines()[0] == f"Delta(1 tensor, 3 of 100 elements changed (3.000 %), {delta.bytes} B)"


def test_repr_of_long_deltas_is_short() -> None:
    old = {f"w{i:02}": np.zeros(3) for i in range(14)}
    assert repr(dw.diff(old, old)) == "Delta(nothing changed)"
    lines = repr(dw.diff(old, {name: array + 1 for name, array in old.items()})).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  ... and 4 more"


def test_added_and_removed_tensors_need_checkpoints(tmp_path: Path) -> None:
    came = dw.diff({"a": np.zeros(3)}, {"a": np.zeros(3), "b": np.ones(3)})
    assert [(entry.tensor, entry.whole) for entry in came] == [("b", True)]
    went = dw.diff({"a": np.zeros(3), "b": np.ones(3)}, {"a": np.zeros(3)})
    assert went.removed == ("b",)
    assert repr(went).endswith("b  removed")
    for delta in came, went:
        with pytest.raises(dw.InvalidArgument) as caught:
            delta.apply_({"a": np.zeros(3), "b": np.ones(3)})
        assert caught.value.tensor == "b"


def test_delta_equals_that_of_the_command_line(tmp_path: Path, store: str) -> None:
    old, new = two_states()
    publisher = dw.Publisher(store)
    for name, state in ("old", old), ("new", new):
        publisher.publish(state)
        with dw.Replica(store, tmp_path / name) as replica:
            replica.pull()
    dw.diff_checkpoints(tmp_path / "old", tmp_path / "new", tmp_path / "a.safetensors")
    dw.diff(old, new).save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_interoperates_with_the_safetensors_package(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors")
    numpy_files = pytest.importorskip("safetensors.numpy")
    random = np.random.default_rng(1)
    old = {kind: random.integers(0, 256, (64, 384), np.uint8).view(kind) for kind in ("float16", "float32", "int8", "int64")}
    new = {name: array.copy() for name, array in old.items()}
    for array in new.values():
        array.view(np.uint8).flat[random.integers(0, 64 * 384, 20)] ^= 5
    paths = [tmp_path / name for name in ("old.safetensors", "new.safetensors", "delta.safetensors", "made.safetensors")]
    for path, state in zip(paths, (old, new), strict=False):
        numpy_files.save_file(state, path, {"format": "pt"})
    before, after, delta, made = paths
    for codec in "auto", "tight", "gaps", "exponents", "raw":
        assert dw.diff_checkpoints(before, after, delta, codec=codec).bytes == delta.stat().st_size
        data = delta.read_bytes()
        entries = dict(package.deserialize(data))
        assert entries.keys() == new.keys()
        assert all(entry["dtype"] == "U8" and len(entry["shape"]) == 1 for entry in entries.values())
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        assert metadata["deltawire"].startswith("delta/1 sum128 ")
        assert metadata["deltawire.entries"].count(";") == len(new) - 1
        dw.apply_delta(delta, before, made)
        assert made.read_bytes() == after.read_bytes()


def test_refuses_to_patch_a_read_only_array() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(dw.InvalidArgument, match="is not writable"):
        dw.diff({"w": fixed}, {"w": np.ones(3)}).apply_({"w": fixed})
