"""Hysteresis: scales stay while the ones that are needed are near, and a restarted publisher makes the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")

from test_quantize import assert_same, command, held, load, save, step

import deltawire as dw
from deltawire.quantize import FORMATS, quantize, quantizer_of
from deltawire.quantize.scheme import SCALES

NAME = "layers.0.mlp.down_proj.weight"
POWERS = ["fp8-block-ue8m0", "mxfp8", "compressed-mxfp8", "mxfp4", "gpt-oss-mxfp4"]
KEEPING = [name for name in FORMATS if name not in POWERS]
# The most that the needed scale may be larger than the old one, whatever the band.
HEADROOM = {name: 1 / 28 if "fp8" in name else 1 / 6 if "nvfp4" in name else 0.0 for name in KEEPING}
OF_ALL = {"nvfp4": "weight_scale_2", "compressed-nvfp4": "weight_global_scale"}


def model() -> dict[str, Any]:
    torch.manual_seed(0)
    names = ["mlp.gate_proj", "mlp.up_proj", "self_attn.o_proj"]
    return {f"model.layers.0.{name}.weight": (torch.randn(128, 256) * 0.02).bfloat16() for name in names}


def scale_of(state: dict[str, Any], format: str) -> Any:
    suffix = OF_ALL.get(format)
    names = [name for name in state if (name.endswith(suffix) if suffix else name.rpartition(".")[2] in SCALES)]
    assert len(names) == 1
    return state[names[0]]


def flat(amax: float) -> dict[str, Any]:
    """A weight whose scales are all of one amax, either sign."""
    weight = torch.full((128, 256), amax)
    weight[:, ::2] *= -1
    return {NAME: weight}


@pytest.mark.parametrize("format", KEEPING)
def test_a_scale_is_kept_in_the_band_and_no_farther(format: str) -> None:
    band = 0.25
    before = dict(quantize(flat(1.0), format, rounded="F32"))
    grown = min(band, HEADROOM[format])
    for amax, kept in {
        1.0: True,
        0.999 * (1 + grown): True,
        1.001 * (1 + grown): False,
        1.001 * (1 - band): True,
        0.999 * (1 - band): False,
        0.0: False,
        1e30: False,
    }.items():
        if amax == 0.0 and format == "nvfp4":
            continue  # refused
        now = dict(quantize(flat(amax), format, rounded="F32", hysteresis=band, previous=before))
        plain = dict(quantize(flat(amax), format, rounded="F32"))
        assert torch.equal(scale_of(now, format), scale_of(before if kept else plain, format)), amax
        if not kept:
            assert_same(now, plain)


@pytest.mark.parametrize("format", [name for name in KEEPING if HEADROOM[name]])
def test_what_a_kept_scale_cuts_off_is_off_by_half_a_step(format: str) -> None:
    """The largest code stands for it, as near as the next one below stands for what is rounded to it."""
    before = dict(quantize(flat(1.0), format, rounded="F32"))
    most = HEADROOM[format]
    now = dict(quantize(flat(1 + most * 0.999), format, rounded="F32", hysteresis=0.5, previous=before))
    assert_same(now, before)  # every element saturates to what it was
    assert (1 + most) <= 1 + (16 / 448 if "fp8" in format else 1 / 6)


@pytest.mark.parametrize("format", POWERS)
def test_powers_of_two_need_none(format: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=rf"scales of \S*{format.removeprefix('compressed-')} are powers of two"):
        quantizer_of(format, hysteresis=0.03)


@pytest.mark.parametrize("band", [-0.1, 0.6, float("nan"), float("inf"), "0.03", True, None])
def test_a_band_that_is_none_is_refused(band: Any) -> None:
    with pytest.raises(dw.InvalidArgument, match="a band from 0"):
        quantizer_of("fp8-block", hysteresis=band)


def test_a_quantiser_that_is_there_keeps_its_band() -> None:
    with_band = quantizer_of("fp8-block", hysteresis=0.03)
    assert quantizer_of(with_band) is quantizer_of(with_band, hysteresis=0.03) is with_band
    with pytest.raises(dw.InvalidArgument, match=r"has 0\.03"):
        quantizer_of(with_band, hysteresis=0.05)


def test_old_scales_that_make_no_sense_are_not_kept() -> None:
    weights = {NAME: (torch.randn(128, 256) * 0.02).bfloat16()}
    plain = dict(quantize(weights, "fp8-channel"))
    scale = "layers.0.mlp.down_proj.weight_scale"
    for bad in (
        torch.full((128, 1), float("nan")),
        torch.full((128, 1), float("inf")),
        -plain[scale],
        torch.zeros(128, 1),
        plain[scale].bfloat16(),
        plain[scale][:64],
        plain[scale][:, 0],
        plain[scale][0, 0],
    ):
        assert_same(dict(quantize(weights, "fp8-channel", hysteresis=0.5, previous={scale: bad})), plain)
    assert_same(dict(quantize(weights, "fp8-channel", hysteresis=0.5, previous={})), plain)


@pytest.mark.parametrize(
    "format", ["fp8-block", "compressed-fp8-channel", "nvfp4", "compressed-nvfp4", "int4-g32", "int8-channel"]
)
def test_a_restarted_publisher_goes_on_with_the_same_bytes(tmp_path: Path, format: str) -> None:
    weights = model()
    steady, restarted = (str(tmp_path / name) for name in ("steady", "restarted"))
    settings: dict[str, Any] = {"quantize": format, "options": dw.PublishOptions(hysteresis=0.2)}
    expected: dict[str, Any] = {}
    differ = False
    with dw.Publisher(steady, weights, **settings) as publisher:
        for _ in range(4):
            publisher.publish()
            with dw.Publisher(restarted, weights, **settings) as again:
                again.publish()
            expected = dict(quantize(weights, format, hysteresis=0.2, previous=expected))
            plain = dict(quantize(weights, format))
            differ |= any(not torch.equal(expected[name], plain[name]) for name in plain)
            step(weights, 3e-4)
    assert differ  # hysteresis did something
    assert [version.state for version in dw.Chain(steady)] == [version.state for version in dw.Chain(restarted)]
    assert_same(held(steady, tmp_path / "local"), expected)


def test_the_band_is_part_of_the_run(tmp_path: Path) -> None:
    weights, store = model(), str(tmp_path)
    with dw.Publisher(store, weights, quantize="fp8-block", options=dw.PublishOptions(hysteresis=0.03)) as publisher:
        publisher.publish()
    assert json.loads(dw.Chain(store)[0].quantization)["hysteresis"] == 0.03
    for other in 0.0, 0.05:
        with pytest.raises(dw.InvalidArgument, match='"hysteresis":0.03'):
            dw.Publisher(store, weights, quantize="fp8-block", options=dw.PublishOptions(hysteresis=other))
    with pytest.raises(dw.InvalidArgument, match="say quantize= too"):
        dw.Publisher("memory:hysteresis-alone", weights, options=dw.PublishOptions(hysteresis=0.03))
    with dw.Publisher("memory:hysteresis-off", weights, quantize="fp8-block") as publisher:
        publisher.publish()
    assert "hysteresis" not in dw.Chain("memory:hysteresis-off")[0].quantization


def test_scales_are_the_chains_after_a_failure_and_after_another_publisher(tmp_path: Path) -> None:
    weights, store = model(), str(tmp_path)
    name = "model.layers.0.self_attn.o_proj.weight"
    expected: dict[str, Any] = {}

    def published(publisher: dw.Publisher) -> None:
        nonlocal expected
        publisher.publish()
        expected = dict(quantize(weights, "fp8-channel", hysteresis=0.03, previous=expected))

    with dw.Publisher(store, weights, quantize="fp8-channel", options=dw.PublishOptions(hysteresis=0.03)) as publisher:
        published(publisher)
        good = {key: tensor.clone() for key, tensor in weights.items()}
        step(weights, 3e-3)
        weights[name][0, 0] = float("nan")  # made after most others: their scales were noted
        with pytest.raises(dw.InvalidArgument, match="NaN"):
            publisher.publish()
        for key, tensor in good.items():
            weights[key].copy_(tensor)
        step(weights, 3e-4)
        published(publisher)
        step(weights, 3e-4)
        with dw.Publisher(store, weights, quantize="fp8-channel", options=dw.PublishOptions(hysteresis=0.03)) as other:
            published(other)
        step(weights, 3e-4)
        with pytest.raises(dw.Conflict):
            publisher.publish()
        published(publisher)
    assert_same(held(store, tmp_path / "local", 3), expected)


def test_the_seeds_scales_are_the_engines(tmp_path: Path) -> None:
    weights = model()
    state = dict(quantize(weights, "fp8-channel"))
    scale = "model.layers.0.mlp.up_proj.weight_scale"
    state[scale] = state[scale] * 1.01  # a calibration's own choice
    engine = save(tmp_path / "engine", state, FORMATS["fp8-channel"])
    store = str(tmp_path / "store")
    with dw.Publisher(store, weights, quantize=engine, options=dw.PublishOptions(hysteresis=0.03)) as publisher:
        seed = publisher.publish_checkpoint(engine)
        next_version = publisher.publish()
    # What is told of the seed is what comes: its scales are kept, codes that are not those of its scales change.
    assert f"{next_version.num_changed:,} elements of 1 tensors differ" in seed.warnings[0]
    assert torch.equal(held(store, tmp_path / "local")[scale], state[scale])


def test_the_command_keeps_scales_of_the_checkpoint_before(tmp_path: Path) -> None:
    weights = model()
    first = save(tmp_path / "first", weights)
    before = dict(quantize(weights, "fp8-channel"))
    step(weights, 3e-4)
    second = save(tmp_path / "second", weights)
    assert command(first, tmp_path / "q0", "--format", "fp8-channel").returncode == 0
    asked = ("--format", "fp8-channel", "--hysteresis", 0.03)
    done = command(second, tmp_path / "q1", *asked, "--previous", tmp_path / "q0")
    assert done.returncode == 0, done.stderr
    assert_same(load(tmp_path / "q1"), dict(quantize(weights, "fp8-channel", hysteresis=0.03, previous=before)))
    alone = command(second, tmp_path / "q2", *asked)
    assert (alone.returncode, "give both, or neither" in alone.stderr) == (2, True)
    assert not (tmp_path / "q2").exists()
