"""Listed elements of live arrays, exchanged with staged values and back."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltawire as dw

WIDTHS = {1: np.uint8, 2: np.float16, 4: np.float32, 8: np.float64}


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_second_swap_reverts_the_first(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lists, live, before, after = [], [], [], []
    for _ in range(data.draw(st.integers(0, 4))):
        dtype = WIDTHS[data.draw(st.sampled_from([1, 2, 4, 8]))]
        shape = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
        array = random.integers(0, 255, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8).view(dtype).reshape(shape)
        offsets = np.flatnonzero(random.random(array.size) < 0.3)
        values = random.integers(0, 100, offsets.size).astype(dtype)
        offset_dtype = data.draw(st.sampled_from([np.uint32, np.int32, np.int64, np.uint64]))
        raw = data.draw(st.sampled_from(["as they are", "bytes", "integers"]))
        given_values: Any = values
        if raw == "bytes":
            given_values = values.tobytes()
        elif raw == "integers":
            given_values = values.view(f"u{values.itemsize}")
        lists.append((array, offsets.astype(offset_dtype), given_values))
        live.append(array)
        before.append(array.tobytes())
        expected = array.copy()
        expected.reshape(-1)[offsets] = values
        after.append(expected.tobytes())
    exchange = dw.live.Exchange(iter(lists), threads=2)
    assert exchange.num_changed == sum(len(offsets) for _, offsets, _ in lists)
    assert exchange.host_bytes == sum(len(offsets) * (4 + array.itemsize) for array, offsets, _ in lists)
    assert exchange.device_bytes == 0
    assert [array.tobytes() for array in live] == before
    for expected_bytes in (after, before, after, before):
        exchange.swap()
        assert [array.tobytes() for array in live] == expected_bytes


def test_swaps_torch_tensors_and_bumps_their_versions() -> None:
    torch = pytest.importorskip("torch")
    live = torch.nn.Parameter(torch.arange(12, dtype=torch.bfloat16).reshape(3, 4))
    fp8 = torch.zeros(8).to(torch.float8_e4m3fn)
    with torch.inference_mode():
        inference = torch.zeros(5)
    exchange = dw.live.Exchange(
        [
            (live, torch.tensor([0, 11]), torch.tensor([5.5, -1.0], dtype=torch.bfloat16)),
            (fp8, np.array([7], np.uint32), torch.ones(1).to(torch.float8_e4m3fn)),
            (inference, torch.tensor([2], dtype=torch.int32), np.array([3], np.float32)),
        ]
    )
    version = live._version
    exchange.swap()
    assert live._version == version + 1
    assert (live[0, 0].item(), live[2, 3].item(), live[0, 1].item()) == (5.5, -1.0, 1.0)
    assert (fp8.float()[7].item(), inference[2].item()) == (1.0, 3.0)
    exchange.swap()
    assert torch.equal(live.detach(), torch.arange(12, dtype=torch.bfloat16).reshape(3, 4))
    assert not fp8.float().any()
    assert not inference.any()


def test_swaps_arrays_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or not dw._core.has_cuda():
        pytest.skip("no GPU")
    torch.manual_seed(1)
    for device_bytes in (None, 0):
        live = [torch.randn(1000, 257, device="cuda").to(dtype) for dtype in (torch.bfloat16, torch.float32)]
        live.append(torch.randn(99))
        before = [tensor.clone() for tensor in live]
        offsets = [torch.nonzero(torch.rand(tensor.numel()) < 0.1).flatten() for tensor in live]
        values = [torch.randn(len(own)).to(tensor.dtype) for own, tensor in zip(offsets, live, strict=True)]
        exchange = dw.live.Exchange(zip(live, offsets, values, strict=True), device_bytes=device_bytes)
        assert (exchange.device_bytes > 100_000) == (device_bytes is None)
        with torch.cuda.stream(torch.cuda.Stream()):
            exchange.swap()
        for tensor, old, own, new in zip(live, before, offsets, values, strict=True):
            expected = old.flatten().clone()
            expected[own.to(old.device)] = new.to(old.device)
            assert torch.equal(tensor.flatten(), expected)
        exchange.swap()
        assert all(torch.equal(tensor, old) for tensor, old in zip(live, before, strict=True))


def test_arrays_live_as_long_as_the_exchange() -> None:
    class Array(np.ndarray[Any, Any]):
        """An array that allows weak references."""

    live = np.zeros(4, np.uint8).view(Array)
    watch = weakref.ref(live)
    exchange = dw.live.Exchange([(live, np.array([1], np.uint32), b"\x07")])
    view = np.asarray(live)
    del live
    gc.collect()
    assert watch() is not None
    exchange.swap()
    assert view.tolist() == [0, 7, 0, 0]
    del exchange
    gc.collect()
    assert watch() is None


def uint32(*values: int) -> Any:
    return np.array(values, np.uint32)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((np.zeros(4), uint32(1, 4), np.zeros(2)), r"list 1: offset 4 \(number 1 of the list\): the array has 4 elements"),
        ((np.zeros(4), uint32(1, 1), np.zeros(2)), r"list 1: offset 1 \(number 1 of the list\): comes after 1; offsets must"),
        ((np.zeros(4), np.array([-1]), np.zeros(1)), r"list 1: offset -1 \(number 0 of the list\): must be in \[0, 2\^32\)"),
        ((np.zeros(4), np.array([1 << 32]), np.zeros(1)), r"list 1: offset 4294967296 .*: must be in \[0, 2\^32\)"),
        ((np.zeros(4), np.array([1.0]), np.zeros(1)), "list 1: offsets must be integers"),
        ((np.zeros(4), uint32(1).reshape(1, 1), np.zeros(1)), "list 1: offsets must be an array of one dimension"),
        ((np.zeros(4), [1], np.zeros(1)), "list 1: offsets must be an array of one dimension"),
        ((np.zeros(4), uint32(1), np.zeros(2)), "list 1: 1 offsets of elements of 8 bytes, but 16 bytes of values"),
        ((np.zeros(4), uint32(1), np.zeros(1, np.int64)), "list 1: the array has dtype F64, its values I64; pass the same dtype"),
        ((np.zeros(4), uint32(1), b"1234567"), "list 1: 1 offsets of elements of 8 bytes, but 7 bytes of values"),
        ((np.zeros((4, 4))[:, :2], uint32(1), np.zeros(1)), "list 1.* is not contiguous"),
        ((np.broadcast_to(np.zeros(4), 4), uint32(1), np.zeros(1)), "list 1.* (is read-only|is not writable)"),
    ],
)
def test_rejects_bad_lists(bad: tuple[Any, Any, Any], words: str) -> None:
    live = np.zeros(3, np.float32)
    with pytest.raises(dw.InvalidArgument, match=words):
        dw.live.Exchange([(live, uint32(0), np.ones(1, np.float32)), bad])
    assert not live.any()
