"""Replicas that hold boxes of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deltawire as dw


def cut(weights: dict[str, np.ndarray], rank: int) -> dict[str, dw.Tensor | np.ndarray]:
    """Half of every matrix by columns, and vectors whole."""
    held: dict[str, dw.Tensor | np.ndarray] = {}
    for name, array in weights.items():
        if array.ndim != 2:
            held[name] = np.zeros_like(array)
            continue
        half = array.shape[1] // 2
        offset, width = (0, half) if rank == 0 else (half, array.shape[1] - half)
        held[name] = dw.Tensor(np.zeros((len(array), width), array.dtype), shape=array.shape, offset=(0, offset))
    return held


def is_part_of(held: dict[str, dw.Tensor | np.ndarray], weights: dict[str, np.ndarray]) -> bool:
    for name, value in held.items():
        if isinstance(value, dw.Tensor):
            assert value.offset is not None
            begin = value.offset[1]
            same = np.array_equal(value.array, weights[name][:, begin : begin + value.array.shape[1]])
        else:
            same = np.array_equal(value, weights[name])
        if not same:
            return False
    return True


@pytest.mark.parametrize("memory_limit", [2 << 30, 1 << 12])
def test_slices_of_columns_follow(store: str, memory_limit: int) -> None:
    random = np.random.default_rng(1)
    weights = {"up": random.random((40, 31), np.float32), "norm": random.random(40)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    ranks = [cut(weights, rank) for rank in range(2)]
    replicas = [dw.TensorReplica(store, held, limits=dw.Limits(memory_bytes=memory_limit)) for held in ranks]
    for _ in range(3):
        for replica, held in zip(replicas, ranks, strict=True):
            pulled = replica.pull()
            assert not pulled.repaired
            assert is_part_of(held, weights)
        weights["up"][random.random(weights["up"].shape) < 0.1] += 1
        weights["norm"][3] += 1
        publisher.publish()


def test_a_slice_that_was_written_to_is_loaded_anew(store: str) -> None:
    weights = {"up": np.arange(60.0).reshape(6, 10)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    held = cut(weights, 1)
    replica = dw.TensorReplica(store, held)
    replica.pull()
    weights["up"][0, 9] = -1
    publisher.publish()
    held["up"].array[2, 2] += 1
    pulled = replica.pull()
    assert pulled.repaired
    assert 'tensor "up", box 0,5+6,5' in pulled.repair_reason
    assert is_part_of(held, weights)


def test_boxes_that_overlap_are_refused(store: str) -> None:
    dw.Publisher(store, {"w": np.zeros((4, 4))}).publish()
    box = dw.Tensor(np.zeros((2, 4)), shape=(4, 4), offset=(1, 0))
    with pytest.raises(dw.InvalidArgument, match='tensor "w", box 1,0.2,4: meets tensor "w", box 0,0'):
        dw.TensorReplica(store, [("w", dw.Tensor(np.zeros((2, 4)), shape=(4, 4), offset=(0, 0))), ("w", box)])


def test_scratch_is_empty_when_the_replica_is_closed(store: str, tmp_path: Path) -> None:
    weights = {"up": np.arange(60.0).reshape(6, 10)}
    dw.Publisher(store, weights).publish()
    with dw.TensorReplica(store, cut(weights, 0), scratch=tmp_path) as replica:
        replica.pull()
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
