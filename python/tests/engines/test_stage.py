"""Files of deltas staged over live arrays, by their addresses."""

from pathlib import Path

import numpy as np
import pytest

import deltawire as dw
from deltawire import _core


def test_stages_files_of_two_deltas(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    versions = [{"w": random.random((64, 48), np.float32), "b": random.random(7, np.float32), "other": np.zeros(3)}]
    for _ in range(2):
        state = {name: array.copy() for name, array in versions[-1].items()}
        state["w"][random.random((64, 48)) < 0.1] += 1
        state["b"][3] += 1
        state["other"][0] += 1
        versions.append(state)
    paths = []
    for i in range(2):
        dw.diff(versions[i], versions[i + 1], codec="gaps").save(tmp_path / str(i), part_bytes=200)
        paths.append(sorted((tmp_path / str(i)).glob("*.safetensors")))
    assert len(paths[0]) > 1

    fused = np.zeros((2, 32, 60), np.float32)  # rows 32 to 63 of w, with others' columns behind each row
    fused[1, :, :48] = versions[0]["w"][32:]
    bias = versions[0]["b"].copy()
    tensors = [
        ("w", "F32", [64, 48], False, [([32, 0], [32, 48], fused[1].ctypes.data, [fused.strides[1]])]),
        ("b", "F32", [7], False, [([], [], bias.ctypes.data, [])]),
    ]
    exchange, changed, undecoded = _core.DeltaStager().stage(paths, tensors, device_bytes=None, threads=2)
    assert (changed, undecoded) == (["b", "other", "w"], {})
    assert exchange.num_changed == np.count_nonzero(versions[0]["w"][32:] != versions[2]["w"][32:]) + 1
    for version in (2, 0):
        exchange.swap()
        expected = np.zeros((2, 32, 60), np.float32)
        expected[1, :, :48] = versions[version]["w"][32:]
        np.testing.assert_array_equal(fused, expected)
        np.testing.assert_array_equal(bias, versions[version]["b"])

    with pytest.raises(dw.BaseMismatch, match='"b"'):
        _core.DeltaStager().stage(paths, [("b", "F16", [7], False, [])], None, 1)
    with pytest.raises(dw.InvalidArgument, match="unknown dtype F33"):
        _core.DeltaStager().stage(paths, [("b", "F33", [7], False, [])], None, 1)
    damaged = bytearray(paths[1][0].read_bytes())
    damaged[-1] ^= 1
    paths[1][0].write_bytes(damaged)
    with pytest.raises(dw.Corruption, match=paths[1][0].name):
        _core.DeltaStager().stage(paths, tensors, None, 1)
