"""Records where a model's `load_weights` copies checkpoint tensors, without writing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deltawire.engines.checkpoint import Form

log = logging.getLogger("deltawire")

# Tensors that engines derive from `kv_b_proj` after loading (multi-head latent attention) and use instead of it.
_OF_KV_B_PROJ = ("w_kc", "w_vc", "W_UK_T", "W_UV", "W_K", "W_V")


Place = tuple[int, torch.dtype]
"""Address of a storage, and dtype."""


@dataclass(frozen=True)
class Copy:
    """A copy from a tensor of the checkpoint into a storage of the model."""

    source: str
    source_offset: int
    source_strides: tuple[int, ...]
    param: int  # number of the storage
    offset: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]


class LoadFailed(Exception):
    """`load_weights` failed. `tensor` is the last tensor that it got; "": it had got all."""

    def __init__(self, tensor: str, reason: Exception) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.tensor = tensor


@dataclass
class Loads:
    """What `load_weights` would have written."""

    params: list[torch.Tensor] = field(default_factory=list)  # a tensor in each storage of the model
    names: list[list[str]] = field(default_factory=list)  # of the parameters in each storage
    copies: list[Copy] = field(default_factory=list)
    # Checkpoint tensors and parameters that are not plain copies: converted, computed, replaced.
    reloaded_tensors: set[str] = field(default_factory=set)
    reloaded_params: set[int] = field(default_factory=set)
    # At least one of them was written from an unknown tensor.
    from_anywhere: bool = False


def record_loads(model: torch.nn.Module, forms: Mapping[str, Form], drafts: Sequence[torch.nn.Module] = ()) -> Loads:
    """Run `load_weights` of the models on tensors of these forms, intercepting all writes to the models.

    `drafts` are models that draft tokens for `model`, loaded from the same checkpoint; they may share memory with it.

    Engines repack weights after loading, so a second real load would corrupt them. The loaded tensors are untouched virtual
    memory. `LoadFailed`: `load_weights` raised, for example because parameters have another shape now.
    """
    loads = Loads()
    places: dict[Place, int] = {}
    before: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
    models = [model, *drafts]
    for module_name, module in (named for each in models for named in each.named_modules()):
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.numel() == 0:
                continue
            before.append((module, name, value.data))
            place = _place(value)
            if place not in places:
                places[place] = len(loads.params)
                loads.params.append(value.detach())
                loads.names.append([])
            loads.names[places[place]].append(f"{module_name}.{name}" if module_name else name)
    sources = {name: torch.empty(form.shape, dtype=form.dtype) for name, form in forms.items()}
    origins = {tensor.untyped_storage().data_ptr(): name for name, tensor in sources.items() if tensor.numel()}
    # Small tensors are zeroed, because models may read their values (a scale, a flag).
    for tensor in sources.values():
        if tensor.numel() <= 64:
            tensor.zero_()
    recorder = _Recorder(loads, places, origins)
    try:
        with torch.no_grad(), recorder, without_threads():
            for each in models:
                each.load_weights(_named(sources, recorder))
    except Exception as error:  # the engine's own code
        raise LoadFailed(recorder.current, error) from error
    finally:
        _put_back(before, loads, places, origins)
    loads.copies = list(dict.fromkeys(loads.copies))  # shared parameters are loaded twice
    for each in models:
        _note_derived(each, loads, places)
    return loads


def _place(tensor: torch.Tensor) -> Place:
    return tensor.untyped_storage().data_ptr(), tensor.dtype


def _note_derived(model: torch.nn.Module, loads: Loads, places: dict[Place, int]) -> None:
    """Mark parameters from which the engine has derived another tensor: patching would not update that tensor."""
    for module in model.modules():
        weight = getattr(getattr(module, "kv_b_proj", None), "weight", None)
        own = _storage_of(weight)
        if own is not None and any(_storage_of(getattr(module, name, None)) not in (None, own) for name in _OF_KV_B_PROJ):
            loads.reloaded_params.update(param for (storage, _), param in places.items() if storage == own)
        # vLLM on a CPU: the closure of the head's kernel holds a packed copy of its weight.
        if getattr(vars(module).get("cpu_linear"), "__closure__", None) is not None:
            own = _storage_of(getattr(module, "weight", None))
            loads.reloaded_params.update(param for (storage, _), param in places.items() if storage == own)


def _storage_of(value: Any) -> int | None:
    there = isinstance(value, torch.Tensor) and value.device.type != "meta" and value.numel() > 0
    return value.untyped_storage().data_ptr() if there else None


@contextmanager
def without_threads() -> Iterator[None]:
    """Run tasks that this thread submits to pools in this thread: torch's dispatch modes do not apply to others."""
    own, submit = threading.get_ident(), ThreadPoolExecutor.submit

    def submit_here(self: ThreadPoolExecutor, call: Any, /, *args: Any, **options: Any) -> Future[Any]:
        if threading.get_ident() != own:
            return submit(self, call, *args, **options)
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **options))
        except BaseException as error:
            future.set_exception(error)
        return future

    ThreadPoolExecutor.submit = submit_here  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]


def _named(sources: dict[str, torch.Tensor], recorder: _Recorder) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in sources.items():
        recorder.begin(name)
        yield name, tensor
    recorder.begin("")


def _put_back(
    before: list[tuple[torch.nn.Module, str, torch.Tensor]], loads: Loads, places: dict[Place, int], origins: dict[int, str]
) -> None:
    """Restore parameters whose memory the loader has replaced, which the recorder does not see."""
    for module, name, data in before:
        now = module._parameters.get(name, module._buffers.get(name))
        if now is None or now.data_ptr() == data.data_ptr():
            continue
        loads.reloaded_params.add(places[_place(data)])
        origin = origins.get(now.untyped_storage().data_ptr()) if now.numel() else None
        if origin is None:
            loads.from_anywhere = True
        else:
            loads.reloaded_tensors.add(origin)
        now.data = data


class _Recorder(TorchDispatchMode):
    def __init__(self, loads: Loads, places: dict[Place, int], origins: dict[int, str]) -> None:
        super().__init__()
        self._loads, self._places, self._origins = loads, places, origins
        self._storages = {storage: param for (storage, _), param in places.items()}
        self.current = ""  # the tensor being loaded
        self._looked_at: torch.Tensor | None = None  # the tensor whose value was read last

    def begin(self, name: str) -> None:
        """The loader gets this tensor next; "": no more."""
        self.current, self._looked_at = name, None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = self._written(func, args, kwargs or {})
        name = func._schema.name
        if written is None:
            if name == "aten::_local_scalar_dense" and args[0].untyped_storage().data_ptr() in self._origins:
                self._looked_at = args[0]
            return func(*args, **(kwargs or {}))
        tensor, param = written
        if name in ("aten::copy_", "aten::fill_") and len(args) > 1 and isinstance(args[1], torch.Tensor):
            self._note(tensor, args[1], param)
        elif name == "aten::fill_" and self._looked_at is not None:  # `fill_(tensor.item())`, as engines load scalars
            self._note(tensor, self._looked_at, param)
        elif name not in ("aten::fill_", "aten::zero_"):  # others only fill padding
            self._note_reloaded(param, None)
        return tensor

    def _written(self, func: Any, args: Any, kwargs: Any) -> tuple[torch.Tensor, int] | None:
        """The first tensor in the model's memory that the operator writes to."""
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            if isinstance(value, torch.Tensor) and value.device.type != "meta":
                storage, _ = place = _place(value)
                if storage in self._storages and place not in self._places:  # through a view of another dtype
                    self._note_reloaded(self._storages[storage], None)
                param = self._places.get(place, self._storages.get(storage))
                if param is not None:
                    return value, param
        return None

    def _note(self, target: torch.Tensor, source: torch.Tensor, param: int) -> None:
        origin = self._origins.get(source.untyped_storage().data_ptr()) if source.numel() else None
        if target.numel() == 0:
            return
        is_plain = origin is not None and source.dtype == target.dtype and _place(target) in self._places
        if origin is None or not is_plain or source.numel() > target.numel():
            self._note_reloaded(param, origin)
            return
        if source.numel() == 1:  # a scalar may have dimensions
            source = source.reshape(())
        source = source.expand(target.shape)
        self._loads.copies.append(
            Copy(origin, source.storage_offset(), source.stride(), param, target.storage_offset(), target.stride(), target.shape)
        )

    def _note_reloaded(self, param: int, origin: str | None) -> None:
        self._loads.reloaded_params.add(param)
        tensor = origin or self.current
        if tensor:
            self._loads.reloaded_tensors.add(tensor)
        else:
            self._loads.from_anywhere = True
