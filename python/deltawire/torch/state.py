"""Names and tensors of a module, a state dict or pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from deltawire._internal.reader import Choice
from deltawire._internal.tensors import Source, named_tensors
from deltawire.errors import InvalidArgument, Unsupported


def without_ties(pairs: Iterable[tuple[str, Any]], discard: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """Each tensor once: of several names for the same tensor, keep the alphabetically first, like safetensors' `save_model`.

    Names that match one of `discard` (a Hugging Face model's `_tied_weights_keys`) are kept only if there is no other. Different
    tensors that share memory are all kept.

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
    """Equal for two values only if they are the same elements of the same memory."""
    if not isinstance(value, torch.Tensor):
        return object()
    local: Any = getattr(value, "_local_tensor", value)
    if local.layout != torch.strided or local.numel() == 0 or local.is_meta:
        return id(value)
    # The global shape too: shards of different tensors may share memory.
    return (local.data_ptr(), local.dtype, local.shape, local.stride(), value.shape, local.is_conj(), local.is_neg())


Pairs = list[tuple[str, Any]]


def chosen_tensors(source: Source | torch.nn.Module, choice: Choice) -> Pairs:
    """The selected tensors of a model, under their names in the chain.

    Of a module, parameters and persistent buffers, like `state_dict()`. Tied tensors of modules and dicts come once (see
    `without_ties`); pairs are not changed.
    """
    if callable(source) and not isinstance(source, torch.nn.Module):
        source = source()
    if isinstance(source, torch.nn.Module):
        module = unwrapped(source)
        pairs = _chosen(_module_state(module), choice)
        _refuse_extra_state(pairs)
        pairs = without_ties(pairs, getattr(module, "_tied_weights_keys", None) or ())
    else:
        if choice.select.trainable_only:
            raise InvalidArgument("trainable_only: needs a module; state dicts and pairs do not say what is trainable")
        pairs = _chosen(named_tensors(source), choice)
        if isinstance(source, Mapping):
            pairs = without_ties(pairs)
    _refuse_meta(pairs)
    return list(choice.renamed(pairs))


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The model without the wrappers of `torch.compile` and `DistributedDataParallel`."""
    while True:
        inner = module._modules.get("_orig_mod")
        if inner is None and isinstance(module, torch.nn.parallel.DistributedDataParallel):
            inner = module.module
        if inner is None:
            return module
        module = inner


def _module_state(module: torch.nn.Module) -> Iterable[tuple[str, Any]]:
    if any(type(part).__name__ == "FullyShardedDataParallel" for part in module.modules()):
        raise Unsupported("FullyShardedDataParallel would gather all weights; shard with torch.distributed.fsdp.fully_shard")
    for name, value in module.state_dict(keep_vars=True).items():
        yield name.replace("_orig_mod.", ""), value  # layers that were compiled separately


def _chosen(pairs: Iterable[tuple[str, Any]], choice: Choice) -> Pairs:
    chosen = []
    for name, value in pairs:
        if not choice.has(name) or (choice.select.trainable_only and not getattr(value, "requires_grad", False)):
            continue
        if isinstance(value, torch.Tensor) and value.is_nested:
            raise Unsupported(f'tensor "{name}": is nested, not strided')
        chosen.append((name, value))
    if not chosen:
        raise InvalidArgument("no tensors to publish: the model has none, or `select` excludes all")
    return chosen


def _refuse_extra_state(pairs: Pairs) -> None:
    for name, value in pairs:
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(f'"{name}" is a {type(value).__name__}, not a tensor; exclude it with dw.Select(exclude=...)')


def _refuse_meta(pairs: Pairs) -> None:
    names = [name for name, value in pairs if isinstance(value, torch.Tensor) and value.is_meta]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        shown = ", ".join(f'"{name}"' for name in names[:3])
        raise Unsupported(f'tensor "{names[0]}": is on meta, which has no data: {shown}{more}')
