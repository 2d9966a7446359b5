"""Small codes of groups by the library's kernels, where weights are on a GPU: one pass, with the bits of torch's many."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from deltawire import _core
from deltawire.quantize.hysteresis import Keep


@lru_cache(maxsize=1)
def _has_kernels() -> bool:
    return _core.has_cuda()


def codes_on_gpu(
    format: str, weight: Any, group: int, keep: Keep, scale_dtype: Any, of_tensor: Any = None, bits: int = 4
) -> tuple[Any, Any, Any] | None:
    """Codes in U8, scales of groups, and zero points of those that are asymmetric; None: torch has to do it.

    `weight` is a matrix in BF16 or F32, `of_tensor` the scale that it has beside those of its groups.
    """
    if type(keep) is not Keep or not weight.is_cuda or not _has_kernels() or not _core.can_group(group):
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
