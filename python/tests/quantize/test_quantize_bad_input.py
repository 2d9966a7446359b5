"""Bad input of every format: a defined result, the reference library's where it has one, or a refusal that names the tensor."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")

from test_quantize import save

import deltawire as dw
from deltawire.quantize import FORMATS, quantize

NAME = "model.layers.0.mlp.down_proj.weight"
EXPERTS = "model.layers.0.mlp.experts.down_proj"
MODULE = NAME.removesuffix(".weight")
LARGEST = torch.finfo(torch.bfloat16).max
GROUPS = {"mxfp8": 32, "compressed-mxfp8": 32, "nvfp4": 16, "compressed-nvfp4": 16, "int4-g32": 32, "int4-g32-asymmetric": 32}
GROUPS |= {"int4-g128": 128, "int4-g128-asymmetric": 128, "int8-packed-g128": 128, "mxfp4": 32, "gpt-oss-mxfp4": 32}
FLOATS = (torch.float32, torch.bfloat16, torch.float8_e4m3fn)


def coded(format: str, weight: Any) -> dict[str, Any]:
    """Quantise; gpt-oss' weights hold all experts, transposed."""
    if format == "gpt-oss-mxfp4":
        return dict(quantize({EXPERTS: weight.T[None].contiguous()}, format))
    return dict(quantize({NAME: weight}, format))


def refusal(format: str, weight: Any) -> str:
    with pytest.raises(dw.InvalidArgument) as caught:
        coded(format, weight)
    assert caught.value.tensor == (EXPERTS if format == "gpt-oss-mxfp4" else NAME)
    return str(caught.value)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinities(format: str, bad: float) -> None:
    for dtype in torch.bfloat16, torch.float32:
        weight = torch.ones(128, 256, dtype=dtype)
        weight[100, 200] = bad
        assert "contains NaN or an infinity" in refusal(format, weight)


@pytest.mark.parametrize("format", FORMATS)
def test_masters_that_round_to_infinity(format: str) -> None:
    weight = torch.ones(128, 256)
    weight[3, 3] = torch.finfo(torch.float32).max
    assert "contains NaN or an infinity" in refusal(format, weight)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_weights(format: str, zero: float) -> None:
    weight = torch.full((128, 256), zero, dtype=torch.bfloat16)
    if format == "nvfp4":
        assert "all elements are zero" in refusal(format, weight)  # ModelOpt makes NaN of it
        return
    ours = coded(format, weight)
    for name, tensor in ours.items():
        if "scale" in name and tensor.dtype in FLOATS:
            assert bool((tensor.float().isfinite() & (tensor.float() > 0)).all()), name
    if format == "compressed-nvfp4":  # as the library has it
        assert ours[f"{MODULE}.weight_global_scale"].tolist() == [1.0]
        assert ours[f"{MODULE}.weight_scale"].float().unique().tolist() == [0.125]
        assert not ours[f"{MODULE}.weight_packed"].any()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("amax", [LARGEST, 2.0**-133])
def test_largest_and_smallest_amax(format: str, amax: float) -> None:
    weight = torch.full((128, 256), amax, dtype=torch.bfloat16)
    weight[:, ::2] *= -1
    if "asymmetric" in format and amax == LARGEST:
        assert "too large" in refusal(format, weight)  # twice that is no number of BF16
        return
    if format == "nvfp4" and amax < 1:
        assert "nearly so" in refusal(format, weight)
        return
    for name, tensor in coded(format, weight).items():
        if tensor.dtype in FLOATS:
            assert bool(tensor.float().isfinite().all()), name
        if "scale" in name and tensor.dtype in FLOATS:
            assert bool((tensor.float() > 0).all()), name


@pytest.mark.parametrize("format", FORMATS)
def test_tensors_that_are_not_matrices(format: str) -> None:
    if format != "gpt-oss-mxfp4":
        with pytest.raises(dw.InvalidArgument, match="quantises only matrices.*ignores its module"):
            coded(format, torch.ones(8, 1, 128))


@pytest.mark.parametrize("format", FORMATS)
def test_columns_that_do_not_fill_groups(format: str) -> None:
    weight = torch.randn(37, 41).bfloat16()
    if format in GROUPS:
        assert f"41 columns are not a multiple of {GROUPS[format]}" in refusal(format, weight)
    else:  # rows, tensors, and blocks that the end cuts short
        assert coded(format, weight)[NAME].shape == (37, 41)


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "gpt-oss-mxfp4"])
def test_checkpoint_with_a_missing_or_extra_scale(tmp_path: Path, format: str) -> None:
    weights = {NAME: torch.randn(128, 256).bfloat16()}
    state = dict(quantize(weights, format))
    for at, name in enumerate(sorted(state)):
        if name == NAME:
            continue
        lacking = {key: tensor for key, tensor in state.items() if key != name}
        with pytest.raises(dw.InvalidArgument, match=f'has no "{name}"'):
            dict(quantize(weights, save(tmp_path / f"lacks-{at}", lacking, FORMATS[format])))
        other = state | {name: torch.zeros(3, 5, dtype=torch.int64)}
        with pytest.raises(dw.InvalidArgument, match=r"is I64 \[3, 5\]"):
            dict(quantize(weights, save(tmp_path / f"other-{at}", other, FORMATS[format])))


@pytest.mark.parametrize("format", FORMATS)
def test_refuses_a_seed_with_a_missing_part(tmp_path: Path, format: str) -> None:
    state = coded(format, torch.randn(128, 256).bfloat16())
    for at, name in enumerate(sorted(state)):
        lacking = {key: tensor for key, tensor in state.items() if key != name}
        publisher = dw.Publisher("memory:seed-lacks", quantize=format)
        with pytest.raises(dw.InvalidArgument, match=f"has .* but no .*{name}.*; publish a weight together"):
            publisher.publish_checkpoint(save(tmp_path / f"lacks-{at}", lacking, FORMATS[format]))
    publisher = dw.Publisher(f"memory:seed-{format}", quantize=format)
    assert publisher.publish_checkpoint(save(tmp_path / "whole", state, FORMATS[format])).number == 0


def test_publishes_names_that_only_look_like_parts(tmp_path: Path) -> None:
    state = {"layer_scales": torch.ones(3), "x.num_blocks": torch.ones(1), "mask.weight": torch.ones(4).byte()}
    with dw.Publisher("memory:seed-names", quantize="fp8-block") as publisher:
        assert publisher.publish_checkpoint(save(tmp_path / "engine", state)).number == 0


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "gpt-oss-mxfp4"])
def test_keeps_modules_in_full_precision(tmp_path: Path, format: str) -> None:
    """Those named by the configuration, and unnamed ones that the checkpoint has in full precision."""
    weights = {f"model.layers.0.mlp.{part}.weight": torch.randn(128, 256).bfloat16() for part in ("up_proj", "down_proj")}
    weights |= {"lm_head.weight": torch.randn(8, 256).bfloat16(), "model.embed_tokens.weight": torch.randn(8, 256).bfloat16()}
    ours = dict(quantize(weights, format))
    assert all(torch.equal(ours[name], weights[name]) for name in ("lm_head.weight", "model.embed_tokens.weight"))
    state = {name: tensor for name, tensor in ours.items() if not name.startswith(MODULE)} | {NAME: weights[NAME]}
    again = dict(quantize(weights, save(tmp_path / "engine", state, FORMATS[format])))
    assert again.keys() == state.keys()
    assert torch.equal(again[NAME], weights[NAME])


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "gpt-oss-mxfp4"])
def test_dense_version_is_full_with_a_reason(format: str) -> None:
    """Unless its delta is smaller."""
    torch.manual_seed(0)
    weights = {NAME: (torch.randn(128, 256) * 0.02).bfloat16()}
    store = f"memory:dense-{format}"
    with dw.Publisher(store, weights, quantize=format) as publisher:
        publisher.publish()
        weights[NAME].copy_(torch.randn(128, 256))
        version = publisher.publish()
    whole = sum(tensor.nbytes for _, tensor in quantize(weights, format))
    assert version.full == version.reason.startswith("dense: a delta would take over ")
    assert version.full or version.bytes < whole
    assert dw.Chain(store)[1].reason == version.reason
    if format in ("nvfp4", "compressed-nvfp4", "int8-channel"):
        assert version.full
