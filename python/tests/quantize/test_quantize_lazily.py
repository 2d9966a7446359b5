"""Weights are quantised while a publisher reads them; unquantisable ones are refused before a commit."""

import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.quantize import FORMATS, quantize, quantizer_of
from deltawire.quantize import scheme as scheme_module
from deltawire.quantize.config import rules_of
from deltawire.quantize.fp8 import CompressedFp8, Fp8Block
from deltawire.quantize.integers import Int4, Int8, PackedInt8
from deltawire.quantize.kernels import Fp8Blocks
from deltawire.quantize.quantizer import Shard
from deltawire.torch import quantised as lazily

ROUNDED = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
DENSE = [name for name in FORMATS if name != "gpt-oss-mxfp4"]


def bits(tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def weights(kind: str, shape: tuple[int, int], dtype: Any) -> Any:
    torch.manual_seed(3)
    weight = torch.randn(shape) * 0.02
    if kind == "zeros":
        weight = weight.sign() * 0.0
    if kind == "denormal":
        weight = weight * 1e-38
    if kind == "huge":
        weight = weight * (3e4 if dtype == torch.float16 else 1e39)
    if kind == "wide":
        weight = weight * torch.logspace(-12, 4, shape[1])
    if kind == "ties":
        weight = (torch.randint(-4096, 4096, shape) / 64.0) * 0.5
        weight[::16] = 448.0
    return weight.clamp(-6e4, 6e4).to(dtype) if dtype == torch.float16 else weight.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["normal", "zeros", "denormal", "huge", "wide", "ties"])
def test_kernel_matches_torch(kind: str, dtype: Any) -> None:
    for shape in (128, 128), (1, 1), (300, 257):
        weight = weights(kind, shape, dtype)
        for power_of_two in False, True:
            for block in (128, 128), (64, 32), (1, 7):
                scheme = Fp8Block(block=block, power_of_two=power_of_two)
                for rounded, narrow in ROUNDED.items():
                    if not bool(weight.to(narrow).isfinite().all()):
                        continue
                    theirs = scheme.coded(weight.to(narrow), None, shape)
                    ours = Fp8Blocks("w", weight, scheme, rounded)
                    assert torch.equal(bits(ours.scales()), bits(theirs["weight_scale_inv"].tensor))
                    assert torch.equal(bits(ours.elements()), bits(theirs["weight"].tensor)), (shape, block, rounded)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3.4e38])
def test_refuses_non_finite_weights_by_name(value: float) -> None:
    weight = torch.ones(130, 130)
    weight[129, 129] = value
    with pytest.raises(dw.InvalidArgument, match='tensor "w": contains NaN or an infinity'):
        Fp8Blocks("w", weight, Fp8Block(), "BF16")


def test_quantises_non_contiguous_weights() -> None:
    weight = torch.randn(256, 384).bfloat16()
    theirs = Fp8Block().coded(weight.t(), None, (384, 256))
    assert torch.equal(bits(Fp8Blocks("w", weight.t(), Fp8Block(), "BF16").elements()), bits(theirs["weight"].tensor))


def model(layers: int = 6, dtype: Any = torch.bfloat16) -> dict[str, Any]:
    torch.manual_seed(0)
    state = {"model.norm.weight": torch.ones(256)}
    for layer in range(layers):
        for part in "q_proj", "k_proj", "v_proj", "o_proj":
            state[f"model.layers.{layer}.self_attn.{part}.weight"] = torch.randn(256, 256) * 0.02
    return {name: tensor.to(dtype) for name, tensor in state.items()}


def step(state: dict[str, Any]) -> None:
    for tensor in state.values():
        tensor += (torch.randn(tensor.shape) * 1e-4).to(tensor.dtype)


@pytest.mark.parametrize("name", DENSE)
def test_shapes_are_known_before_quantising(name: str) -> None:
    quantizer = quantizer_of(name)
    shards = [Shard.whole(key, tensor) for key, tensor in model(1).items()]
    coded = list(quantizer.quantised(shards))
    forms = [form for plan in quantizer.planned(shards) for form in plan.forms]
    assert [(f.shard.name, f.shard.tensor.shape, f.dtype, f.sources) for f in forms] == [
        (m.shard.name, m.shard.tensor.shape, m.dtype, m.sources) for m in coded
    ]


SCHEMES = {
    **{name: rules_of(config).groups[0][1] for name, config in FORMATS.items()},
    "fp8-odd-block": Fp8Block(block=(48, 80)),
    "fp8-huge-block": Fp8Block(block=(1 << 30, 1 << 30)),
    "compressed-huge-block": CompressedFp8(strategy="block", block=(1 << 30, 64)),
    "int4-rows": Int4(group=0),
    "int4-rows-asymmetric": Int4(group=0, symmetric=False, shape_dtype="I32"),
    "int8-packed-asymmetric": PackedInt8(group=64, symmetric=False),
    "int8-tensor": Int8(strategy="tensor"),
}


def forms_and_coded(scheme: Any, dtype: Any, shape: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    weight = torch.ones(shape, dtype=dtype)
    amax = weight.float().abs().amax() if scheme.amax_of != "row" else weight.float().abs().amax(dim=1, keepdim=True)
    forms = scheme.forms(shape, dtype)
    huge = isinstance(scheme, (Fp8Block, CompressedFp8)) and scheme.block is not None and max(scheme.block) > 4096
    if huge:  # torch fills blocks up: one that is as large as the weight has the same form
        scheme = replace(scheme, block=tuple(min(pair) for pair in zip(scheme.block, shape, strict=True)))
    coded = scheme.coded(weight, amax, shape)
    said = [(key, tuple(one.tensor.shape), one.tensor.dtype, None if huge else one.per) for key, one in forms.items()]
    return said, [(key, tuple(one.tensor.shape), one.tensor.dtype, None if huge else one.per) for key, one in coded.items()]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_shapes_match_the_quantised_tensors(name: str, dtype: Any) -> None:
    for shape in [(2, 64, 3), (1, 32, 256)] if name == "gpt-oss-mxfp4" else [(129, 384), (3, 128), (256, 1280)]:
        forms, coded = forms_and_coded(SCHEMES[name], dtype, shape)
        assert forms == coded, shape


def test_shapes_do_not_depend_on_torch_defaults() -> None:
    scheme_module._tile_of.cache_clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        during = {name: forms_and_coded(SCHEMES[name], torch.bfloat16, (256, 1280)) for name in DENSE}
    finally:
        torch.set_default_dtype(torch.float32)
    for name, (forms, coded) in during.items():
        assert forms == coded, name
        assert forms == forms_and_coded(SCHEMES[name], torch.bfloat16, (256, 1280))[0], name


def test_first_publish_does_not_wait_for_torch(store: str) -> None:
    """torch's meta computations load sympy, which takes many seconds."""
    script = (
        "import sys, torch, deltawire as dw\n"
        "model = {'up_proj.weight': torch.ones(256, 256, dtype=torch.bfloat16)}\n"
        "before = 'sympy' in sys.modules\n"
        f"dw.Publisher({store!r}, model, quantize='int4-g128').publish()\n"
        "assert before or 'sympy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


class Alive:
    """Counts the bytes of live quantised tensors, now and at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.coded = 0
        get = lazily.RecentTensors.get

        class Coded(list[Any]):
            """A list that allows weak references."""

        def counted(window: Any, key: int, make: Any) -> Any:
            def coded() -> Any:
                tensors = Coded(make())
                size = sum(tensor.size_bytes for tensor in tensors)
                self.coded += 1
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(tensors, self._gone, size)
                return tensors

            return get(window, key, coded)

        monkeypatch.setattr(lazily.RecentTensors, "get", counted)

    def _gone(self, size: int) -> None:
        self.now -= size


def replica_of(store: str, folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    with dw.Replica(store, folder) as replica:
        replica.pull()
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


@pytest.mark.parametrize("name", ["int4-g128", "nvfp4", "compressed-fp8-block", "fp8-channel"])
def test_keeps_few_tensors_alive(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazily.RecentTensors.__init__, "__defaults__", (1 << 17,))
    alive, state = Alive(monkeypatch), model()
    with dw.Publisher(f"{tmp_path}/store", state, quantize=name) as publisher:
        for _ in range(3):
            alive.most = alive.coded = 0
            publisher.publish()
            assert alive.coded >= 24  # each weight, once at least
            largest = 256 * 256 + 256 * 256 // 16 * 2  # of what is made of one weight, roughly
            assert alive.most <= (1 << 17) + 5 * largest < 24 * 256 * 256 // 2
            expected = dict(quantize(state, name))
            got = replica_of(f"{tmp_path}/store", tmp_path / "replica")
            assert all(torch.equal(bits(got[key]), bits(expected[key])) for key in expected)
            step(state)
    assert alive.now == 0


@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-ue8m0"])
def test_never_materialises_all_fp8_blocks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = model(dtype=torch.float32)
    expected = []
    for _ in range(3):
        expected.append({key: bits(tensor).clone() for key, tensor in quantize(state, name)})
        step(state)

    def never(*_: Any) -> Any:
        raise AssertionError("a quantised copy of a tensor was made")

    monkeypatch.setattr(Fp8Blocks, "elements", never)
    state = model(dtype=torch.float32)
    with dw.Publisher(f"{tmp_path}/store", state, quantize=name) as publisher:
        for number, version in enumerate(expected):
            assert publisher.publish().number == number
            got = replica_of(f"{tmp_path}/store", tmp_path / "replica")
            assert all(torch.equal(bits(got[key]), version[key]) for key in version)
            step(state)


@pytest.mark.parametrize("name", ["fp8-block", "int4-g128"])
def test_nan_in_the_last_tensor_commits_nothing(name: str, tmp_path: Path) -> None:
    state = model(75)  # 300 weights
    last = "model.layers.74.self_attn.o_proj.weight"
    with dw.Publisher(f"{tmp_path}/store", state, quantize=name) as publisher:
        for number in range(2):  # a version that is stored whole, and a delta
            good = state[last][255, 255].clone()
            state[last][255, 255] = float("nan")
            with pytest.raises(dw.InvalidArgument, match=f'tensor "{last}": contains NaN'):
                publisher.publish()
            state[last][255, 255] = good
            assert publisher.publish().number == number
            step(state)


def test_failed_quantising_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = model()
    with dw.Publisher(f"{tmp_path}/store", state, quantize="int4-g128") as publisher:
        publisher.publish()
        step(state)
        get, calls = lazily.RecentTensors.get, []

        def failing(window: Any, key: int, make: Any) -> Any:
            calls.append(key)
            if len(calls) > 10:
                raise ValueError("out of luck")
            return get(window, key, make)

        with monkeypatch.context() as patch:
            patch.setattr(lazily.RecentTensors, "get", failing)
            with pytest.raises(dw.Error, match="out of luck"):
                publisher.publish()
        assert publisher.publish().number == 1
        got = replica_of(f"{tmp_path}/store", tmp_path / "replica")
        assert all(torch.equal(bits(got[key]), bits(tensor)) for key, tensor in quantize(state, "int4-g128"))
