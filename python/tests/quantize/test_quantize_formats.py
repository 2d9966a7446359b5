"""Formats give the bits of their reference libraries for the same weights (scripts/quantised-references); bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
ml_dtypes = pytest.importorskip("ml_dtypes")

import deltawire as dw
from deltawire.quantize import FORMATS, quantize, quantizer_of
from deltawire.quantize.config import rules_of
from deltawire.quantize.mx import mxfp4
from deltawire.quantize.quantizer import Shard
from deltawire.quantize.scheme import by_name

REFERENCES = Path(__file__).parent / "references/quantised.safetensors"
NAME = "model.layers.0.mlp.down_proj.weight"
MODULE = NAME.removesuffix(".weight")
# The group of `plain` in row 6 is denormal: torchao makes zeros of it, ModelOpt and this package do not.
DENORMAL = (slice(6, 7), slice(32, 64))


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    return dict(safetensors.load_file(REFERENCES))


def coded(weight: Any, spec: Any, **options: Any) -> dict[str, Any]:
    return {name.removeprefix(MODULE + "."): tensor for name, tensor in quantize({NAME: weight}, spec, **options)}


def bits(tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_same(ours: Any, theirs: Any) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    differ = (bits(ours) != bits(theirs)).nonzero()
    assert len(differ) == 0, f"{len(differ)} bytes, the first at {differ[0].item()}"


BY_COMPRESSED_TENSORS = [name for name in FORMATS if name.startswith("compressed-")] + ["int4-g32", "int4-g32-asymmetric"]


def integers(format: str, bits: int, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, "type": "int", "symmetric": True, **weights}}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}}


@pytest.mark.parametrize("weights", ["plain", "wide"])
@pytest.mark.parametrize(
    ("reference", "config"),
    [
        *((name, name) for name in [*BY_COMPRESSED_TENSORS, "int8-channel", "fp8-tensor", "fp8-channel", "nvfp4"]),
        ("compressed-mxfp4", "mxfp4"),
        ("int4-channel", integers("pack-quantized", 4, strategy="channel")),
        ("int4-channel-asymmetric", integers("pack-quantized", 4, strategy="channel", symmetric=False)),
        ("int8-tensor", integers("int-quantized", 8, strategy="tensor")),
        ("int8-packed-channel", integers("pack-quantized", 8, strategy="channel")),
        ("int8-packed-g32", integers("pack-quantized", 8, strategy="group", group_size=32)),
        ("int8-packed-g32-asymmetric", integers("pack-quantized", 8, strategy="group", group_size=32, symmetric=False)),
    ],
)
def test_formats_match_their_libraries(references: dict[str, Any], reference: str, config: Any, weights: str) -> None:
    ours = coded(references[f"{weights}/weight"], config)
    theirs = {key.split("/")[2]: value for key, value in references.items() if key.startswith(f"{weights}/{reference}/")}
    assert ours.keys() == theirs.keys()
    for suffix, tensor in theirs.items():
        assert_same(ours[suffix], tensor)


@pytest.mark.parametrize("weights", ["plain", "wide"])
def test_mxfp8_matches_torchao_and_modelopt(references: dict[str, Any], weights: str) -> None:
    ours = coded(references[f"{weights}/weight"], "mxfp8")
    assert_same(ours["weight"], references[f"{weights}/mxfp8-modelopt/weight"])
    assert_same(ours["weight_scale_inv"], references[f"{weights}/mxfp8-modelopt/weight_scale"])
    theirs = references[f"{weights}/mxfp8/weight"].clone()
    if weights == "plain":
        theirs.view(torch.uint8)[DENORMAL] = ours["weight"].view(torch.uint8)[DENORMAL]
    assert_same(ours["weight"], theirs)
    assert_same(ours["weight_scale_inv"], references[f"{weights}/mxfp8/weight_scale"])


def test_gpt_oss_matches_torchao_in_its_own_layout(references: dict[str, Any]) -> None:
    weight = references["wide/weight"]  # [out, in] of one expert
    name = "model.layers.0.mlp.experts.gate_up_proj"
    ours = dict(quantize({name: weight.T.contiguous()[None], name + "_bias": torch.ones(1, 32)}, "gpt-oss-mxfp4"))
    assert list(ours[name + "_blocks"].shape) == [1, 32, 4, 16]
    assert_same(ours[name + "_blocks"][0].flatten(1), references["wide/mxfp4/weight"].view(torch.uint8))
    assert_same(ours[name + "_scales"][0], references["wide/mxfp4/weight_scale"])
    assert ours.keys() == {name + "_blocks", name + "_scales", name + "_bias"}
    packed, _ = mxfp4(references["plain/weight"], "ceil")
    theirs = references["plain/mxfp4/weight"].view(torch.uint8).clone()
    theirs[6, 16:32] = packed[6, 16:32]  # DENORMAL
    assert_same(packed, theirs)


def numpy_fp8_block(weight: Any, block: tuple[int, int], power_of_two: bool) -> tuple[Any, Any]:
    """DeepGEMM's `per_block_cast_to_fp8`, block by block."""
    values = weight.float().numpy()
    rows, columns = (-(-size // step) for size, step in zip(values.shape, block, strict=True))
    out, scales = np.zeros(values.shape, ml_dtypes.float8_e4m3fn), np.zeros((rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            at = np.s_[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]]
            scale = np.float32(max(np.abs(values[at]).max(), np.float32(1e-4))) / np.float32(448)
            if power_of_two:
                fraction, exponent = np.frexp(scale)
                scale = np.float32(2.0) ** (exponent - (fraction == 0.5))
            scales[i, j] = scale
            out[at] = (values[at] * (np.float32(1) / np.float32(scale))).astype(ml_dtypes.float8_e4m3fn)
    return torch.from_numpy(out.view(np.uint8)), torch.from_numpy(scales)


@pytest.mark.parametrize("power_of_two", [False, True])
@pytest.mark.parametrize("block", [(128, 128), (32, 48), (1, 7), (200, 200)])
@pytest.mark.parametrize("weights", ["plain", "wide"])
def test_fp8_blocks_match_deepgemm(references: dict[str, Any], weights: str, block: tuple[int, int], power_of_two: bool) -> None:
    config = {"quant_method": "fp8", "weight_block_size": list(block), "scale_fmt": "ue8m0" if power_of_two else None}
    ours = coded(references[f"{weights}/weight"], config)
    values, scales = numpy_fp8_block(references[f"{weights}/weight"], block, power_of_two)
    assert_same(ours["weight"].view(torch.uint8), values)
    assert_same(ours["weight_scale_inv"], scales)


def test_gate_and_up_share_a_scale_without_down() -> None:
    torch.manual_seed(0)
    parts = {"gate_proj": 1.0, "up_proj": 8.0, "down_proj": 2.0}
    model = {f"layers.0.mlp.{part}.weight": (torch.randn(32, 64) * size).bfloat16() for part, size in parts.items()}
    for head in "qkv":
        model[f"layers.0.self_attn.{head}_proj.weight"] = torch.full((16, 32), float(ord(head))).bfloat16()
    ours = dict(quantize(model, "nvfp4"))
    scale = {name.split(".")[3]: tensor.item() for name, tensor in ours.items() if name.endswith("weight_scale_2")}
    assert scale["gate_proj"] == scale["up_proj"] != scale["down_proj"]
    assert scale["q_proj"] == scale["k_proj"] == scale["v_proj"] == np.float32(ord("v")) / np.float32(6 * 448)


def test_rounds_masters_first() -> None:
    torch.manual_seed(0)
    master = torch.randn(128, 256)
    for format in FORMATS:
        if format != "gpt-oss-mxfp4":
            for suffix, tensor in coded(master, format).items():
                assert_same(tensor, coded(master.bfloat16(), format)[suffix])
    assert not torch.equal(
        coded(master, "fp8-channel")["weight_scale"], coded(master, "fp8-channel", rounded="F32")["weight_scale"]
    )


def test_refuses_scales_that_overflow_bf16() -> None:
    weight = torch.ones(8, 32, dtype=torch.bfloat16)
    weight[0, 0], weight[0, 1] = 3e38, -3e38
    with pytest.raises(dw.InvalidArgument, match=r'too large: "model.layers.0.mlp.down_proj.weight_scale" would be infinite'):
        coded(weight, "int4-g32-asymmetric")
    assert bool(coded(weight, "int4-g32")["weight_scale"].isfinite().all())
    assert bool(coded(weight, "fp8-tensor")["weight"].float().isfinite().all())


def test_pads_rows_to_whole_words() -> None:
    weight = torch.arange(-10, 10, dtype=torch.bfloat16).repeat(3, 1)
    config = FORMATS["int4-g32"] | {}
    config["config_groups"] = {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}}
    ours = coded(weight, config)
    assert list(ours["weight_packed"].shape) == [3, 3]
    assert ours["weight_shape"].tolist() == [3, 20]
    last = ours["weight_packed"][0, 2].item()
    assert last >> 16 == 0  # 20 codes: the last word has four
    assert [(last >> 4 * i & 15) - 8 for i in range(4)] == [4, 5, 6, 7]


def shards(weight: Any, rows: int, columns: int) -> list[Shard]:
    return [
        Shard(NAME, part, tuple(weight.shape), (i * rows, j * columns))
        for i, line in enumerate(weight.split(rows))
        for j, part in enumerate(line.split(columns, 1))
    ]


@pytest.mark.parametrize(
    ("format", "rows", "columns"),
    [
        ("fp8-block", 128, 256),
        ("fp8-channel", 17, 512),
        ("compressed-fp8-channel", 17, 512),
        ("compressed-fp8-block", 128, 128),
        ("mxfp8", 5, 96),
        ("mxfp4", 5, 32),
        ("int4-g32", 3, 64),
        ("int4-g32-asymmetric", 8, 64),
        ("int8-channel", 17, 512),
        ("int8-packed-g128", 3, 128),
        ("fp8-tensor", 7, 100),
        ("compressed-fp8-tensor", 50, 512),
        ("nvfp4", 50, 48),
        ("compressed-nvfp4", 9, 512),
        ("fp8-channel", 17, 100),
        ("compressed-fp8-channel", 200, 128),
        ("int8-channel", 64, 256),
    ],
)
def test_shards_equal_pieces_of_the_whole(format: str, rows: int, columns: int) -> None:
    torch.manual_seed(1)
    weight = torch.randn(200, 512).bfloat16()
    whole, quantizer = coded(weight, format), quantizer_of(format)
    agreed = by_name(quantizer.amaxes([shard]) for shard in shards(weight, rows, columns))
    seen = {suffix: torch.zeros_like(tensor.reshape(tensor.shape or (1,)).view(torch.uint8)) for suffix, tensor in whole.items()}
    for shard in shards(weight, rows, columns):
        for one in quantizer.quantised([shard], agreed=agreed):
            suffix = one.shard.name.removeprefix(MODULE + ".")
            assert one.shard.shape == tuple(whole[suffix].shape)
            at = tuple(slice(o, o + n) for o, n in zip(one.shard.offset, one.shard.tensor.shape, strict=True))
            assert_same(one.shard.tensor, whole[suffix][at])
            size = one.shard.tensor.element_size()
            if seen[suffix].dim() == 2:
                seen[suffix][at[0], at[1].start * size : at[1].stop * size] += 1
            else:
                seen[suffix] += 1
    assert all(bool((count == 1).all()) for count in seen.values())


@pytest.mark.parametrize(
    ("format", "rows", "columns", "words"),
    [
        ("fp8-block", 100, 512, "holds 0 to 100 of 200, but a scale of fp8-block covers 128 at a time"),
        ("mxfp8", 200, 48, "holds 0 to 48 of 512, but a scale of mxfp8 covers 32 at a time"),
        ("fp8-channel", 200, 256, "a scale of fp8-channel covers all of a row"),
        ("fp8-tensor", 128, 512, "a scale of fp8-tensor covers all of it"),
        ("nvfp4", 128, 512, "a scale of nvfp4 covers all of it"),
        ("nvfp4", 128, 24, "holds 0 to 24 of 512, but a scale of nvfp4 covers 16 at a time"),
        ("int4-g32-asymmetric", 4, 512, "covers 8 at a time"),
        ("int8-packed-g128", 200, 100, "covers 128 at a time"),
    ],
)
def test_refuses_shards_that_cut_blocks(format: str, rows: int, columns: int, words: str) -> None:
    first = shards(torch.ones(200, 512).bfloat16(), rows, columns)[0]
    with pytest.raises(dw.InvalidArgument, match=words) as caught:
        list(quantizer_of(format).quantised([first]))
    assert caught.value.tensor == NAME


LINEAR = "model.layers.3.mlp.gate_proj"


@pytest.mark.parametrize(
    ("config", "quantised", "left"),
    [
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["layers.2", "o_proj"]},
            [LINEAR, "model.layers.21.mlp.up_proj", "model.layers.3.mlp.experts.0.gate_proj"],
            ["lm_head", "model.embed_tokens", "model.layers.3.mlp.gate", "model.layers.2.mlp.up_proj", "model.layers.3.o_proj"],
        ),
        (
            FORMATS["int4-g32"] | {"ignore": ["re:.*self_attn.*", "lm_head"]},
            [LINEAR, "model.layers.3.mlp.gate"],
            ["model.layers.0.self_attn.q_proj", "lm_head", "model.embed_tokens"],
        ),
        (
            {
                "quant_method": "modelopt",
                "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.1*"]},
            },
            [LINEAR],
            ["lm_head", "model.layers.1.mlp.up_proj", "model.layers.12.mlp.up_proj"],
        ),
    ],
)
def test_configuration_selects_modules(config: dict[str, Any], quantised: list[str], left: list[str]) -> None:
    rules = rules_of(config)
    assert [name for name in quantised + left if rules.scheme_of(name) is not None] == quantised


def test_module_groups_have_their_own_schemes() -> None:
    config = FORMATS["int4-g32"] | {}
    eight = FORMATS["compressed-fp8-channel"]["config_groups"]["group_0"] | {
        "targets": ["re:.*down_proj$"],
        "format": "float-quantized",
    }
    config["config_groups"] = config["config_groups"] | {"group_1": eight}
    formats = {name: rules_of(config).scheme_of(name) for name in ("a.up_proj", "a.down_proj")}
    assert {name: scheme.format for name, scheme in formats.items() if scheme} == {
        "a.up_proj": "int4",
        "a.down_proj": "compressed-fp8",
    }


def _int4(group: dict[str, Any] | None = None, **weights: Any) -> dict[str, Any]:
    known = FORMATS["int4-g32"]["config_groups"]["group_0"]
    changed = known | (group or {}) | {"weights": known["weights"] | weights}
    return FORMATS["int4-g32"] | {"config_groups": {"group_0": changed}}


def test_accepts_words_without_effect() -> None:
    """Keys that llm-compressor writes."""
    config = _int4(actorder="static") | {"transform_config": {}, "sparsity_config": {"format": "dense"}}
    assert quantizer_of(config).settings == quantizer_of("int4-g32").settings


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"quant_method": "gptq"}, dw.Unsupported, "quant_method 'gptq'"),
        ({}, dw.Unsupported, "quant_method None"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, dw.Unsupported, "e5m2"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, dw.InvalidArgument, "a block must have rows and columns"),
        ({"quant_method": "fp8", "weight_block_size": 128}, dw.InvalidArgument, "quantization_config of fp8"),
        ({"quant_method": "compressed-tensors"}, dw.InvalidArgument, "config_groups"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, dw.Unsupported, "W4A8_AWQ"),
        (FORMATS["int4-g32"] | {"format": "marlin-24"}, dw.Unsupported, "marlin-24"),
        (FORMATS["int4-g32"] | {"transform_config": {"config_groups": {}}}, dw.Unsupported, "transform_config"),
        (FORMATS["int4-g32"] | {"sparsity_config": {"format": "sparse-24-bitmask"}}, dw.Unsupported, "sparse-24-bitmask"),
        (FORMATS["int4-g32"] | {"ignore": [5]}, dw.InvalidArgument, r"ignore must be a list of names, not \[5\]"),
        (FORMATS["fp8-block"] | {"modules_to_not_convert": "x"}, dw.InvalidArgument, "modules_to_not_convert must be a list"),
        (FORMATS["nvfp4"] | {"ignore": "x"}, dw.InvalidArgument, "ignore must be a list"),
        (FORMATS["fp8-block"] | {"scale_fmt": "UE8M0"}, dw.Unsupported, "scale_fmt 'UE8M0'"),
        (FORMATS["mxfp8"] | {"scale_fmt": "float"}, dw.Unsupported, "scale_fmt 'float'"),
        (FORMATS["fp8-block"] | {"weight_block_size": [10**30, 128]}, dw.InvalidArgument, "a block must have rows and columns"),
        (_int4({"targets": "Linear"}), dw.InvalidArgument, "targets must be a list of names, not 'Linear'"),
        (_int4(actorder="group"), dw.Unsupported, "actorder 'group'"),
        (_int4(symmetric="no"), dw.InvalidArgument, "symmetric must be true or false"),
        *(
            (_int4(group_size=size), dw.InvalidArgument, "group_size must be a number of columns")
            for size in ("32", 32.0, -32, None)
        ),
    ],
)
def test_names_unsupported_configurations(config: dict[str, Any], error: type[dw.Error], words: str) -> None:
    with pytest.raises(error, match=words):
        quantizer_of(config)


def test_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(dw.InvalidArgument, match="'fp9' is neither a folder nor a format; formats are fp8-block, "):
        quantizer_of("fp9")
    with pytest.raises(dw.InvalidArgument, match="not int"):
        quantizer_of(4)


def test_leaves_vectors_and_integers_unchanged() -> None:
    model = {"a.norm.weight": torch.ones(8), "a.up_proj.bias": torch.ones(8), "a.table.weight": torch.ones(8, 32).int()}
    ours = dict(quantize(model | {"b.up_proj.weight": torch.ones(8, 32)}, "int4-g32"))
    assert {name for name in ours if not name.startswith("b.")} == model.keys()
    assert all(ours[name] is model[name] for name in model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_gpu_gives_the_same_bytes(references: dict[str, Any], format: str, dtype: Any) -> None:
    for weights in "plain", "wide":
        weight = references[f"{weights}/weight"].to(dtype)
        rounded = "BF16" if dtype == torch.bfloat16 else "F32"
        try:
            of_cpu = coded(weight, format, rounded=rounded)
        except dw.Error as error:  # a GPU refuses what a CPU refuses
            with pytest.raises(type(error)):
                coded(weight.cuda(), format, rounded=rounded)
            continue
        of_gpu = coded(weight.cuda(), format, rounded=rounded)
        assert of_gpu.keys() == of_cpu.keys()
        for suffix, tensor in of_cpu.items():
            assert_same(of_gpu[suffix].cpu(), tensor)
