"""NVFP4 as NVIDIA's ModelOpt writes it: E2M1 elements, an E4M3 scale for 16 of them, an F32 scale for the tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.errors import InvalidArgument
from deltawire.quantize.numbers import E2M1_MAX, E4M3, E4M3_MAX, constant, pack_nibbles, to_e2m1
from deltawire.quantize.scheme import Made, Scheme, refuse_remainder

GROUP = 16
_LEAST_SCALE = 2.0**-9  # E4M3's smallest


@dataclass(frozen=True)
class Nvfp4(Scheme):
    """The arithmetic of ModelOpt's `NVFP4QTensor`; that fused modules share an amax is its `preprocess_linear_fusion`."""

    format: ClassVar[str] = "nvfp4"
    shares_amax: ClassVar[bool] = True

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight`, U8 [M, N / 2]; `weight_scale`, E4M3 [M, N / 16]; `weight_scale_2`, F32 []."""
        scale_2 = amax / constant(E2M1_MAX * E4M3_MAX, amax)
        groups = weight.unflatten(1, (-1, GROUP)).float()
        scale = groups.abs().amax(dim=-1, keepdim=True) / (constant(E2M1_MAX, amax) * scale_2)
        scale = torch.where(scale == 0, constant(1, scale), scale).clamp(_LEAST_SCALE, E4M3_MAX).to(E4M3)
        scaled = groups / (scale.float() * scale_2)
        packed = pack_nibbles(to_e2m1(scaled, scaled < 0).flatten(1))
        return {
            "weight": Made(packed, (1, 2)),
            "weight_scale": Made(scale[..., 0], (1, GROUP)),
            "weight_scale_2": Made(scale_2, None),
        }

    def tile(self) -> tuple[int, int]:
        """All of it, for `weight_scale_2`."""
        return 0, 0

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Whole groups."""
        super().check(name, shape)
        refuse_remainder(name, shape[1], GROUP, self.format)


def refuse_zero(name: str, amax: Any) -> None:
    """The scale of the tensor would be 0, and those of its groups 0 / 0: ModelOpt writes NaN."""
    if not bool(amax >= 2.0**-115):
        raise InvalidArgument(f'tensor "{name}": is all zeros, or nearly so, which nvfp4 has no scale for')
