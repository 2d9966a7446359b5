"""Copies of weights that an engine keeps outside parameters and buffers.

An attention backend may keep a parameter in float32 beside it, some from their first forward pass on. What is written into the
parameter does not reach such a copy, and no digest of the parameter tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from deltawire.engines.map import bits
from deltawire.engines.reach import address, found_in, has_memory, objects_of

_OWN = ("_parameters", "_buffers", "_modules")  # of a module
_CONTAINERS = (dict, list, tuple)

_Name = tuple[int, str]
"""Of a parameter or buffer: the model's number, and the name in it."""


@dataclass(frozen=True)
class Copied:
    """A tensor that has the values of a parameter or buffer, as another dtype perhaps."""

    name: str
    copy: torch.Tensor
    source: torch.Tensor


class Copies:
    """Those of some models. `look` finds them, `refresh` writes them anew."""

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        """While they are equal to what they are copies of."""
        self._models = models
        self.reloaded: Collection[str] = ()
        """Modules that go through the engine's own loader, which makes anew what it keeps of them."""
        self._owners: list[tuple[str, Any]] = []
        self._known: dict[int, tuple[torch.Tensor, _Name | None]] = {}  # by the copy's memory, which is held: what it is of
        self._own: set[int] = set()  # memory of parameters and buffers
        self._copied: list[Copied] = []
        self.unknown: set[str] = set()
        """Tensors outside parameters and buffers of which it is not known what they are made of. Caches of keys are left out."""
        self.look()

    def look_again(self) -> None:
        """While the engine serves: some are made by the first requests."""
        if any(address(tensor) not in self._known for _, tensor in self._foreign()):
            self.look()

    def look(self) -> None:
        """What was known before is not compared again: weights may have changed since."""
        sources = {name: tensor for name, tensor in self._own_tensors() if has_memory(tensor)}
        reloaded = tuple(f"{module}." for module in self.reloaded)
        self._owners = [(name, owner) for name, owner in objects_of(self._models) if not f"{name}.".startswith(reloaded)]
        self._own = {address(tensor) for tensor in sources.values()}
        by_size: dict[int, list[_Name]] = {}
        for own, tensor in sources.items():
            by_size.setdefault(tensor.numel(), []).append(own)
        known, self._known, self._copied, self.unknown = self._known, {}, [], set()
        for name, tensor in self._foreign():
            _, source = known.get(address(tensor), (None, None))
            if source not in sources:
                same = [other for other in by_size.get(tensor.numel(), ()) if _is_copy(tensor, sources[other])]
                source = _nearest(name, same)
            self._known[address(tensor)] = tensor, source
            if source is None:
                self.unknown.add(name)
            else:
                self._copied.append(Copied(name, tensor, sources[source]))

    def refresh(self, written: Collection[int] | None = None) -> None:
        """After weights were written; `written` has the memory of those, None: all may have been."""
        with torch.no_grad():
            for one in self._of(written):
                one.copy.copy_(one.source.reshape(one.copy.shape))

    def wrong(self, written: Collection[int] | None = None) -> set[str]:
        """Those that are not what they are copies of."""
        return {one.name for one in self._of(written) if not _is_copy(one.copy, one.source)}

    def _of(self, written: Collection[int] | None) -> list[Copied]:
        return [one for one in self._copied if written is None or address(one.source) in written]

    def _own_tensors(self) -> Iterator[tuple[_Name, torch.Tensor]]:
        for number, model in enumerate(self._models):
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                yield (number, name), tensor

    def _foreign(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, owner in self._owners:
            for key, value in list(vars(owner).items()):
                is_tensor = isinstance(value, torch.Tensor)
                if not (is_tensor or (isinstance(value, _CONTAINERS) and value)) or key in _OWN or "cache" in key:
                    continue
                for tensor in found_in([value])[1]:
                    if has_memory(tensor) and tensor.dtype.is_floating_point and address(tensor) not in self._own:
                        yield f"{name}.{key}" if name else key, tensor


def _is_copy(copy: torch.Tensor, source: torch.Tensor) -> bool:
    wanted = source.detach().reshape(copy.shape).to(copy.device, copy.dtype)
    return bool(torch.equal(bits(copy.detach().contiguous()), bits(wanted.contiguous())))


def _nearest(name: str, others: list[_Name]) -> _Name | None:
    """Zeros and ones are many: of sources with the same values the one with the nearest name. None: there is none, or several."""
    lengths = {other: _common_length(name, other[1]) for other in others}
    nearest = [other for other, length in lengths.items() if length == max(lengths.values())]
    return nearest[0] if len(nearest) == 1 else None


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
