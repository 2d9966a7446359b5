"""What can be reached from a model: its modules, the plain objects that they work with, and tensors in both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

_DEPTH = 3  # of objects in objects: method, scheme, kernel


def objects_of(models: Iterable[torch.nn.Module]) -> Iterator[tuple[str, Any]]:
    """Modules, and objects of the engine's own classes that they have (a quantising method, an attention backend), each once."""
    seen: set[int] = set()
    for model in models:
        for name, module in model.named_modules():
            package = type(module).__module__.partition(".")[0]  # of an engine, or of somebody's own model
            for found in ((name, module), *_helpers(name, module, _DEPTH, package)):
                if id(found[1]) not in seen:
                    seen.add(id(found[1]))
                    yield found


def _helpers(name: str, owner: Any, depth: int, package: str) -> Iterator[tuple[str, Any]]:
    """Configurations lead to the whole engine, and hold no weights."""
    if depth == 0:
        return
    for key, held in list(vars(owner).items()):
        for value in held if type(held) in (list, tuple) else (held,):
            kind = type(value)
            if kind.__module__.partition(".")[0] != package or kind.__name__.endswith("Config") or not hasattr(value, "__dict__"):
                continue
            if not isinstance(value, type | torch.nn.Module | torch.Tensor):
                path = f"{name}.{key}" if name else key
                yield path, value
                yield from _helpers(path, value, depth - 1, package)


def found_in(values: Iterable[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """The containers that can be changed and the tensors among these, and in containers of any depth."""
    containers: list[Any] = []
    tensors: list[torch.Tensor] = []
    left, seen = list(values), set[int]()
    while left:
        value = left.pop()
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif type(value) in (dict, OrderedDict, set, list, tuple) and id(value) not in seen:
            seen.add(id(value))  # they may be in each other
            if type(value) is not tuple:
                containers.append(value)
            left += value.values() if isinstance(value, dict) else value
    return containers, tensors


def has_memory(tensor: torch.Tensor) -> bool:
    """Of its own, that is there."""
    return bool(tensor.device.type != "meta" and tensor.layout == torch.strided and tensor.untyped_storage().nbytes())


def address(tensor: torch.Tensor) -> int:
    """Of its memory."""
    return int(tensor.untyped_storage().data_ptr())
