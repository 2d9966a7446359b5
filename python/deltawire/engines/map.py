"""The map of a worker: from tensors of the checkpoint to the memory of the engine's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from deltawire import _core
from deltawire.engines.atomic import atomic_group
from deltawire.engines.checkpoint import Form, LocalCheckpoint
from deltawire.engines.loads import Loads
from deltawire.engines.windows import BoxView, Window, boxes_of, window_of
from deltawire.identity import Identity

_MAX_ELEMENTS = 1 << 32  # of an array: offsets have 32 bits
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Lists = list[tuple[torch.Tensor, Any, Any]]
"""Arrays, offsets and values, as `deltawire.Exchange` takes them."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers: NaN equals itself there, and +0 does not equal -0."""
    return tensor.view(_BITS[tensor.element_size()])


class EngineMap:
    """Which elements of which array each tensor is, and which tensors the engine alone can load."""

    def __init__(self, loads: Loads, forms: Mapping[str, Form], lost: Iterable[str] = ()) -> None:
        """`lost` are tensors of which nobody knows where the engine keeps them."""
        self.forms = forms
        self.names = loads.names
        self.arrays = [_flat(home) for home in loads.homes]
        self.windows: dict[str, list[Window]] = {}
        too_large = {home for home, array in enumerate(self.arrays) if array.numel() > _MAX_ELEMENTS}
        odd = set(loads.odd_homes) | too_large
        for copy in loads.copies:
            window = window_of(copy)
            if window is None:
                odd.add(copy.home)
            else:
                self.windows.setdefault(copy.source, []).append(window)
        self._homes: dict[str, set[int]] = {}  # of each tensor, window or not
        for copy in loads.copies:
            self._homes.setdefault(copy.source, set()).add(copy.home)
        # Tensors that go through the engine's own loader.
        self.odd: set[str] = set()
        # All tensors of groups in which some have no home: they are lost, or converted on the way.
        self._of_group: dict[str, set[str]] = {
            atomic_group(name): set() for name in {*lost, *loads.odd_tensors} - set(self._homes)
        }
        for name in forms:
            if (group := atomic_group(name)) in self._of_group:
                self._of_group[group].add(name)
        self.set_odd(odd, [*loads.odd_tensors, *lost])
        if loads.from_anywhere:
            self.odd |= set(self.unseen)

    def set_odd(self, homes: Iterable[int], tensors: Iterable[str] = ()) -> None:
        """What is in these arrays is not a plain copy: their modules go through the engine's own loader."""
        self.odd |= self.complete(tensors, homes)

    def complete(self, tensors: Iterable[str], homes: Iterable[int] = ()) -> set[str]:
        """These tensors, those in these arrays, and all others of their modules: the engine's, or else their atomic groups.

        An engine that rebuilds a module from some of its weights would take for the others what lies in fresh memory.
        """
        modules = {_module(name) for home in homes for name in self.names[home]}
        tensors = set(tensors)
        while True:
            modules |= {_module(name) for tensor in tensors for home in self._homes.get(tensor, ()) for name in self.names[home]}
            more = {
                tensor
                for tensor, homes_of in self._homes.items()
                if any(_module(name) in modules for home in homes_of for name in self.names[home])
            }
            more |= {other for tensor in tensors for other in self._of_group.get(atomic_group(tensor), ())}
            if more <= tensors:
                break
            tensors |= more
        return tensors

    @property
    def plain(self) -> list[str]:
        """Tensors, of which this worker has something, that are copied as they are."""
        return [name for name in self.windows if name not in self.odd]

    @property
    def reloaded_modules(self) -> set[str]:
        """Of the engine, that its own loader makes anew."""
        return {_module(name) for tensor in self.odd for home in self._homes.get(tensor, ()) for name in self.names[home]}

    @property
    def unseen(self) -> list[str]:
        """Tensors of the checkpoint that this worker's model does not load: another's layers, a tied head."""
        return [name for name in self.forms if name not in self.windows and name not in self.odd]

    def moved(self, models: Iterable[torch.nn.Module]) -> set[int]:
        """Arrays of plain tensors that the models do not use any more: what is written there is not served."""
        live = {
            tensor.untyped_storage().data_ptr()
            for model in models
            for tensor in [*model.parameters(), *model.buffers()]
            if tensor.device.type != "meta"
        }
        used = {window.array for name in self.plain for window in self.windows[name]}
        return {array for array in used if self.arrays[array].untyped_storage().data_ptr() not in live}

    def boxes(self, name: str) -> list[BoxView] | None:
        """The parts of a tensor that are here, as boxes; None when they are too many to be proven."""
        found: list[BoxView] = []
        for window in self.windows[name]:
            boxes = boxes_of(window, self.forms[name].shape)
            if boxes is None:
                return None
            found += boxes
        return found

    def differing(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> list[str]:
        """Which of these tensors are not what the checkpoint has, bit by bit."""
        return [name for name in names if not self._is_equal(name, checkpoint.read(name))]

    def _is_equal(self, name: str, tensor: torch.Tensor) -> bool:
        for window in self.windows[name]:
            live = window.of_array(self.arrays[window.array])
            if live.dtype != tensor.dtype or not torch.equal(bits(live), bits(window.of_tensor(tensor).to(live.device))):
                return False
        return True

    def from_feed(self, local: str, served: Identity, goal: Identity, threads: int) -> tuple[Lists, set[str]]:
        """What the feed changes in the arrays on the way from one version to another, and in which tensors.

        `NotFound`: it does not lead there.
        """
        tensors = [
            (
                name,
                self.forms[name].dtype_name,
                self.forms[name].shape,
                [(w.extent, w.first, w.strides, w.array, w.array_first, w.array_strides) for w in self.windows[name]],
            )
            for name in self.plain
        ]
        arrays = [(min(array.numel(), _MAX_ELEMENTS), array.element_size()) for array in self.arrays]
        changes, names = _core.map_feed(local, served, goal, tensors, arrays, threads)
        lists = [
            (bits(array), offsets, as_bits(values, array.element_size()))
            for array, (offsets, values) in zip(self.arrays, changes, strict=True)
            if len(offsets)
        ]
        return lists, set(names)

    def from_checkpoint(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> Lists:
        """What the checkpoint has otherwise than the arrays: the way of a worker that the feed does not lead to the version."""
        found: dict[int, list[tuple[Any, Any]]] = {}
        for name in names:
            tensor = checkpoint.read(name)
            for window in self.windows[name]:
                offsets, values = differences(window, self.arrays[window.array], tensor)
                if len(offsets):
                    found.setdefault(window.array, []).append((offsets, values))
        return [(bits(self.arrays[array]), *ordered(pairs)) for array, pairs in sorted(found.items())]

    def copy_in(self, checkpoint: LocalCheckpoint, names: Iterable[str]) -> None:
        """Write tensors as they are in the checkpoint."""
        for name in names:
            tensor = checkpoint.read(name)
            for window in self.windows[name]:
                live = window.of_array(self.arrays[window.array])
                bits(live).copy_(bits(window.of_tensor(tensor)))

    def views(self, name: str) -> Iterator[tuple[BoxView, torch.Tensor]]:
        """The boxes of a tensor that are here, with their contents as they are now."""
        for box in self.boxes(name) or ():
            yield box, box.of_array(self.arrays[box.array])


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _flat(home: torch.Tensor) -> torch.Tensor:
    storage = home.untyped_storage()
    return torch.as_strided(home, (storage.nbytes() // home.element_size(),), (1,), 0)


def as_bits(values: Any, width: int) -> Any:
    """Bytes as elements of that width, as `bits` has them."""
    return values.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width])


def differences(window: Window, array: torch.Tensor, tensor: torch.Tensor) -> tuple[Any, Any]:
    """Where the array is not what the tensor has, and what that is."""
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
    """Offsets and values of one array, by offset, each once."""
    offsets = np.concatenate([offsets for offsets, _ in pairs])
    values = np.concatenate([values for _, values in pairs])
    offsets, first = np.unique(offsets, return_index=True)
    return offsets, values[first]
