"""FP8: E4M3 elements; a scale for the tensor, for each row, or for each block.

Two families that differ in their last bits. `quant_method: fp8` computes in F32 and has F32 scales. compressed-tensors computes
in the weights' own dtype: the scales have that dtype too, and quotients are rounded to it before they are rounded to E4M3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.quantize.numbers import (
    E4M3_MAX,
    ceil_power_of_two,
    constant,
    in_blocks,
    out_of_blocks,
    power_of_two,
    to_e4m3,
)
from deltawire.quantize.scheme import Made, Scheme

_LEAST_AMAX = 1e-4  # of a block: as in DeepGEMM, vLLM and SGLang


@dataclass(frozen=True)
class Fp8Block(Scheme):
    """As `per_block_cast_to_fp8` of DeepGEMM, vLLM and SGLang: times the inverse of amax / 448."""

    format: ClassVar[str] = "fp8-block"

    block: tuple[int, int] = (128, 128)
    power_of_two: bool = False
    """UE8M0: scales are rounded up to powers of two, and still stored as F32."""

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight` in E4M3, `weight_scale_inv` in F32, one for each block."""
        blocks = in_blocks(weight.float(), self.block)
        largest = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(_LEAST_AMAX)
        scale = largest / constant(E4M3_MAX, largest)
        if self.power_of_two:
            scale = power_of_two(ceil_power_of_two(scale).clamp(1, 254))
        weight = out_of_blocks(to_e4m3(blocks * scale.reciprocal()), weight.shape)
        return {"weight": Made(weight, (1, 1)), "weight_scale_inv": Made(scale[:, 0, :, 0].contiguous(), self.block)}

    def tile(self) -> tuple[int, int]:
        """A block."""
        return self.block


@dataclass(frozen=True)
class Fp8Tensor(Scheme):
    """One scale for the tensor, amax / 448; compressed-tensors' arithmetic in F32."""

    format: ClassVar[str] = "fp8-tensor"

    scalar: bool = False
    """The scale's shape is [], as ModelOpt has it, and not [1]."""

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight` in E4M3, `weight_scale` in F32."""
        scale = _or_eps(amax / constant(E4M3_MAX, amax))
        made = to_e4m3(weight.float() / scale)
        return {"weight": Made(made, (1, 1)), "weight_scale": Made(scale if self.scalar else scale.reshape(1), None)}

    def tile(self) -> tuple[int, int]:
        """All of it."""
        return 0, 0


@dataclass(frozen=True)
class Fp8Channel(Scheme):
    """One scale for each row, amax / 448; compressed-tensors' arithmetic in F32."""

    format: ClassVar[str] = "fp8-channel"

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight` in E4M3, `weight_scale` in F32, [M, 1]."""
        return _by_rows(weight.float())

    def tile(self) -> tuple[int, int]:
        """A row."""
        return 1, 0


@dataclass(frozen=True)
class CompressedFp8(Scheme):
    """`float-quantized` of compressed-tensors: everything in the dtype of the weights, the scales too."""

    format: ClassVar[str] = "compressed-fp8"

    strategy: str = "channel"
    """"tensor", "channel" or "block"."""
    block: tuple[int, int] | None = None

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight` in E4M3, `weight_scale` in the weights' dtype."""
        if self.strategy == "channel":
            return _by_rows(weight)
        if self.strategy == "tensor":
            scale = _or_eps((amax.to(weight.dtype) / constant(E4M3_MAX, weight)).reshape(1))
            return {"weight": Made(to_e4m3(weight / scale), (1, 1)), "weight_scale": Made(scale, None)}
        assert self.block is not None
        blocks = in_blocks(weight, self.block)
        scale = _or_eps(blocks.abs().amax(dim=(1, 3), keepdim=True) / constant(E4M3_MAX, weight))
        made = out_of_blocks(to_e4m3(blocks / scale), weight.shape)
        return {"weight": Made(made, (1, 1)), "weight_scale": Made(scale[:, 0, :, 0].contiguous(), self.block)}

    def tile(self) -> tuple[int, int]:
        """What a scale is of."""
        if self.strategy == "block":
            assert self.block is not None
            return self.block
        return (1, 0) if self.strategy == "channel" else (0, 0)


def _by_rows(weight: Any) -> Mapping[str, Made]:
    scale = _or_eps(weight.abs().amax(dim=1, keepdim=True) / constant(E4M3_MAX, weight))
    return {"weight": Made(to_e4m3(weight / scale), (1, 1)), "weight_scale": Made(scale, (1, 0))}


def _or_eps(scale: Any) -> Any:
    """compressed-tensors' scale of what is all zeros."""
    return torch.where(scale == 0, constant(torch.finfo(scale.dtype).eps, scale), scale)
