"""NVFP4 of ModelOpt and compressed-tensors: E2M1 elements, an E4M3 scale per 16 elements, an F32 scale per tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.errors import InvalidArgument
from deltawire.quantize.kernels import codes_on_gpu
from deltawire.quantize.numbers import E2M1_MAX, E4M3, E4M3_MAX, constant, pack_nibbles, to_e2m1
from deltawire.quantize.scheme import Coded, Grouped

GROUP = 16
_LEAST_SCALE = 2.0**-9  # E4M3's smallest


class _OfTwoScales(Grouped):
    """A scale for each group of a row, and a scale for the tensor, which fused modules share."""

    GROUP: ClassVar[int] = GROUP
    amax_of: ClassVar[str] = "tensor"
    shares_amax: ClassVar[bool] = True


@dataclass(frozen=True)
class Nvfp4(_OfTwoScales):
    """ModelOpt's `NVFP4QTensor`; fused modules share an amax, as in its `preprocess_linear_fusion`."""

    format: ClassVar[str] = "nvfp4"

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight`, U8 [M, N / 2]; `weight_scale`, E4M3 [M, N / 16]; `weight_scale_2`, F32 []."""
        scale_2 = amax / constant(E2M1_MAX * E4M3_MAX, amax)
        fast = codes_on_gpu("nvfp4", weight, GROUP, E4M3, scale_2)
        codes, scale, _ = fast or self._by_torch(weight, scale_2)
        return {
            "weight": Coded(codes, (1, 2)),
            "weight_scale": Coded(scale, (1, GROUP)),
            "weight_scale_2": Coded(scale_2, None),
        }

    @staticmethod
    def _by_torch(weight: Any, scale_2: Any) -> tuple[Any, Any, None]:
        groups = weight.unflatten(1, (-1, GROUP)).float()
        scale = groups.abs().amax(dim=-1, keepdim=True) / (constant(E2M1_MAX, scale_2) * scale_2)
        scale = torch.where(scale == 0, constant(1, scale), scale)
        scale = scale.clamp(_LEAST_SCALE, E4M3_MAX).to(E4M3)
        return _packed(groups / (scale.float() * scale_2)), scale[..., 0], None

    def check_amax(self, name: str, amax: Any) -> None:
        """Refuse zeros: the scale would be 0, and the scales of groups 0 / 0 (ModelOpt writes NaN)."""
        if not bool(amax >= 2.0**-115):
            raise InvalidArgument(f'tensor "{name}": nvfp4 cannot represent the scale: all elements are zero, or nearly so')


@dataclass(frozen=True)
class CompressedNvfp4(_OfTwoScales):
    """`nvfp4-pack-quantized` of compressed-tensors: stores the inverse scale of the tensor, computed in the weights' dtype."""

    format: ClassVar[str] = "compressed-nvfp4"

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight_packed`, U8 [M, N / 2]; `weight_scale`, E4M3 [M, N / 16]; `weight_global_scale`, F32 [1]."""
        largest = amax.to(weight.dtype).clamp(torch.finfo(weight.dtype).tiny)
        inverse = constant(E2M1_MAX * E4M3_MAX, largest) / largest
        # For zeros, or nearly so: no scale.
        inverse = torch.where(inverse.isinf(), constant(1, inverse), inverse).float().reshape(1)
        fast = codes_on_gpu("compressed-nvfp4", weight, GROUP, E4M3, inverse)
        codes, scale, _ = fast or self._by_torch(weight, inverse)
        return {
            "weight_packed": Coded(codes, (1, 2)),
            "weight_scale": Coded(scale, (1, GROUP)),
            "weight_global_scale": Coded(inverse, None),
        }

    @staticmethod
    def _by_torch(weight: Any, inverse: Any) -> tuple[Any, Any, None]:
        groups = weight.unflatten(1, (-1, GROUP))
        scale = groups.abs().amax(dim=-1, keepdim=True) / constant(E2M1_MAX, weight) * inverse
        scale = scale.clamp(max=E4M3_MAX).to(E4M3).float()
        scale = torch.where(scale == 0, constant(0.125, scale), scale)
        return _packed(groups.float() / (scale / inverse)), scale[..., 0].to(E4M3), None


def _packed(scaled: Any) -> Any:
    return pack_nibbles(to_e2m1(scaled, scaled < 0).flatten(1))
