"""Finds and updates copies of weights that an engine keeps outside parameters and buffers.

For example, an attention backend may keep a parameter in float32, created when the model is loaded or in the first forward pass.
Writing to the parameter does not update the copy, and the parameter's digest does not show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap, takewhile
from operator import eq, is_
from typing import Any

import torch

from deltawire.engines.map import bits
from deltawire.engines.undo import address, found_in, has_memory, objects_of

_OWN = ("_parameters", "_buffers", "_modules")  # of a module
_CACHES = ("kv_cache", "k_cache", "v_cache")
_CONTAINERS = (dict, list, tuple)

_Place = tuple[Any, ...]
_Name = tuple[int, str]
"""A parameter or buffer: number of the model, and name in it."""


@dataclass(frozen=True)
class Copied:
    """A tensor with the values of a parameter or buffer, perhaps in another dtype."""

    name: str
    copy: torch.Tensor
    source: torch.Tensor
    memory: int  # of the source


class _Seen:
    """Attributes that are tensors, or None and may become tensors. Loops are in C: an engine is paused while they run."""

    def __init__(self, owners: list[Any]) -> None:
        self._owners, self._states = owners, [vars(owner) for owner in owners]
        self._sizes = [len(state) for state in self._states]
        self._places, self._values = list[tuple[dict[str, Any], str]](), list[Any]()
        for state in self._states:
            for key, value in state.items():
                if value is None or isinstance(value, torch.Tensor):
                    self._places.append((state, key))
                    self._values.append(value)

    def has_changed(self) -> bool:
        """Whether they are others now, or an owner has more or fewer attributes."""
        return not (
            all(map(is_, map(vars, self._owners), self._states))
            and all(map(eq, map(len, self._states), self._sizes))
            and all(map(is_, starmap(dict.get, self._places), self._values))
        )


class Copies:
    """The copies in some models. `look` finds them, `refresh` updates them."""

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        """Create it while copies are still equal to their sources."""
        self._models = models
        self.reloaded: Collection[str] = ()
        """Modules that the engine's own loader rebuilds, together with their copies."""
        self._owners: list[tuple[str, Any]] = []
        self._seen = _Seen([])
        self._known: dict[_Place, tuple[torch.Tensor, _Name | None]] = {}  # by place of the copy: copy and source
        self._own: set[int] = set()  # memory of parameters and buffers
        self._copied: list[Copied] = []
        self.unknown: set[str] = set()
        """Tensors outside parameters and buffers whose source is unknown. KV caches are ignored."""
        self.look()

    def rescan(self) -> None:
        """Look again if attributes have changed, since the first requests may create copies. Cheap if nothing has changed."""
        if self._seen.has_changed():
            self.look()

    def look(self) -> None:
        """Find copies. Known ones keep their sources: weights may have changed since."""
        sources = {name: tensor for name, tensor in self._own_tensors() if has_memory(tensor)}
        reloaded = tuple(f"{module}." for module in self.reloaded)
        self._owners = [(name, owner) for name, owner in objects_of(self._models) if not f"{name}.".startswith(reloaded)]
        self._own = {address(tensor) for tensor in sources.values()}
        by_size: dict[int, list[_Name]] = {}
        for own, tensor in sources.items():
            by_size.setdefault(tensor.numel(), []).append(own)
        known, self._known, self._copied, self.unknown = self._known, {}, [], set()
        for name, tensor in self._foreign():
            _, source = known.get(_place(tensor), (None, None))
            if source not in sources:
                same = [other for other in by_size.get(tensor.numel(), ()) if _is_copy(tensor, sources[other])]
                source = _nearest(
                    name, same if _is_telling(tensor) else [other for other in same if _is_named_so(name, other[1])]
                )
            self._known[_place(tensor)] = tensor, source
            if source is None:
                self.unknown.add(name)
            else:
                self._copied.append(Copied(name, tensor, sources[source], address(sources[source])))
        self._seen = _Seen([owner for _, owner in self._owners])

    def refresh(self, written: Collection[int] | None = None) -> None:
        """Update copies of weights in the memory `written` (None: all)."""
        with torch.no_grad():
            for one in self._of(written):
                one.copy.copy_(one.source.reshape(one.copy.shape))

    def wrong(self, written: Collection[int] | None = None) -> set[str]:
        """Copies that differ from their sources."""
        return {one.name for one in self._of(written) if not _is_copy(one.copy, one.source)}

    def _of(self, written: Collection[int] | None) -> list[Copied]:
        return [one for one in self._copied if written is None or one.memory in written]

    def _own_tensors(self) -> Iterator[tuple[_Name, torch.Tensor]]:
        for number, model in enumerate(self._models):
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                yield (number, name), tensor

    def _foreign(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, owner in self._owners:
            for key, value in list(vars(owner).items()):
                if not isinstance(value, (torch.Tensor, *_CONTAINERS)) or key in _OWN or key in _CACHES:
                    continue
                for tensor in found_in([value])[1]:
                    if has_memory(tensor) and tensor.dtype.is_floating_point and address(tensor) not in self._own:
                        yield f"{name}.{key}" if name else key, tensor


def _place(tensor: torch.Tensor) -> _Place:
    """Identifies a tensor: several may share memory."""
    return address(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _is_telling(tensor: torch.Tensor) -> bool:
    """Whether elements differ. Otherwise equality means little: a workspace of zeros is not a copy of a zero bias."""
    return bool((tensor != tensor.flatten()[0]).any())


def _is_named_so(name: str, source: str) -> bool:
    """Whether a name indicates a copy: `impl.sinks` of `sinks`, `_k_scale_cpu` of `_k_scale`."""
    one, other = (path.rpartition(".")[2].strip("_") for path in (name, source))
    return bool(other) and one.startswith(other)


def _is_copy(copy: torch.Tensor, source: torch.Tensor) -> bool:
    wanted = source.detach().reshape(copy.shape).to(copy.device, copy.dtype)
    return bool(torch.equal(bits(copy.detach().contiguous()), bits(wanted.contiguous())))


def _nearest(name: str, others: list[_Name]) -> _Name | None:
    """Of several equal sources, the one with the longest common prefix; None if there is not exactly one."""
    lengths = {other: _common_length(name, other[1]) for other in others}
    nearest = [other for other, length in lengths.items() if length == max(lengths.values())]
    return nearest[0] if len(nearest) == 1 else None


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
