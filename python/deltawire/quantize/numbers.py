"""Arithmetic with the same results, bit for bit, on CPU and GPU.

On a GPU torch divides by a Python number by multiplying with its inverse. Therefore constants are tensors here.
"""

from __future__ import annotations

from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
E2M1_MAX = 6.0


def constant(value: float, like: Any) -> Any:
    """A constant with the dtype and device of a tensor."""
    return torch.full((), value, dtype=like.dtype, device=like.device)


def or_eps(scale: Any) -> Any:
    """Replace 0 by epsilon: compressed-tensors' scale for zeros."""
    return torch.where(scale == 0, constant(torch.finfo(scale.dtype).eps, scale), scale)


def to_e4m3(values: Any) -> Any:
    """Round to nearest, ties to even; clamp to the largest value."""
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(E4M3)


def to_e2m1(values: Any, negative: Any) -> Any:
    """Four-bit codes, one per byte: round to nearest, ties to the even code, with the given signs.

    >>> import torch
    >>> values = torch.tensor([0.25, 0.75, -1.25, 1.75, 2.5, 3.5, 5.0, 100.0])
    >>> to_e2m1(values, values < 0).tolist()
    [0, 2, 10, 4, 4, 6, 6, 7]
    """
    size = values.abs()
    code = negative.to(torch.uint8) << 3
    # Midpoints between 0, 0.5, 1, 1.5, 2, 3, 4 and 6; every second tie rounds up.
    for border in (0.25, 1.25, 2.5, 5.0):
        code += size > border
    for border in (0.75, 1.75, 3.5):
        code += size >= border
    return code


def pack_nibbles(codes: Any) -> Any:
    """Pack two codes of a row per byte, low bits first."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def ceil_power_of_two(values: Any) -> Any:
    """The biased exponent (E8M0, int32) of the smallest power of two >= each value; values are F32 and not negative."""
    bits = values.view(torch.int32)
    exponents, fractions = bits >> 23, bits & 0x7FFFFF
    # 2^-127 is a denormal in F32: the power itself has a fraction there.
    return exponents + (fractions > torch.where(exponents == 0, 1 << 22, 0))


def power_of_two(exponents: Any) -> Any:
    """F32 powers of biased exponents (int32); 0 is 2^-127."""
    return torch.where(exponents > 0, exponents << 23, 1 << 22).view(torch.float32)


def in_blocks(weight: Any, block: tuple[int, int]) -> Any:
    """[M, N] as [rows of blocks, rows in a block, columns of blocks, columns in a block], padded with zeros."""
    rows, columns = weight.shape
    missing = (-rows % block[0], -columns % block[1])
    if any(missing):
        weight = torch.nn.functional.pad(weight, (0, missing[1], 0, missing[0]))
    return weight.unflatten(1, (-1, block[1])).unflatten(0, (-1, block[0]))


def out_of_blocks(blocks: Any, shape: Any) -> Any:
    """The inverse of `in_blocks`."""
    return blocks.flatten(2).flatten(0, 1)[: shape[0], : shape[1]].contiguous()
