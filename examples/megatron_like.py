#!/usr/bin/env python3
"""Trainers with names and layouts of their own: an iterator of Hugging Face names and arrays is all that is needed.

Megatron keeps query, key and value of an attention in one matrix, interleaved by groups of heads, gate and up projection in
another, pads the vocabulary, and gives each tensor-parallel rank a part of all that. Here every rank says which boxes of which
checkpoint tensors it holds; it publishes them itself, and nothing is gathered. Arrays are numpy's; torch tensors are sliced and
handed over in the same way.

    megatron_like.py [--ranks 2] [--short]
"""

import argparse
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np

import deltawire as dw

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    layers: int = 4
    hidden: int = 256
    ffn: int = 512
    groups: int = 4  # key and value heads
    heads_per_group: int = 2  # query heads that share them
    head_dim: int = 32
    vocabulary: int = 1000
    padded_vocabulary: int = 1024


def megatron_weights(model: Shape, ranks: int, seed: int) -> Arrays:
    """The tensors of one trainer rank, under the trainer's names."""
    random = np.random.default_rng(seed)
    qkv_rows = model.groups * (model.heads_per_group + 2) * model.head_dim
    query_rows = model.groups * model.heads_per_group * model.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.word_embeddings.weight": (model.padded_vocabulary // ranks, model.hidden),
        "decoder.final_layernorm.weight": (model.hidden,),
        "output_layer.weight": (model.padded_vocabulary // ranks, model.hidden),
    }
    for layer in range(model.layers):
        at = f"decoder.layers.{layer}"
        shapes |= {
            f"{at}.self_attention.linear_qkv.layer_norm_weight": (model.hidden,),
            f"{at}.self_attention.linear_qkv.weight": (qkv_rows // ranks, model.hidden),
            f"{at}.self_attention.linear_proj.weight": (model.hidden, query_rows // ranks),
            f"{at}.mlp.linear_fc1.layer_norm_weight": (model.hidden,),
            f"{at}.mlp.linear_fc1.weight": (2 * model.ffn // ranks, model.hidden),
            f"{at}.mlp.linear_fc2.weight": (model.hidden, model.ffn // ranks),
        }
    return {name: random.standard_normal(shape, np.float32) * np.float32(0.02) for name, shape in shapes.items()}


def hf_tensors(weights: Arrays, model: Shape, rank: int, ranks: int) -> Iterator[tuple[str, dw.Tensor]]:
    """This rank's boxes, in the checkpoint's coordinates. Replicated tensors come from the first rank."""

    def rows(array: np.ndarray, whole: int = 0, first: int = -1) -> dw.Tensor:
        whole, first = whole or ranks * len(array), rank * len(array) if first < 0 else first
        return dw.Tensor(array, shape=(whole, array.shape[1]), offset=(first, 0))

    def columns(array: np.ndarray) -> dw.Tensor:
        return dw.Tensor(array, shape=(len(array), array.shape[1] * ranks), offset=(0, rank * array.shape[1]))

    padded = model.padded_vocabulary // ranks
    first, kept = rank * padded, min(padded, model.vocabulary - rank * padded)  # rows that are no padding
    yield "model.embed_tokens.weight", rows(weights["embedding.word_embeddings.weight"][:kept], model.vocabulary, first)
    yield "lm_head.weight", rows(weights["output_layer.weight"][:kept], model.vocabulary, first)
    if rank == 0:
        yield "model.norm.weight", dw.Tensor(weights["decoder.final_layernorm.weight"])
    for layer in range(model.layers):
        ours, theirs = f"model.layers.{layer}", f"decoder.layers.{layer}"
        query, key, value = split_qkv(weights[f"{theirs}.self_attention.linear_qkv.weight"], model)
        gate, up = np.split(weights[f"{theirs}.mlp.linear_fc1.weight"], 2)
        yield f"{ours}.self_attn.q_proj.weight", rows(query)
        yield f"{ours}.self_attn.k_proj.weight", rows(key)
        yield f"{ours}.self_attn.v_proj.weight", rows(value)
        yield f"{ours}.self_attn.o_proj.weight", columns(weights[f"{theirs}.self_attention.linear_proj.weight"])
        yield f"{ours}.mlp.gate_proj.weight", rows(gate)
        yield f"{ours}.mlp.up_proj.weight", rows(up)
        yield f"{ours}.mlp.down_proj.weight", columns(weights[f"{theirs}.mlp.linear_fc2.weight"])
        if rank == 0:
            before = weights[f"{theirs}.self_attention.linear_qkv.layer_norm_weight"]
            yield f"{ours}.input_layernorm.weight", dw.Tensor(before)
            yield f"{ours}.post_attention_layernorm.weight", dw.Tensor(weights[f"{theirs}.mlp.linear_fc1.layer_norm_weight"])


def split_qkv(fused: np.ndarray, model: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query, key and value of [group: its query heads, its key head, its value head] x head_dim rows."""
    hidden, queries = fused.shape[1], model.heads_per_group
    groups = fused.reshape(-1, queries + 2, model.head_dim, hidden)
    parts = groups[:, :queries], groups[:, queries], groups[:, queries + 1]
    query, key, value = (part.reshape(-1, hidden) for part in parts)
    return query, key, value


def step(weights: Arrays, random: np.random.Generator) -> None:
    """Change a few weights, like an optimizer at a low learning rate."""
    for array in weights.values():
        flat = array.reshape(-1)
        flat[random.choice(flat.size, flat.size // 100, replace=False)] *= np.float32(1.001)


def assemble(model: Shape, shards: list[Arrays]) -> Arrays:
    """The checkpoint assembled in the slow way: the expected contents of replicas."""
    whole: Arrays = {}
    for rank, weights in enumerate(shards):
        for name, box in hf_tensors(weights, model, rank, len(shards)):
            if box.shape is None or box.offset is None:
                whole[name] = box.array
                continue
            target = whole.setdefault(name, np.zeros(box.shape, np.float32))
            place = tuple(slice(at, at + size) for at, size in zip(box.offset, box.array.shape, strict=True))
            target[place] = box.array
    return whole


@dataclass(frozen=True)
class Threads:
    """Ranks are threads here. Processes use a torch process group, or their own object with these three members."""

    rank: int
    size: int
    given: list[bytes]
    barrier: Barrier

    def all_gather(self, data: bytes) -> list[bytes]:
        """The data of every rank, by rank."""
        self.given[self.rank] = data
        self.barrier.wait()
        every = list(self.given)
        self.barrier.wait()
        return every


def main() -> None:
    """Publish from all ranks, each with its own publisher."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2, 4))
    parser.add_argument("--short", action="store_true", help="a smaller model")
    args = parser.parse_args()
    model, random = Shape(layers=2, hidden=64, ffn=128) if args.short else Shape(), np.random.default_rng(1)
    shards = [megatron_weights(model, args.ranks, seed) for seed in range(args.ranks)]
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(args.ranks) as pool:
        store = f"{work}/run"
        given, barrier = [b""] * args.ranks, Barrier(args.ranks)
        groups = [Threads(rank, args.ranks, given, barrier) for rank in range(args.ranks)]
        publishers = [dw.Publisher(store, group=group) for group in groups]

        def publish(rank: int) -> dw.reports.PublishReport:
            return publishers[rank].publish(hf_tensors(shards[rank], model, rank, args.ranks))

        for _ in range(5):
            version, *_ = pool.map(publish, range(args.ranks))
            print(version)
            for shard in shards:
                step(shard, random)
        list(pool.map(publish, range(args.ranks)))

        wanted = assemble(model, shards)
        held = {name: np.empty_like(array) for name, array in wanted.items()}
        print(dw.TensorReplica(store, held).pull())
        assert all(np.array_equal(held[name].view(np.int32), wanted[name].view(np.int32)) for name in wanted)
        print(f"{len(wanted)} tensors, {args.ranks} ranks: as the trainer has them, bit for bit")


if __name__ == "__main__":
    main()
