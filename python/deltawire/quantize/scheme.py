"""Base classes of the formats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch

from deltawire.errors import InvalidArgument

SCALES = ("weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale")
"""Suffixes of scales."""
_WHOLE_SAMPLE = 128  # for dimensions that a tile covers completely


@dataclass(frozen=True)
class Coded:
    """One tensor of a quantised module."""

    tensor: Any
    per: tuple[int, int] | None
    """Rows and columns of the weight per element, to place the parts of shards; 0: all of them. None: it describes the whole
    weight, and every shard computes it."""


@dataclass(frozen=True)
class Scheme:
    """How a weight becomes the tensors of a quantised checkpoint. Formats are subclasses."""

    format: ClassVar[str]
    shares_amax: ClassVar[bool] = False
    """Modules that engines fuse (gate and up; q, k and v) share the scale of the largest weight."""

    amax_of: ClassVar[str] = ""
    """What `amax` covers: "tensor" or "row", on which ranks must agree; "": not used."""

    def coded(self, weight: Any, amax: Any, shape: tuple[int, ...]) -> Mapping[str, Coded]:
        """The quantised tensors by suffix.

        `weight` is [M, N] in BF16 or F32, without NaN and infinities. `amax` is the largest absolute value, in F32: [], or [M, 1]
        for rows. `shape` is that of the whole tensor, of which the weight may be a shard.
        """
        raise NotImplementedError

    def forms(self, extent: tuple[int, ...], dtype: Any) -> Mapping[str, Coded]:
        """The result of `coded` for a weight of this extent and dtype, on torch's device "meta".

        Derived from a tile that is quantised once: quantising on "meta" takes milliseconds per weight, and seconds at first.
        """
        return {
            suffix: Coded(empty(shape if per is None else parts_of(extent, per), coded), per)
            for suffix, shape, coded, per in _tile_of(self, dtype)
        }

    def tile(self) -> tuple[int, ...]:
        """Rows and columns that shards must not split; 0: all of them."""
        return 1, 1

    def check_amax(self, name: str, amax: Any) -> None:
        """Refuse values without a representable scale."""

    def settings(self) -> dict[str, Any]:
        """Everything that the bytes depend on, for JSON."""
        return {"format": self.format, **asdict(self)}

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse unsupported shapes."""
        if len(shape) != 2:
            raise InvalidArgument(
                f'tensor "{name}": {self.format} quantises only matrices, not shape {list(shape)}; to leave it unquantised, '
                "pass a quantization_config that ignores its module; see deltawire.quantize.FORMATS"
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
    """The shape of a tensor with an element per `per` elements of each dimension; 0: per dimension."""
    return tuple(1 if one == 0 else math.ceil(size / one) for size, one in zip(extent, per, strict=True))


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor without contents."""
    return torch.empty(shape, dtype=dtype, device="meta")


@lru_cache(maxsize=64)
def _tile_of(scheme: Scheme, dtype: Any) -> list[tuple[str, tuple[int, ...], Any, tuple[int, int] | None]]:
    """Suffix, shape, dtype and `per` of each tensor of a quantised tile."""
    rows, columns = (size or _WHOLE_SAMPLE for size in scheme.tile())
    # Explicit dtype and device: the cache must not depend on torch's defaults.
    weight = torch.ones(rows, columns, dtype=dtype, device="cpu")
    amax = torch.ones((rows, 1) if scheme.amax_of == "row" else (), dtype=torch.float32, device="cpu")
    coded = scheme.coded(weight, amax, (rows, columns))
    return [(suffix, tuple(one.tensor.shape), one.tensor.dtype, one.per) for suffix, one in coded.items()]


def refuse_remainder(name: str, columns: int, group: int, format: str) -> None:
    """Refuse an incomplete last group."""
    if columns % group != 0:
        raise InvalidArgument(f'tensor "{name}": {columns} columns are not a multiple of {group}, the group size of {format}')


def refuse_unbounded(name: str, amax: Any) -> None:
    """Refuse NaN and infinities, for which reference libraries write different garbage."""
    if not bool(torch.isfinite(amax).all()):
        raise InvalidArgument(f'tensor "{name}": contains NaN or an infinity, and cannot be quantised')


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
    """The largest absolute values of a shard."""

    name: str
    first_row: int
    values: Any
    """F32: [], or [rows, 1]."""

    def over(self, values: Any, first_row: int) -> Any:
        """The maximum of `values`, which begin at `first_row`, and of these, in their common rows."""
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
"""Amaxes of all ranks, by name."""


def by_name(given: Iterable[list[Amax]]) -> Agreed:
    """Amaxes from all ranks, by name."""
    found: dict[str, list[Amax]] = {}
    for amaxes in given:
        for amax in amaxes:
            found.setdefault(amax.name, []).append(amax)
    return found
