"""INT4 as compressed-tensors packs it (`pack-quantized`), with everything computed in the dtype of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from deltawire.quantize.numbers import constant, pack_nibbles
from deltawire.quantize.scheme import Made, Scheme, refuse_remainder

_LOWEST, _HIGHEST = -8, 7
_IN_WORD = 8


@dataclass(frozen=True)
class Int4(Scheme):
    """Groups of a row share a scale and, unless symmetric, a zero point."""

    format: ClassVar[str] = "int4"

    group: int = 128
    """0: a row."""
    symmetric: bool = True
    shape_dtype: str = "I64"
    """Of `weight_shape`: I64 as the library writes it, I32 in Kimi's checkpoints."""

    def made(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Made]:
        """`weight_packed`, I32 [M, N / 8]; `weight_scale`, [M, N / group]; `weight_shape`; `weight_zero_point`, by rows."""
        group = self.group or weight.shape[1]
        groups = weight.unflatten(1, (-1, group))
        low, high = groups.amin(dim=-1).clamp(max=0), groups.amax(dim=-1).clamp(min=0)
        scale, zero_point = _symmetric(low, high) if self.symmetric else _asymmetric(low, high)
        scaled = groups / scale[..., None]
        if zero_point is not None:
            scaled += zero_point[..., None].to(scaled.dtype)
        codes = scaled.clamp(_LOWEST, _HIGHEST).round().to(torch.int8).flatten(1)
        dtype = torch.int32 if self.shape_dtype == "I32" else torch.int64
        made = {
            "weight_packed": Made(_words(codes), (1, _IN_WORD)),
            "weight_scale": Made(scale, (1, self.group)),
            "weight_shape": Made(torch.tensor(shape, dtype=dtype), None),
        }
        if zero_point is not None:
            packed = _words(zero_point.to(torch.int8).T).T.contiguous()
            made["weight_zero_point"] = Made(packed, (_IN_WORD, self.group))
        return made

    def tile(self) -> tuple[int, int]:
        """A group, and a word of zero points."""
        columns = self.group if self.group % _IN_WORD == 0 else self.group * _IN_WORD
        return 1 if self.symmetric else _IN_WORD, columns

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Whole groups."""
        super().check(name, shape)
        refuse_remainder(name, shape[1], self.group or 1, self.format)


def _symmetric(low: Any, high: Any) -> tuple[Any, None]:
    return _or_eps(torch.maximum(low.abs(), high) / constant((_HIGHEST - _LOWEST) / 2, low)), None


def _asymmetric(low: Any, high: Any) -> tuple[Any, Any]:
    scale = (high - low) / constant(_HIGHEST - _LOWEST, low)
    # Of a group of zeros it is 0 / 0; as an integer that is 0, in the library too.
    zero_point = (constant(_LOWEST, low) - low / scale).clamp(_LOWEST, _HIGHEST).nan_to_num(0).round()
    return _or_eps(scale), zero_point


def _or_eps(scale: Any) -> Any:
    return torch.where(scale == 0, constant(torch.finfo(scale.dtype).eps, scale), scale)


def _words(codes: Any) -> Any:
    """Eight codes of a row in a word, the first one lowest; what the last word lacks is 0."""
    codes = (codes - _LOWEST).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % _IN_WORD))
    return pack_nibbles(codes).flatten().view(torch.int32).unflatten(0, (codes.shape[0], -1))
