"""Groups of weights on a GPU: the kernels give torch's codes and scales on a CPU for any weights."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.quantize import kernels as groups
from deltawire.quantize.integers import Int4
from deltawire.quantize.mx import MxFp4, MxFp8
from deltawire.quantize.nvfp4 import CompressedNvfp4, Nvfp4

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SCHEMES = [
    *(Int4(group=group, symmetric=symmetric) for group in (8, 32, 128, 256) for symmetric in (True, False)),
    Nvfp4(),
    CompressedNvfp4(),
    MxFp4(),
    MxFp8(),
    MxFp8(scale_name="weight_scale", rounding="round"),
]
KINDS = ("plain", "zeros", "few", "denormal", "huge", "wide", "ties", "powers", "positive", "noise")


def weights(kind: str, dtype: Any) -> Any:
    torch.manual_seed(KINDS.index(kind))
    weight = torch.randn(72, 768) * 0.02
    if kind == "zeros":
        weight = torch.zeros_like(weight)
        weight[0, 0] = 1.0  # NVFP4 has no scale for zeros alone
    if kind == "few":
        weight[torch.rand(weight.shape) < 0.97] = -0.0
    if kind == "denormal":
        weight *= 1e-38
        weight[::3] *= 1e-2
    if kind == "huge":
        weight *= 1e38
    if kind == "wide":
        weight *= torch.logspace(-30, 20, 768)
    if kind == "ties":
        weight = torch.randint(-32, 33, weight.shape) / 4.0
    if kind == "powers":
        weight = weight.sign() * torch.exp2(torch.randint(-20, 20, weight.shape).float())
    if kind == "positive":
        weight = weight.abs()
    weight = weight.to(dtype)
    if kind == "noise":  # any finite bits
        integers = torch.int16 if dtype == torch.bfloat16 else torch.int32
        info = torch.iinfo(integers)
        weight = torch.randint(info.min, info.max, weight.shape, dtype=integers).view(dtype)
        weight = torch.where(weight.isfinite(), weight, torch.ones((), dtype=dtype))
    return weight


def assert_same_bits(of_gpu: Any, of_cpu: Any, place: Any) -> None:
    assert of_gpu.keys() == of_cpu.keys()
    for suffix, one in of_cpu.items():
        there = of_gpu[suffix].tensor.cpu()
        assert (there.shape, there.dtype, of_gpu[suffix].per) == (one.tensor.shape, one.tensor.dtype, one.per)
        differ = there.contiguous().reshape(-1).view(torch.uint8) != one.tensor.contiguous().reshape(-1).view(torch.uint8)
        assert not differ.any(), (place, suffix, int(differ.sum()))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: "-".join(str(part) for part in scheme.settings().values()))
def test_kernel_bits_match_torch(scheme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def counted(*given: Any, **named: Any) -> Any:
        used.append(groups.codes_on_gpu(*given, **named))
        return used[-1]

    for kind in KINDS:
        for dtype in torch.bfloat16, torch.float32:
            weight = weights(kind, dtype)
            shape, amax = tuple(weight.shape), weight.float().abs().amax()
            if isinstance(scheme, Nvfp4) and amax < 2.0**-115:
                continue  # refused
            of_cpu = scheme.coded(weight, amax, shape)
            with monkeypatch.context() as patch:
                for module in "integers", "nvfp4", "mx":
                    patch.setattr(f"deltawire.quantize.{module}.codes_on_gpu", counted)
                of_gpu = scheme.coded(weight.cuda(), amax.cuda(), shape)
            assert used[-1] is not None
            assert_same_bits(of_gpu, of_cpu, (kind, dtype))


def test_unsupported_input_falls_back_to_torch() -> None:
    weight = torch.randn(8, 96).bfloat16()
    amax = weight.float().abs().amax()
    for scheme, given in [
        (Int4(group=96), weight),  # no power of two
        (Int4(group=0), weight),
        (Int4(group=32), torch.randn(32, 8).bfloat16().t()),
        (Int4(group=32), torch.randn(8 * 96 + 1).bfloat16()[1:].view(8, 96)),
    ]:
        of_cpu = scheme.coded(given, amax, tuple(given.shape))
        of_gpu = scheme.coded(given.cuda(), amax.cuda(), tuple(given.shape))
        assert_same_bits(of_gpu, of_cpu, scheme)


@pytest.mark.parametrize("name", ["int4-g32", "int4-g32-asymmetric", "nvfp4", "compressed-nvfp4", "mxfp4", "mxfp8", "fp8-block"])
def test_publisher_on_a_gpu_matches_the_cpu(name: str, store: str) -> None:
    from deltawire.quantize import quantize

    torch.manual_seed(4)
    part = "model.layers.{}.mlp.{}_proj.weight"
    state = {part.format(i, p): (torch.randn(512, 1024) * 0.02).bfloat16().cuda() for i in range(3) for p in ("gate", "up")}
    state[part.format(9, "down")] = torch.randn(256, 384).mul_(0.02).cuda()  # F32
    with dw.Publisher(store, state, quantize=name) as publisher:
        for number in range(3):
            assert publisher.publish().number == number
            expected = dict(quantize({key: tensor.cpu() for key, tensor in state.items()}, name))
            live = {key: torch.zeros_like(tensor) for key, tensor in expected.items()}
            with dw.TensorReplica(store, live) as replica:
                replica.pull()
            for key, tensor in expected.items():
                assert torch.equal(live[key].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), (number, key)
            for tensor in state.values():
                tensor += torch.randn_like(tensor) * 1e-4
