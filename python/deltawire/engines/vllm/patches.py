"""vLLM's patches of weights, from two states or a version of a chain, and back: `CheckpointWeightPatch`, `SparseWeightPatch`.

    patches = checkpoint_patches(old, new)
    load_checkpoint_weight_patches(model, patches)          # vllm.model_executor.model_loader.checkpoint_weight_patch

Their receivers mark unchanged elements by NaN. So a sparse patch cannot hold elements that become NaN, or tensors that are not
floating point: they are refused by name before anything is written. `dense=True` is the way out (whole tensors), or the weight
transfer backend "deltawire", which writes any bits. vLLM is imported where one of its classes is needed, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from deltawire._internal.chain import Chain
from deltawire._internal.replica import TensorReplica
from deltawire._internal.stores import StoreLike
from deltawire.engines.checkpoint import DTYPE_NAMES
from deltawire.errors import BaseMismatch, InvalidArgument, Unsupported

State = Mapping[str, torch.Tensor]

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MAX_POSITION = 2**31 - 1
_WAY_OUT = 'say dense=True for whole tensors, or use vLLM\'s weight transfer backend "deltawire"'


class Patch(NamedTuple):
    """The fields of vLLM's `CheckpointWeightPatch`, in its order."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: torch.Tensor
    """Of the elements at `indices`, or of all."""
    indices: torch.Tensor | None = None
    """int32, ascending, of the flat tensor; None: all."""


def checkpoint_patches(old: State, new: State, *, dense: bool = False) -> list[Any]:
    """What leads from one state to the other, as vLLM's `CheckpointWeightPatch`, one for each tensor that changed.

    States are names and tensors of a checkpoint. Elements are compared as bits. With `dense`, each patch is the whole tensor;
    a call of vLLM's loader takes patches of one kind. `Unsupported` names a tensor that patches cannot express: one that came,
    went or changed its form, one with positions over int32, and, unless `dense`, NaN or integers.
    """
    from vllm.model_executor.model_loader.checkpoint_weight_patch import CheckpointWeightPatch

    return [CheckpointWeightPatch(*patch) for patch in patches_between(old, new, dense=dense)]


def sparse_patches(old: State, new: State) -> list[Any]:
    """The same, as `SparseWeightPatch` of vLLM's backend `sparse_nccl`."""
    from vllm.distributed.weight_transfer.sparse_nccl_engine import SparseWeightPatch

    return [
        SparseWeightPatch(name=patch.name, indices=patch.indices, values=patch.values, full_shape=patch.shape)
        for patch in patches_between(old, new)
    ]


def patches_between(old: State, new: State, *, dense: bool = False) -> list[Patch]:
    """As `checkpoint_patches`, without vLLM: its loader takes them too."""
    for name in sorted(old.keys() ^ new.keys()):
        raise Unsupported(f'tensor "{name}": is in one state alone, and patches change what is there: load the new state whole')
    for name, tensor in new.items():
        _check_form(name, old[name], tensor)
    patches = (_patch(name, old[name], new[name], dense) for name in sorted(new))
    return [patch for patch in patches if patch is not None]


def patches_of(store: StoreLike, version: int, *, dense: bool = False) -> list[Patch]:
    """What version `version` of a chain changed in the one before it. Holds the model twice, in the host's memory."""
    if version < 1:
        raise InvalidArgument(f"version {version}: changes nothing, it is the first")
    chain = Chain(store)
    states = []
    for number in (version - 1, version):
        states.append({spec.name: _empty(spec.name, spec.dtype, spec.shape) for spec in chain.tensors(number)})
        with TensorReplica(store, states[-1], heartbeat=False) as replica:
            replica.pull(number)
    return patches_between(*states, dense=dense)


def apply_patches_(state: Mapping[str, torch.Tensor], patches: Iterable[Any]) -> None:
    """Write patches of any kind here to contiguous tensors, in their order, bit by bit. All are checked before any is written.

    They say nothing of what they were made from: that is the caller's to know.
    """
    checked = [_checked(state, patch) for patch in patches]
    for flat, indices, values in checked:
        if indices is None:
            flat.copy_(values)
        else:
            flat[indices] = values


# ---- one tensor


def _check_form(name: str, old: torch.Tensor, new: torch.Tensor) -> None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        forms = f"{_form(old)} before, {_form(new)} now"
        raise Unsupported(f'tensor "{name}": {forms}: patches change elements alone: load the new state whole')
    if new.element_size() not in _INTEGERS:
        raise Unsupported(f'tensor "{name}": {_form(new)}: elements of {new.element_size()} bytes: load the new state whole')
    if new.numel() - 1 > _MAX_POSITION:
        raise Unsupported(
            f'tensor "{name}": {new.numel():,} elements, and int32 positions end at {_MAX_POSITION:,}: use vLLM\'s weight '
            'transfer backend "deltawire"'
        )


def _patch(name: str, old: torch.Tensor, new: torch.Tensor, dense: bool) -> Patch | None:
    before, now = _bits(old), _bits(new)
    indices = torch.nonzero(before != now).flatten()
    if not indices.numel():
        return None
    shape, flat = tuple(new.shape), new.detach().reshape(-1)
    if dense:
        return Patch(name, shape, new.dtype, flat.clone())
    if not new.dtype.is_floating_point:
        raise Unsupported(f'tensor "{name}": {_form(new)}: NaN marks what is unchanged, and it has none: {_WAY_OUT}')
    values = now[indices].view(new.dtype)
    is_nan = torch.isnan(values.to(torch.float64))
    if is_nan.any():
        at = int(indices[int(torch.nonzero(is_nan)[0])])
        raise Unsupported(f'tensor "{name}": element {at:,} becomes NaN, which marks what is unchanged: {_WAY_OUT}')
    return Patch(name, shape, new.dtype, values, indices.to(torch.int32))


def _checked(state: Mapping[str, torch.Tensor], patch: Any) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """The flat tensor, positions and values, as integers."""
    name, shape = patch.name, tuple(patch.full_shape if hasattr(patch, "full_shape") else patch.shape)
    tensor = state.get(name)
    if tensor is None:
        raise BaseMismatch(f'tensor "{name}": there is a patch for it, and no such tensor')
    dtype = getattr(patch, "dtype", patch.values.dtype)
    if shape != tuple(tensor.shape) or dtype != tensor.dtype or patch.values.dtype != tensor.dtype:
        raise BaseMismatch(f'tensor "{name}": {_form(tensor)}; its patch is of {patch.values.dtype} {list(shape)}')
    if not tensor.is_contiguous():
        raise InvalidArgument(f'tensor "{name}": it is not contiguous; give a contiguous tensor')
    indices, values, size = patch.indices, _bits(patch.values), tensor.numel()
    if indices is not None:
        if indices.dtype not in _INTEGERS.values():
            raise InvalidArgument(f'tensor "{name}": positions of its patch are {indices.dtype}, and must be whole numbers')
        indices = indices.to(torch.int64)
        if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= size):
            raise InvalidArgument(f'tensor "{name}": a position of its patch is not among its {size:,} elements')
        if indices.unique().numel() != indices.numel():
            raise InvalidArgument(f'tensor "{name}": its patch has a position twice')
    if values.numel() != (size if indices is None else indices.numel()):
        raise InvalidArgument(f'tensor "{name}": its patch has {values.numel():,} values, and other positions')
    return _bits(tensor), indices, values


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Flat, as integers of the same size: a view where elements are in a row."""
    return tensor.detach().reshape(-1).view(_INTEGERS[tensor.element_size()])


def _empty(name: str, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    if dtype not in _DTYPES:
        raise Unsupported(f'tensor "{name}": torch has no dtype {dtype}')
    return torch.empty(shape, dtype=_DTYPES[dtype])


def _form(tensor: torch.Tensor) -> str:
    return f"{DTYPE_NAMES.get(tensor.dtype, tensor.dtype)} {list(tensor.shape)}"
