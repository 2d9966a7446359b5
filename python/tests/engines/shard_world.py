"""Ranks of a trainer as processes that publish their shards, and workers that hold boxes of the same tensors."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from engine_models import changed
from rank_processes import Rank as Process
from rank_processes import run_ranks
from safetensors.torch import load_file, save_file
from torch import nn

import deltawire as dw
from deltawire.engines.map import bits
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings

WAIT = 60.0
HIDDEN, INNER, VOCAB, EXPERTS, LAYERS = 512, 1024, 300, 4, 2


def model(seed: int = 0) -> dict[str, torch.Tensor]:
    """Large enough for tiles, with a vocabulary size that cuts them."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": some(VOCAB, HIDDEN),
        "model.norm.weight": some(HIDDEN),
        "lm_head.weight": some(VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        tensors |= {
            f"{base}.self_attn.q_proj.weight": some(HIDDEN, HIDDEN),
            f"{base}.self_attn.o_proj.weight": some(HIDDEN, HIDDEN),
            f"{base}.input_layernorm.weight": some(HIDDEN),
        }
        for expert in range(EXPERTS):
            tensors[f"{base}.mlp.experts.{expert}.up_proj.weight"] = some(INNER, HIDDEN)
            tensors[f"{base}.mlp.experts.{expert}.down_proj.weight"] = some(HIDDEN, INNER)
    return tensors


@dataclass(frozen=True)
class Box:
    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]


def boxes_of(spec: str, tensors: dict[str, torch.Tensor]) -> list[list[Box]]:
    """The boxes of each rank: `tp` cuts matrices, `fsdp` rows; `ep` and `pp` distribute experts and layers."""
    counts = {"tp": 1, "fsdp": 1, "ep": 1, "pp": 1} | {
        word: int(count) for word, count in (one.split("=") for one in spec.split(","))
    }

    def box(name: str, shape: torch.Size, at: dict[str, int]) -> Box | None:
        layer, expert = re.search(r"layers\.(\d+)", name), re.search(r"experts\.(\d+)", name)
        stage = int(layer[1]) * counts["pp"] // LAYERS if layer else 0 if "embed" in name else counts["pp"] - 1
        if stage != at["pp"] or (expert and int(expert[1]) * counts["ep"] // EXPERTS != at["ep"]):
            return None
        offset, extent = [0] * len(shape), list(shape)
        columns = "o_proj" in name or "down_proj" in name
        for word, cut in [("tp", int(columns)), ("fsdp", 0)]:
            if word == "fsdp" or len(shape) == 2:
                extent[cut] //= counts[word]
                offset[cut] += at[word] * extent[cut]
        return Box(name, tuple(shape), tuple(offset), tuple(extent))

    ranks = [dict(zip(counts, at, strict=True)) for at in itertools.product(*map(range, counts.values()))]
    return [[own for name, tensor in tensors.items() if (own := box(name, tensor.shape, at))] for at in ranks]


def part_of(box: Box, tensor: torch.Tensor) -> torch.Tensor:
    return tensor[tuple(slice(at, at + size) for at, size in zip(box.offset, box.extent, strict=True))]


class Shards(nn.Module):
    """A worker's weights: a parameter for each box, in its own memory."""

    def __init__(self, boxes: list[Box], tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.boxes = boxes
        self.parts = nn.ParameterList(nn.Parameter(part_of(box, tensors[box.name]).clone(), requires_grad=False) for box in boxes)

    def load_weights(self, weights: Any) -> None:
        tensors = dict(weights)
        for box, part in zip(self.boxes, self.parts, strict=True):
            if box.name in tensors:
                part.data.copy_(part_of(box, tensors[box.name]))


def publish_as_rank(process: Process, folder: Path, spec: str, dies: int | None) -> str:
    """Publish version N, with weights derived from N, as soon as FOLDER/N exists; end with FOLDER/end.

    `dies`: a rank that is gone after version 1.
    """
    import torch.distributed as dist

    from deltawire.torch import RankStore

    tensors = load_file(folder / "model.safetensors")
    boxes = boxes_of(spec, tensors)[process.rank]
    held = {box.name: dw.Tensor(part_of(box, tensors[box.name]).clone(), shape=box.shape, offset=box.offset) for box in boxes}
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=process.rank, world_size=process.size)
    with RankStore() as ranks:
        publisher = dw.Publisher(ranks.store, held, group=dist.group.WORLD)
        if process.rank == 0:
            write(folder / "url", ranks.url)
        for number in range(1000):
            while not (folder / str(number)).exists():
                if (folder / "end").exists():
                    return "ended"
                time.sleep(0.01)
            if number:
                tensors = changed(tensors, number, 0.012)
                for box in boxes:
                    held[box.name].array.copy_(part_of(box, tensors[box.name]))
            publisher.publish()
            if process.rank == dies and number == 1:
                write(folder / "died", "")
                os._exit(9)
    return "ended"


def write(path: Path, text: str) -> None:
    """Write atomically."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


class Trainer:
    """Its ranks, as processes."""

    def __init__(self, folder: Path, spec: str, *, dies: int | None = None) -> None:
        folder.mkdir()
        save_file(model(), folder / "model.safetensors")
        self.folder, self.tensors, self.number = folder, load_file(folder / "model.safetensors"), 0
        ranks = len(boxes_of(spec, self.tensors))
        self.results: list[Any] = []
        self._thread = threading.Thread(
            target=lambda: self.results.extend(run_ranks(ranks, publish_as_rank, folder, spec, dies)), daemon=True
        )
        self._thread.start()
        wait_until(lambda: (folder / "url").exists() or not self._thread.is_alive())
        self.url = (folder / "url").read_text()
        write(folder / "0", "")

    def step(self) -> int:
        self.number += 1
        self.tensors = changed(self.tensors, self.number, 0.012)
        write(self.folder / str(self.number), "")
        return self.number

    def close(self) -> None:
        write(self.folder / "end", "")
        self._thread.join(WAIT)


class GroupRank:
    """A worker among threads, with an all-gather."""

    def __init__(self, rank: int, barrier: threading.Barrier, words: list[Any]) -> None:
        self.rank, self.size, self._barrier, self._words = rank, len(words), barrier, words

    def all_gather(self, data: bytes) -> list[bytes]:
        self._words[self.rank] = data
        self._barrier.wait(WAIT)
        gathered = list(self._words)
        self._barrier.wait(WAIT)
        return gathered


class Served:
    """An engine with one worker per host; a test makes calls between its steps."""

    def __init__(
        self, folder: Path, tensors: dict[str, Any], models: list[Any], hosts: list[int] | None = None, **settings: Any
    ) -> None:
        barrier, words = threading.Barrier(len(models)), [None] * len(models)
        self.models, self.members, self.locals = models, [], []
        for rank, engine in enumerate(models):
            local = folder / f"host{rank if hosts is None else hosts[rank]}"
            if not local.exists():
                local.mkdir(parents=True)
                save_file(tensors, local / "model.safetensors")
            self.locals.append(local)
            given = {"local": str(local), "shards": True, "interval": 0.1, "timeout": WAIT} | settings
            self.members.append(
                Member(
                    Settings(**given),
                    engine,
                    engine=f"rank{rank}",
                    group=GroupRank(rank, barrier, words),
                    reload=engine.load_weights,
                )
            )

    def call(self, name: str, **options: Any) -> list[Any]:
        """The answer of each worker, with versions as numbers."""
        said: list[Any] = [None] * len(self.members)

        def one(rank: int) -> None:
            answer = self.members[rank].call(name, **options)
            said[rank] = {key: value.version if isinstance(value, dw.Identity) else value for key, value in answer.items()}

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(len(self.members))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * WAIT)
            assert not thread.is_alive()
        return said

    def attach(self) -> list[Any]:
        wait_until(lambda: all("ok" in said for said in self.call("attach")))
        return self.call("attach")

    def go_to(self, version: int) -> None:
        """Update until it succeeds: whole tensors may not have arrived at the first request."""
        wait_until(lambda: self.call("update", wanted=[version]) == [{"ok": version}] * len(self.members))

    def assert_serves(self, expected: list[Any]) -> None:
        for rank, (own, other) in enumerate(zip(self.models, expected, strict=True)):
            for (name, mine), theirs in zip(own.named_parameters(), other.parameters(), strict=True):
                assert torch.equal(bits(mine), bits(theirs)), (rank, name)

    def close(self) -> None:
        for member in self.members:
            member.close()


def shards_of(spec: str, tensors: dict[str, Any]) -> list[Shards]:
    """The workers of an engine of that layout."""
    return [Shards(boxes, tensors) for boxes in boxes_of(spec, tensors)]


def wait_until(said: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)
