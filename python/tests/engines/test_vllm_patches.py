"""`deltawire.engines.vllm.patches` without vLLM; tests/engines/test_vllm_patches.py has its real classes and loader."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.engines.vllm.patches import Patch, apply_patches_, patches_between, patches_of

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn)


def state(seed: int = 1) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {str(dtype): torch.randn(5, 7, generator=generator).to(dtype) for dtype in FLOATS}


def copy_of(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def bits(tensors: dict[str, Any]) -> dict[str, list[int]]:
    return {name: tensor.contiguous().reshape(-1).view(torch.uint8).tolist() for name, tensor in tensors.items()}


def test_there_and_back_exactly() -> None:
    old = state()
    new = copy_of(old)
    for dtype in FLOATS:
        new[str(dtype)][2, 3] = 9
        new[str(dtype)][0, 0] = 0.0
    new["torch.float32"][4, 6] = -0.0
    old["torch.float32"][4, 6] = 0.0  # a flip of the sign alone
    patches = patches_between(old, new)
    assert [patch.name for patch in patches] == sorted(new)
    for patch in patches:
        assert patch.indices is not None
        assert patch.indices.dtype == torch.int32
        assert patch.indices.tolist() == sorted(patch.indices.tolist())
        assert patch.shape == (5, 7)
    assert next(p for p in patches if p.name == "torch.float32").indices.tolist() == [0, 17, 34]
    apply_patches_(old, patches)
    assert bits(old) == bits(new)
    assert patches_between(old, new) == []


def test_a_version_of_a_chain(store: str) -> None:
    weights = state()
    with dw.Publisher(store, weights) as publisher:
        publisher.publish()
        before = copy_of(weights)
        weights["torch.bfloat16"][1, 1] += 1
        publisher.publish()
    [patch] = patches_of(store, 1)
    assert (patch.name, patch.indices.tolist()) == ("torch.bfloat16", [8])
    apply_patches_(before, [patch])
    assert bits(before) == bits(weights)
    with pytest.raises(dw.InvalidArgument, match="it is the first"):
        patches_of(store, 0)


def test_nan_is_refused_by_name_and_dense_takes_it() -> None:
    old = state()
    new = copy_of(old)
    new["torch.float32"][1, 2] = float("nan")
    with pytest.raises(dw.Unsupported, match=r'tensor "torch.float32": element 9 becomes NaN.*dense=True.*"deltawire"'):
        patches_between(old, new)
    [patch] = patches_between(old, new, dense=True)
    assert patch.indices is None
    apply_patches_(old, [patch])
    assert bits(old) == bits(new)


def test_a_nan_that_stays_is_no_matter() -> None:
    old = state()
    old["torch.float32"][0, 0] = float("nan")
    new = copy_of(old)
    new["torch.float32"][0, 1] = 1
    [patch] = patches_between(old, new)
    assert patch.indices.tolist() == [1]


def test_what_patches_cannot_express_is_refused_by_name() -> None:
    w = torch.zeros(4)
    with pytest.raises(dw.Unsupported, match='tensor "new": is in one state alone'):
        patches_between({"w": w}, {"w": w, "new": w})
    with pytest.raises(dw.Unsupported, match=r'tensor "w": F32 \[4\] before, F32 \[2, 2\] now'):
        patches_between({"w": w}, {"w": w.reshape(2, 2)})
    with pytest.raises(dw.Unsupported, match=r'tensor "w": F32 \[4\] before, BF16 \[4\] now'):
        patches_between({"w": w}, {"w": w.to(torch.bfloat16)})
    with pytest.raises(dw.Unsupported, match=r'tensor "i": I32 \[1\]: NaN marks'):
        patches_between({"i": torch.tensor([1], dtype=torch.int32)}, {"i": torch.tensor([2], dtype=torch.int32)})
    large = torch.zeros(1, dtype=torch.bfloat16).expand(2**31 + 1)  # of no memory
    pair = {"c": torch.zeros(2, dtype=torch.complex128)}
    with pytest.raises(dw.Unsupported, match=r'tensor "c": .*elements of 16 bytes'):
        patches_between(pair, {"c": pair["c"] + 1}, dense=True)
    with pytest.raises(dw.Unsupported, match=r'tensor "large": 2,147,483,649 elements, and int32 positions end at 2,147,483,647'):
        patches_between({"large": large}, {"large": large})


@pytest.mark.parametrize(
    ("indices", "values", "words"),
    [
        ([4], [1.0], "is not among its 4 elements"),
        ([-1], [1.0], "is not among its 4 elements"),
        ([1, 1], [1.0, 2.0], "a position twice"),
        ([1], [1.0, 2.0], "has 2 values"),
        (None, [1.0], "has 1 values"),
        ([1.5], [1.0], "must be whole numbers"),
    ],
)
def test_nothing_is_written_when_a_patch_is_wrong(indices: list[Any] | None, values: list[float], words: str) -> None:
    weights = {"a": torch.zeros(4), "w": torch.zeros(4)}
    positions = None if indices is None else torch.tensor(indices, dtype=torch.float32 if 1.5 in indices else torch.int32)
    good = Patch("a", (4,), torch.float32, torch.ones(1), torch.tensor([0], dtype=torch.int32))
    with pytest.raises(dw.InvalidArgument, match=words):
        apply_patches_(weights, [good, Patch("w", (4,), torch.float32, torch.tensor(values), positions)])
    assert not weights["a"].any()


def test_patches_of_another_model() -> None:
    one = Patch("w", (4,), torch.float32, torch.ones(1), torch.tensor([0], dtype=torch.int32))
    with pytest.raises(dw.BaseMismatch, match="no such tensor"):
        apply_patches_({}, [one])
    with pytest.raises(dw.BaseMismatch, match="its patch is of"):
        apply_patches_({"w": torch.zeros(2, 2)}, [one])
    with pytest.raises(dw.BaseMismatch, match="its patch is of"):
        apply_patches_({"w": torch.zeros(4, dtype=torch.bfloat16)}, [one])
