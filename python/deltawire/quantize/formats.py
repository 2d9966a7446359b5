"""The table of formats: the `quantization_config` of each."""

from __future__ import annotations

from typing import Any


def _compressed(format: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False, **weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp.gate$", "re:.*mlp.shared_expert_gate$"],
    }


def _w8a8(format: str, type: str, **weights: Any) -> dict[str, Any]:
    config = _compressed(format, num_bits=8, type=type, **weights)
    activations = {"num_bits": 8, "type": type, "strategy": "token", "dynamic": True, "symmetric": True}
    config["config_groups"]["group_0"]["input_activations"] = activations
    return config


def _fp8(**weights: Any) -> dict[str, Any]:
    return _w8a8("float-quantized", "float", **weights)


def _packed(bits: int, group: int, symmetric: bool = True) -> dict[str, Any]:
    return _compressed("pack-quantized", num_bits=bits, type="int", strategy="group", group_size=group, symmetric=symmetric)


def _nvfp4() -> dict[str, Any]:
    return _compressed(
        "nvfp4-pack-quantized",
        num_bits=4,
        type="float",
        strategy="tensor_group",
        group_size=16,
        scale_dtype="torch.float8_e4m3fn",
        zp_dtype="torch.float8_e4m3fn",
    )


def _mx(format: str, bits: int) -> dict[str, Any]:
    return _compressed(format, num_bits=bits, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8")


_NATIVE = {"activation_scheme": "dynamic", "fmt": "e4m3"}

FORMATS: dict[str, dict[str, Any]] = {
    "fp8-block": {"quant_method": "fp8", "weight_block_size": [128, 128], **_NATIVE},
    "fp8-block-ue8m0": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0", **_NATIVE},
    "fp8-tensor": {"quant_method": "fp8", **_NATIVE},
    "fp8-channel": {"quant_method": "w8a8_fp8"},
    "compressed-fp8-tensor": _fp8(strategy="tensor"),
    "compressed-fp8-channel": _fp8(strategy="channel"),
    "compressed-fp8-block": _fp8(strategy="block", block_structure=[128, 128]),
    "mxfp8": {"quant_method": "mxfp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0", **_NATIVE},
    "compressed-mxfp8": _mx("mxfp8-quantized", 8),
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.mlp.gate", "*.mlp.shared_expert_gate"]},
    "int4-g32": _packed(4, 32),
    "int4-g32-asymmetric": _packed(4, 32, symmetric=False),
    "int4-g128": _packed(4, 128),
    "int4-g128-asymmetric": _packed(4, 128, symmetric=False),
    "int8-channel": _w8a8("int-quantized", "int", strategy="channel"),
    "int8-packed-g128": _packed(8, 128),
    "compressed-nvfp4": _nvfp4(),
    "mxfp4": _mx("mxfp4-pack-quantized", 4),
    "gpt-oss-mxfp4": {"quant_method": "mxfp4"},
}
"""By the names for `quantize=` and `--format`. For other block and group sizes pass your own `quantization_config`."""
