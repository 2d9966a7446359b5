"""Quantises with the library's kernels, bit-identical to the formulas in torch."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import torch

from deltawire import _core
from deltawire._internal.tensors import readable, writable
from deltawire.quantize.fp8 import Fp8Block
from deltawire.quantize.scheme import refuse_unbounded


class Fp8Blocks:
    """A matrix in host memory and the scales of its blocks. The weights must not change."""

    def __init__(self, name: str, weight: Any, scheme: Fp8Block, rounded: str) -> None:
        if rounded == "F16":
            weight = weight.half().float()
        elif weight.dtype not in (torch.bfloat16, torch.float32):
            weight = weight.to(torch.bfloat16 if rounded == "BF16" else torch.float32)
        (weights,) = readable({name: weight.detach()})
        rows, columns = scheme.block
        self._core = _core.Fp8Blocks(
            weights,
            block_rows=rows,
            block_columns=columns,
            power_of_two=scheme.power_of_two,
            round=rounded == "BF16",
            threads=min(torch.get_num_threads(), os.cpu_count() or 1),
        )
        if not self._core.bounded:
            refuse_unbounded(name, torch.tensor(torch.inf))
        self._shape = tuple(weight.shape)
        self._scales = -(-self._shape[0] // rows), -(-self._shape[1] // columns)

    def scales(self) -> Any:
        """In F32, one for each block."""
        out = torch.empty(self._scales, dtype=torch.float32)
        self._core.write_scales(*writable({"scales": out}))
        return out

    def elements(self) -> Any:
        """In E4M3, all of them."""
        out = torch.empty(self._shape, dtype=torch.float8_e4m3fn)
        self._core.write_elements(*writable({"elements": out}))
        return out

    def publishable(self, name: str, shape: list[int] | None, offset: list[int] | None) -> _core.Tensor:
        """The elements for a publisher, computed while it reads them, without a full copy."""
        return self._core.publishable(name, shape, offset)


class Fp8BlocksOnGpu:
    """The same for a matrix on a GPU.

    `check` computes the scales of all matrices that are published together, in one launch.
    """

    def __init__(self, name: str, weight: Any, scheme: Fp8Block, rounded: str) -> None:
        self._weight, self._name, self._scheme, self._rounded = weight, name, scheme, rounded
        rows, columns = scheme.block
        blocks = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
        self._scales = torch.empty(blocks, dtype=torch.float32, device=weight.device)

    @staticmethod
    def fits(weight: Any, rounded: str) -> bool:
        """Whether the kernels can read the weight without a conversion."""
        return weight.dtype in (torch.bfloat16, torch.float32) and rounded in ("BF16", "F32") and weight.is_contiguous()

    def scales(self) -> Any:
        """In F32, one for each block."""
        return self._scales

    def publishable(self, name: str, shape: list[int] | None, offset: list[int] | None) -> _core.Tensor:
        """The elements for a publisher."""
        (weights,), (scales,) = readable({self._name: self._weight}), writable({"scales": self._scales})
        rows, columns = self._scheme.block
        return _core.fp8_on_gpu(
            weights,
            scales,
            name,
            shape,
            offset,
            block_rows=rows,
            block_columns=columns,
            power_of_two=self._scheme.power_of_two,
            round=self._rounded == "BF16",
        )

    @staticmethod
    def check(tensors: list[_core.Tensor], device: Any) -> None:
        """Compute the scales of all tensors from `publishable`, on this device; refuses NaN."""
        _core.check_fp8(tensors, torch.cuda.current_stream(device).cuda_stream)


@lru_cache(maxsize=1)
def _has_kernels() -> bool:
    return _core.has_cuda()


def codes_on_gpu(
    format: str, weight: Any, group: int, scale_dtype: Any, of_tensor: Any = None, bits: int = 4
) -> tuple[Any, Any, Any] | None:
    """Codes in U8, scales of groups, and zero points or None. Returns None if the kernels do not support it; then use torch.

    `weight` is a matrix in BF16 or F32; `of_tensor` is the additional scale of the whole tensor.
    """
    if not weight.is_cuda or not _has_kernels() or not _core.can_group(group):
        return None
    if weight.dtype not in (torch.bfloat16, torch.float32) or not weight.is_contiguous() or weight.data_ptr() % 16:
        return None
    rows, columns = weight.shape
    if columns % group:
        return None
    codes = weight.new_empty((rows, columns * bits // 8), dtype=torch.uint8)
    scales = weight.new_empty((rows, columns // group), dtype=scale_dtype)
    zero_points = weight.new_empty(scales.shape, dtype=torch.int8) if format.endswith("-asymmetric") else None
    if of_tensor is not None:
        of_tensor = of_tensor.to(weight.device, torch.float32).contiguous()
    _core.make_group_codes(
        format,
        weights=weight.data_ptr(),
        narrow=weight.dtype == torch.bfloat16,
        num_elements=weight.numel(),
        group=group,
        codes=codes.data_ptr(),
        scales=scales.data_ptr(),
        zero_points=0 if zero_points is None else zero_points.data_ptr(),
        of_tensor=0 if of_tensor is None else of_tensor.data_ptr(),
        stream=torch.cuda.current_stream(weight.device).cuda_stream,
    )
    return codes, scales, zero_points
