"""The largest size of what a scale is of, where ranks hold parts of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


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


def by_name(told: Iterable[list[Amax]]) -> Agreed:
    """What ranks told each other."""
    found: dict[str, list[Amax]] = {}
    for amaxes in told:
        for amax in amaxes:
            found.setdefault(amax.name, []).append(amax)
    return found
