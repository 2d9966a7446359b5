"""Sums of shards prove which version several processes hold together."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltawire as dw

NUMBERS = itertools.count()


def boxes_of(cuts: list[list[int]]) -> list[tuple[slice, ...]]:
    """All boxes between the cuts of each dimension."""
    found: list[tuple[slice, ...]] = [()]
    for own in cuts:
        found = [(*box, slice(begin, end)) for box in found for begin, end in itertools.pairwise(own)]
    return found


def held(array: np.ndarray[Any, Any], box: tuple[slice, ...]) -> dw.Tensor:
    return dw.Tensor(np.ascontiguousarray(array[box]), shape=array.shape, offset=[part.start for part in box])


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_proves_any_sharding(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.uint8, np.float16, np.float32, np.float64]))
    shape = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    array = np.random.default_rng(len(shape)).integers(0, 255, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
    array = array.view(dtype).reshape(shape)
    cuts = [sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=3))}) for size in shape]
    boxes = data.draw(st.permutations(boxes_of(cuts)))
    store = f"memory:sharding-{next(NUMBERS)}"
    dw.Publisher(store, {"w": array}).publish()
    whole = dw.live.Proof()
    for box in boxes:
        whole += dw.live.Proof.parse(dw.live.Proof({"w": held(array, box)}).text)
    assert whole.digests == dw.live.Proof({"w": array}).digests
    assert whole.check(store) == 0


def test_names_a_changed_element() -> None:
    weights = {"a": np.zeros((8, 6), np.float32), "b": np.ones(5, np.float16)}
    publisher = dw.Publisher("memory:named", weights)
    publisher.publish()
    weights["a"][3, 4] = 1
    assert publisher.publish().number == 1
    proof = dw.live.Proof(weights)
    assert repr(proof) == "Proof(2 tensors)"
    assert proof.check("memory:named") == proof.check(dw.Chain("memory:named"), 1) == 1
    with pytest.raises(dw.BaseMismatch, match='the weights held are not those of version 0: tensor "a": expected'):
        proof.check("memory:named", 0)
    with pytest.raises(dw.BaseMismatch, match='tensor "b" is missing'):
        dw.live.Proof({"a": weights["a"]}).check("memory:named")
    with pytest.raises(dw.BaseMismatch, match="there are tensors that it does not have"):
        dw.live.Proof({**weights, "c": np.zeros(2)}).check("memory:named")
