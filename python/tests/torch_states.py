"""Shared by tests of torch models."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from states import ARRAY_DTYPES

import deltawire as dw


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def state_bits(state: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> dict[str, bytes]:
    return {name: bits(tensor) for name, tensor in dict(state).items()}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype for a safetensors name; torch uses numpy's names."""
    found: torch.dtype = getattr(torch, np.dtype(ARRAY_DTYPES[name]).name)
    return found


def published(store: Any, version: int | None = None) -> dict[str, torch.Tensor]:
    """A version of a chain, read by a replica."""
    chain = dw.Chain(store)
    specs = chain.tensors(chain.head if version is None else version)
    mine = {spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in specs}
    with dw.TensorReplica(store, mine, heartbeat=False) as replica:
        replica.pull(version)
    return mine


def tokenizer() -> Any:
    """Of words `w3` to `w63`."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{number}": number for number in range(3, 64)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
