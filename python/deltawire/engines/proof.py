"""Compares the weights of all workers with a version, by digests; weights are not transferred."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod

from deltawire import _core
from deltawire._internal.identity import Identity
from deltawire._internal.ranks import Group
from deltawire._internal.tensors import Tensor, readable
from deltawire.engines.group import as_error, gather, raise_for_all
from deltawire.engines.map import EngineMap
from deltawire.errors import BaseMismatch, Error
from deltawire.live import Proof

_NUM_SAMPLES = 16  # that together contain every tensor


@dataclass(frozen=True)
class Proven:
    """The result of a proof."""

    run: str
    version: int
    manifest: str
    mode: str
    num_tensors: int
    wrong: tuple[str, ...] = ()  # tensors that differ from the version
    unproven: tuple[str, ...] = ()  # tensors that cannot be compared

    @property
    def words(self) -> str:
        """A message."""
        if self.wrong:
            return f"{len(self.wrong)} tensors differ from version {self.version}: {', '.join(self.wrong[:5])}"
        return f"{self.num_tensors} tensors match version {self.version}"


@dataclass(frozen=True)
class Beside:
    """Tensors outside parameters: those that cannot be compared, and a function that finds wrong copies."""

    unproven: Collection[str]
    find_wrong: Callable[[], set[str]]


def sample_of(names: Iterable[str], sample: int) -> set[str]:
    """Every sixteenth name; successive samples cover all names."""
    return {name for number, name in enumerate(sorted(names)) if (number + sample) % _NUM_SAMPLES == 0}


@dataclass(frozen=True)
class Sums:
    """The sums of a worker's parts of a version."""

    version: Identity
    known: _core.SpooledDigests | None  # None: `failure`
    own: Proof
    differing: set[str]
    unproven: set[str]
    failure: Error | None


def add_up(
    pieces: Pieces,
    read_known: Callable[[], _core.SpooledDigests],
    version: Identity,
    mode: str,
    *,
    sample: int = 0,
    reloaded: Collection[str],
    beside: Beside | None = None,
    threads: int = 0,
) -> Sums:
    """Compute this worker's part of a proof; the engine need not be paused.

    Tensors in `reloaded` (converted or repacked by a worker) cannot be compared. Copies of the same box must be equal.
    """
    known, own, differing, failure = None, Proof(), set[str](), None
    unproven = set(reloaded) if beside is None else {*reloaded, *beside.unproven}
    try:
        known = read_known()
        names: Iterable[str] = () if mode == "off" else known.names
        if mode == "sample":
            names = sample_of(names, sample)
        chosen = pieces.of(name for name in names if name not in reloaded)
        differing |= _add(own, lambda: own._core.add(chosen, threads))
        if beside is not None and mode != "off":
            differing |= beside.find_wrong()
    except Exception as error:
        failure = as_error(error)
    return Sums(version, known, own, differing, unproven, failure)


def prove(sums: Sums, group: Group, mode: str) -> Proven:
    """Combine the sums of all workers and compare them with the version's digests. Every worker calls it.

    If one worker has failed, all raise.
    """
    own, differing, unproven, failure = sums.own, set(sums.differing), set(sums.unproven), sums.failure
    words = None if failure is None else str(failure)
    gathered = gather(group, (words, differing, unproven, own.text)) if group.size > 1 else []
    raise_for_all([words for words, *_ in gathered], failure)
    for rank, (_, theirs, not_theirs, other) in enumerate(gathered):
        unproven |= not_theirs
        differing |= theirs
        if rank != group.rank:
            differing |= _add(own, partial(own._core.merge, Proof.parse(other)._core))
    assert sums.known is not None
    wrong = differing.union(own._core.differing_from(sums.known))
    num_tensors = own._core.num_tensors + len(differing.difference(sums.known.names))
    return Proven(*sums.version, mode, num_tensors, tuple(sorted(wrong)), tuple(sorted(unproven)))


def _add(proof: Proof, add: Callable[[], None]) -> set[str]:
    """Call `add`; returns tensors whose copies differ."""
    with suppress(BaseMismatch):
        add()
    return set(proof._core.differing())


Boxes = dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]
"""By tensor: offset and extent of the parts on a worker."""


def boxes_of_all(engine_map: EngineMap) -> Boxes:
    """The boxes of plain tensors; none if there are too many."""
    return {name: [(box.offset, box.extent) for box in engine_map.boxes(name) or ()] for name in engine_map.plain}


def uncovered(workers: Iterable[Boxes], shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Tensors that the boxes of all workers do not tile exactly; their sums cannot be compared."""
    held: dict[str, set[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for boxes in workers:
        for name, own in boxes.items():
            held.setdefault(name, set()).update(own)
    return {name for name, own in held.items() if sum(prod(extent) for _, extent in own) != prod(shapes[name])}


class Pieces:
    """The parts of tensors on a worker, cached: their memory does not move."""

    def __init__(self, engine_map: EngineMap) -> None:
        self._map = engine_map
        self._known: dict[str, list[_core.Tensor]] = {}

    def of(self, names: Iterable[str]) -> list[_core.Tensor]:
        """The parts of tensors; non-contiguous ones are copied each time."""
        return [piece for name in names for piece in self._known.get(name) or self._read(name)]

    def _read(self, name: str) -> list[_core.Tensor]:
        if name not in self._map.windows:
            return []
        shape = self._map.forms[name].shape
        views = list(self._map.views(name))
        pieces = readable((name, Tensor(view.contiguous(), shape=shape, offset=box.offset)) for box, view in views)
        if all(view.is_contiguous() for _, view in views):
            self._known[name] = pieces
        return pieces
