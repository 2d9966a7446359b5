"""Restores models if an engine's own loader fails."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_DEPTH = 3  # of nested objects: method, scheme, kernel


def objects_of(models: Iterable[torch.nn.Module]) -> Iterator[tuple[str, Any]]:
    """Modules and their helper objects of the engine's own classes (quantization methods, attention backends), each once."""
    seen: set[int] = set()
    for model in models:
        for name, module in model.named_modules():
            package = type(module).__module__.partition(".")[0]  # of the engine, or of a custom model
            for found in ((name, module), *_helpers(name, module, _DEPTH, package)):
                if id(found[1]) not in seen:
                    seen.add(id(found[1]))
                    yield found


def _helpers(name: str, owner: Any, depth: int, package: str) -> Iterator[tuple[str, Any]]:
    """Helper objects of an owner. Skips configurations, which refer to the whole engine."""
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
    """Mutable containers and tensors among the values, nested at any depth."""
    containers: list[Any] = []
    tensors: list[torch.Tensor] = []
    left, seen = list(values), set[int]()
    while left:
        value = left.pop()
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif type(value) in (dict, OrderedDict, set, list, tuple) and id(value) not in seen:
            seen.add(id(value))  # containers may be cyclic
            if type(value) is not tuple:
                containers.append(value)
            left += value.values() if isinstance(value, dict) else value
    return containers, tensors


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor has allocated memory."""
    return bool(tensor.device.type != "meta" and tensor.layout == torch.strided and tensor.untyped_storage().nbytes())


def address(tensor: torch.Tensor) -> int:
    """Address of the tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


class Undo(TorchDispatchMode):
    """Records changes to models inside a `with` block; `put_back()` restores them, in the same memory.

    A loader writes to live memory, moves, replaces and deletes parameters, and recreates kernel objects. Memory is copied just
    before the first write to it: on the GPU up to `device_bytes`, then in host memory.
    """

    def __init__(self, models: Iterable[torch.nn.Module], device_bytes: int | None = None) -> None:
        super().__init__()
        self._left = device_bytes
        self._states = [_State(each) for _, each in objects_of(models)]
        # Kept alive, so that the memory is not reused.
        tensors = [tensor for state in self._states for tensor in state.tensors if has_memory(tensor)]
        self._live = {address(tensor): tensor.untyped_storage() for tensor in tensors}
        self._copies: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[number] if number < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(tensor, torch.Tensor) and has_memory(tensor):
                        self._keep(address(tensor))
        return func(*args, **kwargs)

    def _keep(self, place: int) -> None:
        storage = self._live.get(place)
        if storage is None or place in self._copies:
            return
        memory = _bytes_of(storage)
        if self._left is None:
            self._left = _free_bytes(memory.device)
        stays = memory.device.type == "cpu" or memory.numel() <= self._left
        if stays and memory.device.type != "cpu":
            self._left -= memory.numel()
        self._copies[place] = memory.clone() if stays else memory.to("cpu")

    def put_back(self) -> None:
        """Restore everything. May be called twice."""
        with torch.no_grad():
            for state in self._states:
                state.put_back()
            for place, copy in self._copies.items():
                storage = self._live[place]
                if storage.nbytes() != copy.numel():  # the loader has resized it
                    storage.resize_(copy.numel())
                _bytes_of(storage).copy_(copy)


class _State:
    """Saved attributes of an object, contents of its containers, and memory of its tensors."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._values = dict(vars(owner))
        containers, self.tensors = found_in(self._values.values())
        self._contents = [(container, container.copy()) for container in containers]
        self._data = [(tensor, tensor.data, dict(vars(tensor))) for tensor in self.tensors]

    def put_back(self) -> None:
        values = vars(self._owner)
        values.clear()
        values.update(self._values)
        for container, contents in self._contents:  # such as `_parameters` and `_buffers`
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(contents)
        for tensor, data, attributes in self._data:
            if _form(tensor) != _form(data):
                tensor.data = data
            vars(tensor).clear()
            vars(tensor).update(attributes)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _free_bytes(device: torch.device) -> int:
    """Half of the free memory, as for a staged version."""
    return int(torch.cuda.mem_get_info(device)[0]) // 2 if device.type == "cuda" else 0
