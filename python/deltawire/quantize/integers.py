"""INT4 and INT8 of compressed-tensors, computed in the dtype of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.quantize.kernels import codes_on_gpu
from deltawire.quantize.numbers import constant, or_eps, pack_nibbles
from deltawire.quantize.scheme import Coded, Scheme, refuse_remainder

_WORD_BITS = 32


@dataclass(frozen=True)
class _Packed(Scheme):
    """`pack-quantized`: groups of a row share a scale and, unless symmetric, a zero point; codes are packed in 32-bit words."""

    bits: ClassVar[int]

    group: int = 128
    """0: a row."""
    symmetric: bool = True
    shape_dtype: str = "I64"
    """Of `weight_shape`: I64 in compressed-tensors, I32 in Kimi's checkpoints."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight_packed`, I32 [M, N / 8 or 4]; `weight_scale`, [M, N / group]; `weight_shape`; `weight_zero_point`."""
        format = "int4" if self.symmetric else "int4-asymmetric"
        fast = codes_on_gpu(format, weight, self.group, weight.dtype) if self.bits == 4 else None
        if fast is not None:
            codes, scale, zero_point = fast
            return self._named(codes.view(torch.int32), scale, zero_point, shape)
        lowest, highest = _range(self.bits)
        groups = weight.unflatten(1, (-1, self.group or weight.shape[1]))
        low, high = groups.amin(dim=-1).clamp(max=0), groups.amax(dim=-1).clamp(min=0)
        largest = torch.maximum(low.abs(), high) if self.symmetric else high - low
        scale = largest / constant((highest - lowest) / (2 if self.symmetric else 1), low)
        empty, scale = scale == 0, or_eps(scale)
        scaled = groups / scale[..., None]
        zero_point = None if self.symmetric else _zero_point(low, scale, empty, self.bits)
        if zero_point is not None:
            scaled += zero_point[..., None].to(scaled.dtype)
        codes = scaled.clamp(lowest, highest).round().to(torch.int8).flatten(1)
        return self._named(_words(codes, self.bits), scale, zero_point, shape)

    def _named(self, words: Any, scale: Any, zero_point: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        dtype = torch.int32 if self.shape_dtype == "I32" else torch.int64
        coded = {
            "weight_packed": Coded(words, (1, self._in_word)),
            "weight_scale": Coded(scale, (1, self.group)),
            "weight_shape": Coded(torch.tensor(shape, dtype=dtype, device=words.device), None),
        }
        if zero_point is not None:
            packed = _words(zero_point.to(torch.int8).T, self.bits).T.contiguous()
            coded["weight_zero_point"] = Coded(packed, (self._in_word, self.group))
        return coded

    def tile(self) -> tuple[int, int]:
        """A group, and a word of zero points."""
        columns = self.group if self.group % self._in_word == 0 else self.group * self._in_word
        return 1 if self.symmetric else self._in_word, columns

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Rows consist of whole groups."""
        super().check(name, shape)
        refuse_remainder(name, shape[1], self.group or 1, self.format)

    @property
    def _in_word(self) -> int:
        return _WORD_BITS // self.bits


@dataclass(frozen=True)
class Int4(_Packed):
    """Eight codes in a word."""

    format: ClassVar[str] = "int4"
    bits: ClassVar[int] = 4


@dataclass(frozen=True)
class PackedInt8(_Packed):
    """Four codes in a word, for engines that compute in BF16 (W8A16)."""

    format: ClassVar[str] = "int8-packed"
    bits: ClassVar[int] = 8


@dataclass(frozen=True)
class Int8(Scheme):
    """`int-quantized`: a code in a byte, and a scale for each row or for the tensor, for engines that compute in INT8 (W8A8)."""

    format: ClassVar[str] = "int8"

    strategy: str = "channel"
    """"tensor" or "channel"."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """`weight` in I8, `weight_scale` in the weights' dtype, [M, 1] or [1]."""
        lowest, highest = _range(8)
        by_rows = self.strategy == "channel"
        per = (1, 0) if by_rows else None
        largest = (amax if by_rows else amax.reshape(1)).to(weight.dtype)
        scale = or_eps(largest / constant((highest - lowest) / 2, weight))
        codes = (weight / scale).clamp(lowest, highest).round().to(torch.int8)
        return {"weight": Coded(codes, (1, 1)), "weight_scale": Coded(scale, per)}

    @property
    def amax_of(self) -> str:  # type: ignore[override]
        """The part of a weight that shares a scale."""
        return "row" if self.strategy == "channel" else "tensor"


def _range(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _zero_point(low: Any, scale: Any, empty: Any, bits: int) -> Any:
    lowest, highest = _range(bits)
    scale = torch.where(empty, constant(0, scale), scale)
    # 0 / 0 for a group of zeros, which compressed-tensors converts to 0.
    return (constant(lowest, low) - low / scale).clamp(lowest, highest).nan_to_num(0).round()


def _words(codes: Any, bits: int) -> Any:
    """Pack the codes of a row into words, lowest bits first; the last word is padded with 0."""
    codes = (codes.to(torch.int16) - _range(bits)[0]).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % (_WORD_BITS // bits)))
    packed = pack_nibbles(codes) if bits == 4 else codes
    return packed.contiguous().flatten().view(torch.int32).unflatten(0, (codes.shape[0], -1))
