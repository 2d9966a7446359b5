"""What all formats have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch

from deltawire.errors import InvalidArgument

SCALES = ("weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale")
"""What names of scales end with."""
_WHOLE_SAMPLE = 128  # for a dimension of which a tile has all


@dataclass(frozen=True)
class Coded:
    """One tensor of a quantised module."""

    tensor: Any
    per: tuple[int, int] | None
    """How many rows and columns of the weight an element of it stands for, so that a shard's part of it has its place; 0: all of
    them. None: it says something of the whole weight that every shard knows."""


@dataclass(frozen=True)
class Scheme:
    """How the weight of a module becomes the tensors of a quantised checkpoint. Formats are the classes below it."""

    format: ClassVar[str]
    shares_amax: ClassVar[bool] = False
    """Modules that engines fuse into one (gate and up; q, k and v) have one scale: that of the largest of their weights."""

    amax_of: ClassVar[str] = ""
    """What `amax` is of: "tensor", or "row". Where ranks hold parts of that, they must agree on it. Empty: it does not matter."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """The tensors by what their names end with, in place of `weight`.

        `weight` is [M, N] in BF16 or F32, without NaN and infinities. `amax` is the largest size of all that shares it, in
        F32: [], or [M, 1] for rows. `shape` is the whole tensor's, if the weight is a shard of it.
        """
        raise NotImplementedError

    def forms(self, extent: tuple[int, ...], dtype: Any) -> Mapping[str, Coded]:
        """What `made` gives of a weight of this extent and dtype, without contents, on torch's device "meta".

        One tile is quantised, once, and tells the rest: torch's own way, to quantise on "meta", takes milliseconds for a weight,
        and many seconds for the first.
        """
        return {
            suffix: Coded(empty(shape if per is None else parts_of(extent, per), coded), per)
            for suffix, shape, coded, per in _tile_of(self, dtype)
        }

    def tile(self) -> tuple[int, ...]:
        """Rows and columns that shards may not cut through; 0: all of them."""
        return 1, 1

    def check_amax(self, name: str, amax: Any) -> None:
        """Refuse one that it has no scale for."""

    def settings(self) -> dict[str, Any]:
        """All that its bytes depend on, for JSON."""
        return {"format": self.format, **asdict(self)}

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse a shape that it cannot have."""
        if len(shape) != 2:
            raise InvalidArgument(
                f'tensor "{name}": {self.format} quantises matrices, and its shape is {list(shape)}; to leave it unquantised, '
                "give a quantization_config, such as one of deltawire.quantize.FORMATS, that ignores its module"
            )


class Grouped(Scheme):
    """A scale for each group of `GROUP` columns of a row."""

    GROUP: ClassVar[int]

    def tile(self) -> tuple[int, ...]:
        """A group."""
        return 1, self.GROUP

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Rows consist of whole groups."""
        super().check(name, shape)
        refuse_remainder(name, shape[1], self.GROUP, self.format)


def parts_of(extent: tuple[int, ...], per: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what has an element for so many of each dimension; 0: for all of them."""
    return tuple(1 if one == 0 else math.ceil(size / one) for size, one in zip(extent, per, strict=True))


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Without contents."""
    return torch.empty(shape, dtype=dtype, device="meta")


@lru_cache(maxsize=64)
def _tile_of(scheme: Scheme, dtype: Any) -> list[tuple[str, tuple[int, ...], Any, tuple[int, int] | None]]:
    """What its tensors' names end with, their shapes, dtypes, and what an element stands for."""
    rows, columns = (size or _WHOLE_SAMPLE for size in scheme.tile())
    # Whatever torch makes by default: a cache must not depend on that.
    weight = torch.ones(rows, columns, dtype=dtype, device="cpu")
    amax = torch.ones((rows, 1) if scheme.amax_of == "row" else (), dtype=torch.float32, device="cpu")
    coded = scheme.coded(weight, amax, (rows, columns))
    return [(suffix, tuple(one.tensor.shape), one.tensor.dtype, one.per) for suffix, one in coded.items()]


def refuse_remainder(name: str, columns: int, group: int, format: str) -> None:
    """Of formats that have no place for a group that is cut short."""
    if columns % group != 0:
        raise InvalidArgument(f'tensor "{name}": {columns} columns are not a multiple of {group}, the group of {format}')


def refuse_unbounded(name: str, amax: Any) -> None:
    """NaN and infinities have no scale; reference libraries write garbage or NaN for them, each another."""
    if not bool(torch.isfinite(amax).all()):
        raise InvalidArgument(f'tensor "{name}": holds NaN or an infinity, and cannot be quantised')


_FUSED = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
)
_BY_NAME = {part: parts for parts in _FUSED for part in parts}


def siblings(name: str) -> list[str]:
    """The weights that share a scale with this one, itself among them.

    >>> siblings("model.layers.0.mlp.up_proj.weight")
    ['model.layers.0.mlp.gate_proj.weight', 'model.layers.0.mlp.up_proj.weight']
    >>> siblings("model.layers.0.mlp.down_proj.weight")
    ['model.layers.0.mlp.down_proj.weight']
    """
    around, _, last = name.removesuffix(".weight").rpartition(".")
    prefix = f"{around}." if around else ""
    return [f"{prefix}{part}.weight" for part in _BY_NAME.get(last, (last,))]


@dataclass(frozen=True)
class Amax:
    """Of a shard."""

    name: str
    first_row: int
    values: Any
    """F32: [], or [rows, 1]."""

    def over(self, values: Any, first_row: int) -> Any:
        """The larger ones of `values`, which begin at `first_row`, and of these, in all rows that both have."""
        mine = self.values.to(values.device)
        if values.dim() == 0:
            return torch.maximum(values, mine)
        begin = max(first_row, self.first_row)
        end = min(first_row + len(values), self.first_row + len(mine))
        if begin >= end:
            return values
        merged = values.clone()
        rows = merged[begin - first_row : end - first_row]
        torch.maximum(rows, mine[begin - self.first_row : end - self.first_row], out=rows)
        return merged


Agreed = Mapping[str, list[Amax]]
"""Of all ranks, by name."""


def by_name(given: Iterable[list[Amax]]) -> Agreed:
    """What ranks told each other."""
    found: dict[str, list[Amax]] = {}
    for amaxes in given:
        for amax in amaxes:
            found.setdefault(amax.name, []).append(amax)
    return found
