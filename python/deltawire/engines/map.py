"""Maps checkpoint tensors to the memory of an engine's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from deltawire.engines.atomic import atomic_group
from deltawire.engines.checkpoint import Form, LocalCheckpoint
from deltawire.engines.loads import Copy, Loads

_MAX_BOXES = 4096  # per window


@dataclass(frozen=True)
class Window:
    """Maps element `first + i * strides[0] + ...` of a tensor to `array_first + i * array_strides[0] + ...` of an array."""

    extent: tuple[int, ...]
    first: int
    strides: tuple[int, ...]
    array: int
    array_first: int
    array_strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.extent)

    def of_array(self, array: torch.Tensor) -> torch.Tensor:
        """The view of a flat array."""
        return torch.as_strided(array, self.extent, self.array_strides, self.array_first)

    def of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of a contiguous checkpoint tensor."""
        return torch.as_strided(tensor, self.extent, self.strides, self.first)

    def offset_of(self, position: int) -> int | None:
        """The array index of an element of the tensor; None: not in the window."""
        rest, at = position - self.first, self.array_first
        for extent, stride, array_stride in zip(self.extent, self.strides, self.array_strides, strict=True):
            if rest < 0 or rest // stride >= extent:
                return None
            at, rest = at + rest // stride * array_stride, rest % stride
        return at if rest == 0 else None


def window_of(copy: Copy) -> Window | None:
    """A copy as a window; None if it reorders or repeats elements of the tensor."""
    dims = [dim for dim in zip(copy.shape, copy.source_strides, copy.strides, strict=True) if dim[0] > 1]
    dims.sort(key=lambda dim: -dim[1])
    inner = 1
    for extent, stride, _ in reversed(dims):
        if stride < inner:
            return None
        inner += stride * (extent - 1)
    extents, strides, array_strides = (tuple(dim[k] for dim in dims) for k in range(3))
    return Window(extents, copy.source_offset, strides, copy.param, copy.offset, array_strides)


@dataclass(frozen=True)
class BoxView:
    """A box of a tensor, and its place in an array."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]
    array: int
    array_first: int
    array_strides: tuple[int, ...]

    def of_array(self, array: torch.Tensor) -> torch.Tensor:
        """The view of a flat array, in the order of the tensor."""
        return torch.as_strided(array, self.extent, self.array_strides, self.array_first)


def boxes_of(window: Window, shape: tuple[int, ...]) -> list[BoxView] | None:
    """A window as boxes of a tensor of that shape, usually one; None: too many."""
    boxes: list[BoxView] = []
    for box in _boxes_of(window, shape):
        if box is None or len(boxes) == _MAX_BOXES:
            return None
        boxes.append(box)
    return boxes


def _boxes_of(window: Window, shape: tuple[int, ...]) -> Iterator[BoxView | None]:
    box = _box_of(window, shape)
    if box is not None or not window.extent:
        yield box
        return
    for i in range(window.extent[0]):
        yield from _boxes_of(
            Window(
                window.extent[1:],
                window.first + i * window.strides[0],
                window.strides[1:],
                window.array,
                window.array_first + i * window.array_strides[0],
                window.array_strides[1:],
            ),
            shape,
        )


def _box_of(window: Window, shape: tuple[int, ...]) -> BoxView | None:
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    last = window.first + sum((n - 1) * stride for n, stride in zip(window.extent, window.strides, strict=True))
    low, high = ([at // stride % n for stride, n in zip(strides, shape, strict=True)] for at in (window.first, last))
    extent = [b - a + 1 for a, b in zip(low, high, strict=True)]
    if any(n < 1 for n in extent) or prod(extent) != window.size:
        return None
    array_strides = []
    for n, stride in zip(extent, strides, strict=True):
        beside = window.offset_of(window.first + stride) if n > 1 else window.array_first
        if beside is None:
            return None
        array_strides.append(beside - window.array_first)
    end = window.array_first + sum((n - 1) * stride for n, stride in zip(extent, array_strides, strict=True))
    if window.offset_of(last) != end:
        return None
    return BoxView(tuple(low), tuple(extent), window.array, window.array_first, tuple(array_strides))


_MAX_ELEMENTS = 1 << 32  # of an array: offsets have 32 bits
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Lists = list[tuple[torch.Tensor, Any, Any]]
"""Arrays, offsets and values, for `deltawire.live.Exchange`."""

HeldBox = tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]
"""Offset, extent, address, and strides in bytes of all dimensions but the last."""

HeldTensor = tuple[str, str, tuple[int, ...], bool, list[HeldBox]]
"""Name, dtype, shape, whether it is on a GPU, boxes."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A view as integers, for bitwise comparison."""
    return tensor.view(_BITS[tensor.element_size()])


class EngineMap:
    """Maps tensors to elements of arrays, and lists tensors that only the engine's loader can write."""

    def __init__(self, loads: Loads, forms: Mapping[str, Form], lost: Iterable[str] = ()) -> None:
        """`lost`: tensors whose place in the engine is unknown."""
        self.forms = forms
        self.names = loads.names
        self.arrays = [_flat(param) for param in loads.params]
        self.windows: dict[str, list[Window]] = {}
        too_large = {param for param, array in enumerate(self.arrays) if array.numel() > _MAX_ELEMENTS}
        reloaded = set(loads.reloaded_params) | too_large
        for copy in loads.copies:
            window = window_of(copy)
            if window is None:
                reloaded.add(copy.param)
            else:
                self.windows.setdefault(copy.source, []).append(window)
        self._params: dict[str, set[int]] = {}  # by tensor, with or without a window
        for copy in loads.copies:
            self._params.setdefault(copy.source, set()).add(copy.param)
        # Tensors that only the engine's own loader can write.
        self.reloaded: set[str] = set()
        # All tensors of groups in which some have no known parameter: lost, or converted.
        self._of_group: dict[str, set[str]] = {
            atomic_group(name): set() for name in {*lost, *loads.reloaded_tensors} - set(self._params)
        }
        for name in forms:
            if (group := atomic_group(name)) in self._of_group:
                self._of_group[group].add(name)
        self.set_reloaded(reloaded, [*loads.reloaded_tensors, *lost])
        if loads.from_anywhere:
            self.reloaded |= set(self.unseen)

    def set_reloaded(self, params: Iterable[int], tensors: Iterable[str] = ()) -> None:
        """Let the engine's loader write these tensors and arrays, with their modules."""
        self.reloaded |= self.complete(tensors, params)

    def complete(self, tensors: Iterable[str], params: Iterable[int] = ()) -> set[str]:
        """These tensors, those in these arrays, and all others of the same modules or atomic groups.

        An engine rebuilds complete modules: weights that it does not get would be uninitialized memory.
        """
        modules = {_module(name) for param in params for name in self.names[param]}
        tensors = set(tensors)
        while True:
            modules |= {
                _module(name) for tensor in tensors for param in self._params.get(tensor, ()) for name in self.names[param]
            }
            more = {
                tensor
                for tensor, homes_of in self._params.items()
                if any(_module(name) in modules for param in homes_of for name in self.names[param])
            }
            more |= {other for tensor in tensors for other in self._of_group.get(atomic_group(tensor), ())}
            if more <= tensors:
                break
            tensors |= more
        return tensors

    @property
    def plain(self) -> list[str]:
        """Tensors with parts on this worker that are plain copies."""
        return [name for name in self.windows if name not in self.reloaded]

    @property
    def reloaded_modules(self) -> set[str]:
        """Modules that the engine's loader rebuilds."""
        return {_module(name) for tensor in self.reloaded for param in self._params.get(tensor, ()) for name in self.names[param]}

    @property
    def unseen(self) -> list[str]:
        """Tensors that this worker does not load, such as layers of other workers or a tied head."""
        return [name for name in self.forms if name not in self.windows and name not in self.reloaded]

    def moved(self, models: Iterable[torch.nn.Module]) -> set[int]:
        """Arrays of plain tensors that the models no longer use."""
        live = {
            tensor.untyped_storage().data_ptr()
            for model in models
            for tensor in [*model.parameters(), *model.buffers()]
            if tensor.device.type != "meta"
        }
        used = {window.array for name in self.plain for window in self.windows[name]}
        return {array for array in used if self.arrays[array].untyped_storage().data_ptr() not in live}

    def boxes(self, name: str) -> list[BoxView] | None:
        """The parts of a tensor on this worker, as boxes; None: too many."""
        found: list[BoxView] = []
        for window in self.windows[name]:
            boxes = boxes_of(window, self.forms[name].shape)
            if boxes is None:
                return None
            found += boxes
        return found

    def differing(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> list[str]:
        """The tensors that differ from the checkpoint, compared bitwise."""
        return [name for name in names if not self._is_equal(name, checkpoint.read(name))]

    def _is_equal(self, name: str, tensor: torch.Tensor) -> bool:
        for window in self.windows[name]:
            live = window.of_array(self.arrays[window.array])
            if live.dtype != tensor.dtype or not torch.equal(bits(live), bits(window.of_tensor(tensor).to(live.device))):
                return False
        return True

    def held(self) -> tuple[list[HeldTensor], set[str]]:
        """Plain tensors for `_core.DeltaStager`, and names of those with non-contiguous rows."""
        found: list[HeldTensor] = []
        others: set[str] = set()
        taken: set[tuple[Any, ...]] = set()
        for name in reversed(self.plain):  # if tensors share memory, the last one was loaded
            boxes = self.boxes(name)
            if boxes is None or any(box.extent and box.extent[-1] > 1 and box.array_strides[-1] != 1 for box in boxes):
                others.add(name)
                continue
            groups: list[list[BoxView]] = []  # elements that occur twice (in a draft model) become two tensors
            for box in boxes:
                if (box.array, box.array_first, box.extent, box.array_strides) in taken:
                    continue
                taken.add((box.array, box.array_first, box.extent, box.array_strides))
                fitting = (group for group in groups if not any(_overlap(box, other) for other in group))
                group = next(fitting, None)
                if group is None:
                    groups.append(group := [])
                group.append(box)
            form = self.forms[name]
            for group in groups:
                places = [place_of(box.offset, box.of_array(self.arrays[box.array])) for box in group]
                found.append((name, form.dtype_name, form.shape, self.arrays[group[0].array].is_cuda, places))
        return found, others

    def from_checkpoint(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> Lists:
        """Elements that differ from the checkpoint, if deltas cannot be used."""
        found: dict[int, list[tuple[Any, Any]]] = {}
        for name in names:
            tensor = checkpoint.read(name)
            for window in self.windows[name]:
                offsets, values = differences(window, self.arrays[window.array], tensor)
                if len(offsets):
                    found.setdefault(window.array, []).append((offsets, values))
        return [(bits(self.arrays[array]), *ordered(pairs)) for array, pairs in sorted(found.items())]

    def copy_in(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> None:
        """Copy tensors from the checkpoint."""
        for name in names:
            tensor = checkpoint.read(name)
            for window in self.windows[name]:
                live = window.of_array(self.arrays[window.array])
                bits(live).copy_(bits(window.of_tensor(tensor)))

    def views(self, name: str) -> Iterator[tuple[BoxView, torch.Tensor]]:
        """The boxes of a tensor on this worker, with views of their contents."""
        for box in self.boxes(name) or ():
            yield box, box.of_array(self.arrays[box.array])


def place_of(offset: tuple[int, ...], array: torch.Tensor) -> HeldBox:
    """An array at `offset` of a tensor, as `_core.DeltaStager` takes it."""
    strides = tuple(array.element_size() * stride for stride in array.stride()[:-1])
    return offset, tuple(array.shape), array.data_ptr(), strides


def _overlap(one: BoxView, other: BoxView) -> bool:
    pairs = zip(one.offset, one.extent, other.offset, other.extent, strict=True)
    return all(a < b + m and b < a + n for a, n, b, m in pairs)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _flat(param: torch.Tensor) -> torch.Tensor:
    storage = param.untyped_storage()
    return torch.as_strided(param, (storage.nbytes() // param.element_size(),), (1,), 0)


def differences(window: Window, array: torch.Tensor, tensor: torch.Tensor) -> tuple[Any, Any]:
    """Array offsets and tensor values of different elements."""
    live = bits(window.of_array(array))
    wanted = bits(window.of_tensor(tensor)).to(live.device)
    if not window.extent:  # a scalar
        offsets = np.array([] if bool(live == wanted) else [window.array_first], np.uint32)
        return offsets, wanted.reshape(1)[: len(offsets)].cpu().numpy()
    where = torch.nonzero(live != wanted, as_tuple=True)
    offsets = torch.full_like(where[0], window.array_first)
    for index, stride in zip(where, window.array_strides, strict=True):
        offsets += index * stride
    return offsets.cpu().numpy().astype(np.uint32), wanted[where].cpu().numpy()


def ordered(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Offsets and values of an array, sorted, without duplicates."""
    offsets = np.concatenate([offsets for offsets, _ in pairs])
    values = np.concatenate([values for _, values in pairs])
    offsets, first = np.unique(offsets, return_index=True)
    return offsets, values[first]
