"""FP8: E4M3 elements with a scale per tensor, row or block.

Two families differ in the last bits. `quant_method: fp8` computes in F32 and has F32 scales. compressed-tensors computes in the
dtype of the weights: scales have that dtype, and quotients are rounded to it before they are rounded to E4M3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.quantize.numbers import (
    E4M3,
    E4M3_MAX,
    ceil_power_of_two,
    constant,
    in_blocks,
    or_eps,
    out_of_blocks,
    power_of_two,
    to_e4m3,
)
from deltawire.quantize.scheme import Coded, Scheme, empty, parts_of

_LEAST_AMAX = 1e-4  # of a block, as in DeepGEMM, vLLM and SGLang


@dataclass(frozen=True)
class Fp8Block(Scheme):
    """`per_block_cast_to_fp8` of DeepGEMM, vLLM and SGLang: multiplies by the inverse of amax / 448."""

    format: ClassVar[str] = "fp8-block"

    block: tuple[int, int] = (128, 128)
    power_of_two: bool = False
    """UE8M0: scales are rounded up to powers of two, and still stored as F32."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in E4M3, `weight_scale_inv` in F32, one for each block."""
        blocks = in_blocks(weight.float(), self.block)
        largest = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(_LEAST_AMAX)
        scale = largest / constant(E4M3_MAX, largest)
        if self.power_of_two:
            scale = power_of_two(ceil_power_of_two(scale).clamp(1, 254))
        weight = out_of_blocks(to_e4m3(blocks * scale.reciprocal()), weight.shape)
        return {"weight": Coded(weight, (1, 1)), "weight_scale_inv": Coded(scale[:, 0, :, 0].contiguous(), self.block)}

    def forms(self, extent: tuple[int, ...], dtype: Any) -> Mapping[str, Coded]:
        """Does not compute a tile, which may be huge."""
        return _block_forms(extent, self.block, "weight_scale_inv", torch.float32)

    def tile(self) -> tuple[int, int]:
        """A block."""
        return self.block


@dataclass(frozen=True)
class Fp8Tensor(Scheme):
    """One scale for the tensor, amax / 448; compressed-tensors' arithmetic in F32."""

    format: ClassVar[str] = "fp8-tensor"
    amax_of: ClassVar[str] = "tensor"

    scalar: bool = False
    """The scale has shape [], as in ModelOpt, instead of [1]."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in E4M3, `weight_scale` in F32."""
        return _by_amax(weight.float(), amax if self.scalar else amax.reshape(1), None)


@dataclass(frozen=True)
class Fp8Channel(Scheme):
    """One scale for each row, amax / 448; compressed-tensors' arithmetic in F32."""

    format: ClassVar[str] = "fp8-channel"
    amax_of: ClassVar[str] = "row"

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in E4M3, `weight_scale` in F32, [M, 1]."""
        return _by_amax(weight.float(), amax, (1, 0))


@dataclass(frozen=True)
class CompressedFp8(Scheme):
    """`float-quantized` of compressed-tensors: computed, with scales, in the dtype of the weights."""

    format: ClassVar[str] = "compressed-fp8"

    strategy: str = "channel"
    """"tensor", "channel" or "block"."""
    block: tuple[int, int] | None = None

    @property
    def amax_of(self) -> str:  # type: ignore[override]
        """The part of a weight that shares a scale."""
        return {"tensor": "tensor", "channel": "row"}.get(self.strategy, "")

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in E4M3, `weight_scale` in the weights' dtype."""
        if self.strategy == "channel":
            return _by_amax(weight, amax, (1, 0))
        if self.strategy == "tensor":
            return _by_amax(weight, amax.reshape(1), None)
        assert self.block is not None
        blocks = in_blocks(weight, self.block)
        scale = or_eps(blocks.abs().amax(dim=(1, 3), keepdim=True) / constant(E4M3_MAX, weight))
        coded = out_of_blocks(to_e4m3(blocks / scale), weight.shape)
        return {"weight": Coded(coded, (1, 1)), "weight_scale": Coded(scale[:, 0, :, 0].contiguous(), self.block)}

    def forms(self, extent: tuple[int, ...], dtype: Any) -> Mapping[str, Coded]:
        """Does not compute a tile for blocks."""
        if self.strategy != "block" or self.block is None:
            return super().forms(extent, dtype)
        return _block_forms(extent, self.block, "weight_scale", dtype)

    def tile(self) -> tuple[int, int]:
        """A block, or an element."""
        return self.block or (1, 1)


def _block_forms(extent: tuple[int, ...], block: tuple[int, int], scale: str, dtype: Any) -> Mapping[str, Coded]:
    scales = Coded(empty(parts_of(extent, block), dtype), block)
    return {"weight": Coded(empty(extent, E4M3), (1, 1)), scale: scales}


def _by_amax(weight: Any, amax: Any, per: tuple[int, int] | None) -> Mapping[str, Coded]:
    scale = or_eps(amax.to(weight.dtype) / constant(E4M3_MAX, weight))
    return {"weight": Coded(to_e4m3(weight / scale), (1, 1)), "weight_scale": Coded(scale, per)}
