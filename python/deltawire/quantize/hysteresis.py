"""Scales that stay while they may: what a block's scale was is kept if the one that it needs now is near.

The band says how near. A scale that is larger than needed costs precision: it is kept while the needed one is no less than
`1 - band` of it. One that is smaller than needed would cut the largest elements off: it is kept while the needed one is no more
than `1 + band` of it, and never so far that an element is off by more than half a step of the format, as any element may be that
is rounded (`Scheme.headroom`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from deltawire.errors import InvalidArgument


class Old:
    """The scales of the version before."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        """`find`: from a tensor's name to what it is there, all of it; None: it is not there."""
        self.find = find

    def use(self, name: str, tensor: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
        """Is told of the new version's, those boxes of them that matter here."""


class Keep:
    """Has the last word on scales. This one keeps none: they are what the reference library makes."""

    def __call__(self, suffix: str, needed: Any, per: tuple[int, int] | None, *, inverse: bool = False) -> Any:
        """The scales to use, where `needed` are. `per`: as `Made` has it. `inverse`: they are divided by, not multiplied with."""
        return needed


@dataclass(frozen=True)
class Keeping(Keep):
    """Keeps what it can of a module's scales in the last version."""

    old: Callable[[str], Any]
    """By suffix; None: there is none."""
    band: float
    headroom: float
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    """Of the weight, or of the shard of it that is here."""

    def __call__(self, suffix: str, needed: Any, per: tuple[int, int] | None, *, inverse: bool = False) -> Any:
        """Old scales of another dtype or shape are none; so are NaN, infinities and what is not positive."""
        before = self.old(suffix)
        if before is None or before.dtype not in (needed.dtype, torch.float8_e4m3fn):
            return needed
        if per is not None:
            if before.dim() != len(per):
                return needed
            before = before[self._box(per)]
        if before.numel() != needed.numel():
            return needed
        before = before.to(needed.device, needed.dtype).reshape(needed.shape)
        # In F64, where products of such numbers are the same on every machine.
        was, needs = before.double(), needed.double()
        if inverse:
            was, needs = needs, was
        near = (needs >= was * (1 - self.band)) & (needs <= was * (1 + min(self.band, self.headroom)))
        return torch.where(near & before.isfinite() & (before > 0), before, needed)

    def _box(self, per: tuple[int, int]) -> tuple[slice, ...]:
        begins = [0 if each == 0 else begin // each for begin, each in zip(self.offset, per, strict=True)]
        sizes = [1 if each == 0 else math.ceil(size / each) for size, each in zip(self.extent, per, strict=True)]
        return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def checked_band(band: Any) -> float:
    """0 is off."""
    if isinstance(band, bool) or not isinstance(band, (int, float)) or not 0 <= band <= 0.5:
        raise InvalidArgument(f"hysteresis: a band from 0 (off) to 0.5, not {band!r}")
    return float(band)
