"""What the tests of torch models share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

import deltawire as dw


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def state_bits(state: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> dict[str, bytes]:
    return {name: bits(tensor) for name, tensor in dict(state).items()}


def published(store: Any, version: int | None = None) -> dict[str, torch.Tensor]:
    """A version of a chain, as a replica has it."""
    chain = dw.Chain(store)
    specs = chain.tensors(chain.head if version is None else version)
    kinds = {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I64": torch.int64,
        "I32": torch.int32,
        "I8": torch.int8,
        "U8": torch.uint8,
        "F8_E4M3": torch.float8_e4m3fn,
    }
    mine = {spec.name: torch.zeros(spec.shape, dtype=kinds[spec.dtype]) for spec in specs}
    with dw.TensorReplica(store, mine, heartbeat=False) as replica:
        replica.pull(version)
    return mine
