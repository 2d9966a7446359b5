"""MXFP8 and MXFP4: groups of 32 elements of a row, with a power of two (E8M0) as the scale.

The OCP format does not define the choice of the power. "ceil" is the smallest that keeps the group in range (torchao's RCEIL;
vLLM, SGLang, ModelOpt's MXFP8); "round" is compressed-tensors' choice, which may clip the largest element of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.errors import InvalidArgument
from deltawire.quantize.kernels import codes_on_gpu
from deltawire.quantize.numbers import (
    E2M1_MAX,
    E4M3,
    E4M3_MAX,
    ceil_power_of_two,
    constant,
    pack_nibbles,
    power_of_two,
    to_e2m1,
    to_e4m3,
)
from deltawire.quantize.scheme import Coded, Grouped, Scheme, empty, refuse_remainder

GROUP = 32


@dataclass(frozen=True)
class MxFp8(Grouped):
    """E4M3 elements."""

    format: ClassVar[str] = "mxfp8"
    GROUP: ClassVar[int] = GROUP

    scale_name: str = "weight_scale_inv"
    rounding: str = "ceil"

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in E4M3, and U8 exponents, [M, N / 32]."""
        fast = codes_on_gpu(f"mxfp8-{self.rounding}", weight, GROUP, torch.uint8, bits=8)
        if fast is not None:
            return {"weight": Coded(fast[0].view(E4M3), (1, 1)), self.scale_name: Coded(fast[1], (1, GROUP))}
        groups = weight.unflatten(1, (-1, GROUP)).float()
        exponents = _exponents(groups, self.rounding, E4M3_MAX, 8)
        coded = to_e4m3(groups / power_of_two(exponents)).flatten(1)
        return {"weight": Coded(coded, (1, 1)), self.scale_name: _scale(exponents)}


@dataclass(frozen=True)
class MxFp4(Grouped):
    """E2M1 elements, two in a byte: compressed-tensors' `mxfp4-pack-quantized`, as in Kimi K3."""

    format: ClassVar[str] = "mxfp4"
    GROUP: ClassVar[int] = GROUP

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight_packed`, [M, N / 2], and U8 exponents in `weight_scale`, [M, N / 32]."""
        fast = codes_on_gpu("mxfp4-round", weight, GROUP, torch.uint8)
        if fast is not None:
            return {"weight_packed": Coded(fast[0], (1, 2)), "weight_scale": Coded(fast[1], (1, GROUP))}
        packed, exponents = mxfp4(weight, "round")
        return {"weight_packed": Coded(packed, (1, 2)), "weight_scale": _scale(exponents)}


@dataclass(frozen=True)
class ExpertsMxFp4(Scheme):
    """gpt-oss: all experts in one tensor, [experts, in, out], stored as [experts, out, in / 32, 16]."""

    format: ClassVar[str] = "gpt-oss-mxfp4"

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`_blocks` and `_scales`, which are appended to the parameter's name without a dot."""
        packed, exponents = mxfp4(weight.transpose(1, 2).contiguous(), "ceil")
        blocks = packed.unflatten(-1, (-1, GROUP // 2))
        return {"_blocks": Coded(blocks, (0, 0)), "_scales": Coded(exponents[..., 0].to(torch.uint8), (0, 0))}

    def forms(self, extent: tuple[int, ...], dtype: Any) -> Mapping[str, Coded]:
        """The same for any dtype."""
        experts, columns, rows = extent
        scales = (experts, rows, columns // GROUP)
        blocks = empty((*scales, GROUP // 2), torch.uint8)
        return {"_blocks": Coded(blocks, (0, 0)), "_scales": Coded(empty(scales, torch.uint8), (0, 0))}

    def tile(self) -> tuple[int, ...]:
        """The whole tensor: its layout differs from the parameter's."""
        return 0, 0, 0

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Three dimensions, and whole groups."""
        if len(shape) != 3:
            raise InvalidArgument(
                f'tensor "{name}": {self.format} needs all experts in one tensor of three dimensions, not shape {list(shape)}'
            )
        refuse_remainder(name, shape[1], GROUP, self.format)


def mxfp4(weight: Any, rounding: str) -> tuple[Any, Any]:
    """Packed codes and exponents (int32, with a last dimension of 1) of the groups of the last dimension."""
    groups = weight.unflatten(-1, (-1, GROUP)).float()
    exponents = _exponents(groups, rounding, E2M1_MAX, 2)
    scaled = groups / power_of_two(exponents)
    # In compressed-tensors only negative numbers are rounded to negative zero.
    negative = scaled < 0 if rounding == "round" else scaled.signbit()
    return pack_nibbles(to_e2m1(scaled, negative).flatten(-2)), exponents


def _scale(exponents: Any) -> Coded:
    return Coded(exponents[..., 0].to(torch.uint8), (1, GROUP))


def _exponents(groups: Any, rounding: str, largest: float, largest_exponent: int) -> Any:
    amax = groups.abs().amax(dim=-1, keepdim=True)
    if rounding == "ceil":
        return ceil_power_of_two(amax / constant(largest, amax)).clamp(0, 254)
    # Rounds up from one and a half times a power of two, minus one bit of BF16.
    bits = amax.view(torch.int32) + (1 << (23 - 1 - 1))
    return ((bits >> 23) - largest_exponent).clamp(0, 254)
