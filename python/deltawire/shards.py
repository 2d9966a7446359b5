"""Plans how many bytes each engine rank needs from each trainer rank, before anything runs.

A layout lists the boxes of each rank. It comes from `layout_of_spec`, or from `deltawire.torch.layout_of` on each rank.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deltawire.errors import InvalidArgument, Unsupported

_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32}


@dataclass(frozen=True)
class ShardBox:
    """A part of a tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Its size."""
        narrow = 8 if self.dtype.startswith("F8") or self.dtype in ("I8", "U8", "BOOL") else 16
        return math.prod(self.extent) * _BITS.get(self.dtype, narrow) // 8

    def cut(self, dimension: int, begin: int, end: int) -> ShardBox:
        """Its part between two places of a dimension of the whole tensor."""
        low = max(begin, self.offset[dimension])
        high = max(low, min(end, self.offset[dimension] + self.extent[dimension]))
        offset, extent = list(self.offset), list(self.extent)
        offset[dimension], extent[dimension] = low, high - low
        return replace(self, offset=tuple(offset), extent=tuple(extent))

    def overlap(self, other: ShardBox) -> ShardBox:
        """The common part, which may have no elements."""
        both = self
        for dimension, (begin, count) in enumerate(zip(other.offset, other.extent, strict=True)):
            both = both.cut(dimension, begin, begin + count)
        return both

    def without(self, other: ShardBox) -> Iterator[ShardBox]:
        """The rest of it, in boxes."""
        rest = self
        for dimension, (begin, count) in enumerate(zip(other.offset, other.extent, strict=True)):
            end = rest.offset[dimension] + rest.extent[dimension]
            sides = rest.cut(dimension, 0, begin), rest.cut(dimension, begin + count, end)
            yield from (side for side in sides if side.num_bytes)
            rest = rest.cut(dimension, begin, begin + count)


Layout = Sequence[Sequence[ShardBox]]


@dataclass
class ShardPlan:
    """What moves from which trainer rank to which engine rank. Made by `plan_shards`."""

    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    """Bytes of weights by (trainer rank, engine rank)."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why tensors cannot go shard to shard."""

    def check(self) -> None:
        """Raise `Unsupported` if there are refusals."""
        for name, why in self.refusals.items():
            more = f"; and {len(self.refusals) - 1} more" if len(self.refusals) > 1 else ""
            raise Unsupported(f'shard to shard: tensor "{name}": {why}{more}')


def plan_shards(trainer: Layout, engine: Layout) -> ShardPlan:
    """Let each engine rank take each element from one trainer rank, of its own number if possible.

    >>> whole = ShardBox("w", "BF16", (4, 6), (0, 0), (4, 6))
    >>> plan_shards([[whole]], [[whole.cut(1, 0, 3)], [whole.cut(1, 3, 6)]]).edges
    {(0, 0): 24, (0, 1): 24}
    """
    plan, holders = ShardPlan(), dict[str, list[tuple[int, ShardBox]]]()
    for rank, boxes in enumerate(trainer):
        for box in boxes:
            holders.setdefault(box.name, []).append((rank, box))
    for rank, boxes in enumerate(engine):
        for box in boxes:
            if not math.prod(box.extent):
                continue
            held = holders.get(box.name, [])
            if why := _mismatch(box, [one for _, one in held]):
                plan.refusals[box.name] = why
                continue
            missing = [box]
            for source, one in sorted(held, key=lambda item: (item[0] - rank) % len(trainer)):
                if found := sum(part.overlap(one).num_bytes for part in missing):
                    plan.edges[source, rank] = plan.edges.get((source, rank), 0) + found
                    missing = [
                        rest for part in missing for rest in (part.without(one) if part.overlap(one).num_bytes else [part])
                    ]
            if missing:
                plan.refusals[box.name] = f"no trainer rank holds its box at {missing[0].offset} of {missing[0].extent}"
    plan.edges = dict(sorted(plan.edges.items()))
    return plan


def _mismatch(box: ShardBox, held: list[ShardBox]) -> str | None:
    if not held:
        return "no trainer rank holds it"
    theirs = next((one for one in held if (one.dtype, one.shape) != (box.dtype, box.shape)), None)
    if theirs is None:
        return None
    return f"it is {theirs.dtype} {list(theirs.shape)} in the trainer and {box.dtype} {list(box.shape)} in the engine"


# How tensor-parallel ranks split a tensor, by parts of its name; the same table is in docs/transports.md.
_RULES = {
    "rows": ("q_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj", "w1", "w3"),
    "heads": ("k_proj", "v_proj"),
    "columns": ("o_proj", "down_proj", "w2"),
    "vocabulary": ("embed_tokens", "lm_head"),
}
_FUSED = ("qkv_proj", "gate_up_proj")  # engines split each tensor inside separately
_RULE_OF = {part: rule for rule, parts in _RULES.items() for part in parts}
_WORDS = ("tp", "fsdp", "ep", "pp")  # consecutive ranks differ in tp first


def layout_of_spec(spec: str, checkpoint: str | os.PathLike[str]) -> list[list[ShardBox]]:
    """The layout of words such as "tp=4" or "tp=2,ep=2" and a checkpoint's tensors, by Megatron's rules.

    `tp` cuts `q_proj` `gate_proj` `up_proj` by rows, `k_proj` `v_proj` by heads, `o_proj` `down_proj` by columns, `embed_tokens`
    `lm_head` by vocabulary; `ep` by experts, `pp` by layers, `fsdp` by the remaining rows.
    """
    sizes = dict.fromkeys(_WORDS, 1)
    for word in spec.split(","):
        name, _, count = word.partition("=")
        if name not in sizes or not count.isdecimal() or not 1 <= int(count) <= 65536:
            raise InvalidArgument(f'layout "{spec}": "{word}" is not one of tp=N, fsdp=N, ep=N, pp=N')
        sizes[name] = int(count)
    tensors, config = _tensors(Path(checkpoint)), _config(Path(checkpoint))
    facts = _Facts(spec, sizes, config.get("num_key_value_heads", 0), [box.name for box in tensors])
    return [[own for box in tensors for own in facts.boxes(box, rank)] for rank in range(math.prod(sizes.values()))]


@dataclass
class _Facts:
    spec: str
    sizes: dict[str, int]
    kv_heads: int
    names: list[str]

    def __post_init__(self) -> None:
        self.num_layers, self.num_experts = (
            1 + max((_number(name, part) or 0 for name in self.names), default=0) for part in ("layers", "experts")
        )
        self.has_head = any(name.startswith("lm_head") for name in self.names)

    def boxes(self, box: ShardBox, rank: int) -> Iterator[ShardBox]:
        """The box of a tensor that a rank holds, if any."""
        place = {}
        for word in _WORDS:
            rank, place[word] = divmod(rank, self.sizes[word])
        if not self._is_on_stage(box.name, place["pp"]):
            return
        expert, parts = _number(box.name, "experts"), box.name.split(".")
        is_stack = "experts" in parts and expert is None and len(box.shape) > 1
        if expert is not None:
            if place["ep"] != expert * self.sizes["ep"] // self.num_experts:
                return
        elif is_stack:
            box = self._share(box, 0, place, "ep")
        if self.sizes["tp"] > 1 and any(part in _FUSED for part in parts):
            raise InvalidArgument(f'layout "{self.spec}": the split of the fused tensor "{box.name}" is unknown; use layout_of')
        rule = next((_RULE_OF[part] for part in parts if part in _RULE_OF), None)
        first = 1 if is_stack else 0
        if rule == "vocabulary":
            box = _chunk(box, 0, self.sizes["tp"], place["tp"])
        elif rule == "heads" and 0 < self.kv_heads < self.sizes["tp"]:  # neighbouring ranks share heads
            head = place["tp"] * self.kv_heads // self.sizes["tp"]
            box = _chunk(box, 0, self.kv_heads, head)
        elif rule == "columns" and len(box.shape) > first + 1:
            box = self._share(box, first + 1, place, "tp")
        elif rule in ("rows", "heads"):
            box = self._share(box, first, place, "tp")
        if box.shape:
            box = _chunk(box, 0, self.sizes["fsdp"], place["fsdp"])
        if box.num_bytes:
            yield box

    def _share(self, box: ShardBox, dimension: int, place: dict[str, int], word: str) -> ShardBox:
        if box.shape[dimension] % self.sizes[word]:
            why = f"{box.shape[dimension]} cannot be divided by {self.sizes[word]} ranks"
            raise InvalidArgument(f'layout "{self.spec}", tensor "{box.name}": {why}')
        return _chunk(box, dimension, self.sizes[word], place[word])

    def _is_on_stage(self, name: str, stage: int) -> bool:
        stages, layer = self.sizes["pp"], _number(name, "layers")
        if layer is not None:
            return layer * stages // self.num_layers == stage
        embeds = "embed_tokens" in name
        return (embeds and stage == 0) or (stage + 1 == stages and (not embeds or not self.has_head))


def _chunk(box: ShardBox, dimension: int, shares: int, index: int) -> ShardBox:
    """Split like torch.chunk: the last ranks have less."""
    begin, count = box.offset[dimension], -(-box.extent[dimension] // shares)
    return box.cut(dimension, begin + count * index, begin + count * (index + 1))


def _number(name: str, part: str) -> int | None:
    found = re.search(rf"(?:^|\.){part}\.(\d+)(?:\.|$)", name)
    return None if found is None else int(found[1])


def _tensors(path: Path) -> list[ShardBox]:
    """Read from the headers of a checkpoint's files."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InvalidArgument(f"{path}: no safetensors files")
    boxes = []
    for file in files:
        try:
            with file.open("rb") as opened:
                header = json.loads(opened.read(min(int.from_bytes(opened.read(8), "little"), 100 << 20)))
            for name, form in header.items():
                if name != "__metadata__":
                    shape = tuple(int(count) for count in form["shape"])
                    boxes.append(ShardBox(name, form["dtype"], shape, (0,) * len(shape), shape))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgument(f"{file}: not a safetensors file: {error}") from error
    return boxes


def _config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    words: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    return dict(words.get("text_config", words))
