"""Tied weights: one tensor under several names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch


def without_ties(pairs: Iterable[tuple[str, Any]], discard: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """Each tensor once: of the names for the same memory the first in alphabetical order stays, as in safetensors' `save_model`.

    Names that match one of `discard` (a Hugging Face model's `_tied_weights_keys`, as `save_pretrained` does) stay only where
    no other is left. Tensors that share memory without being the same are left alone.

    >>> import torch
    >>> weight = torch.zeros(3)
    >>> [name for name, _ in without_ties({"head": weight, "embed": weight, "part": weight[:2]}.items())]
    ['embed', 'part']
    >>> [name for name, _ in without_ties({"head": weight, "embed": weight}.items(), discard=["embed"])]
    ['head']
    """
    pairs = list(pairs)
    names: dict[Any, list[str]] = {}
    for name, value in pairs:
        names.setdefault(_identity(value), []).append(name)
    patterns = [re.compile(pattern) for pattern in discard]

    def last_choice(name: str) -> tuple[bool, str]:
        return any(pattern.search(name) for pattern in patterns), name

    kept = {min(group, key=last_choice) for group in names.values()}
    return [(name, value) for name, value in pairs if name in kept]


def _identity(value: Any) -> Any:
    """The same for two values if, and only if, they are the same elements of the same memory."""
    if not isinstance(value, torch.Tensor):
        return object()
    local: Any = getattr(value, "_local_tensor", value)
    if local.layout != torch.strided or local.numel() == 0 or local.is_meta:
        return id(value)
    # Shape and strides of both: a shard is its tensor's, whatever its own memory.
    return (local.data_ptr(), local.dtype, local.shape, local.stride(), value.shape, local.is_conj(), local.is_neg())
