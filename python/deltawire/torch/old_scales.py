"""The scales of the last version, for hysteresis."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

import deltawire as dw
from deltawire.errors import NotFound
from deltawire.quantize.hysteresis import Old
from deltawire.quantize.like import specs_of, weight_files
from deltawire.quantize.scheme import SCALES


class OldScales(Old):
    """Those of the chain's newest version, so that a publisher that was restarted goes on with the same bytes.

    They are read from it when a publisher begins, and after whatever went wrong; from then on what is published is remembered.
    """

    def __init__(self, store: Any) -> None:
        """`store` is what the publisher was given."""
        super().__init__(lambda name: (self._known or {}).get(name))
        self._store = store
        self._known: dict[str, Any] | None = None
        self._used: list[tuple[str, Any, tuple[int, ...], tuple[int, ...]]] = []

    def begin(self) -> None:
        """A version is about to be made."""
        self._used = []
        if self._known is None:
            self._known = _read(self._store)

    def use(self, name: str, tensor: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
        """Remembers it until it is known whether it is published."""
        self._used.append((name, tensor, shape, offset))

    def published(self) -> None:
        """What was used is the newest version's."""
        for used in self._used:
            self._remember(*used)
        self._used = []

    def forget(self) -> None:
        """The chain knows better."""
        self._known, self._used = None, []

    def _remember(self, name: str, tensor: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
        assert self._known is not None
        if tuple(tensor.shape) == shape:
            self._known[name] = tensor
            return
        before = self._known.get(name)
        if before is None or tuple(before.shape) != shape or before.dtype != tensor.dtype:
            before = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        before[tuple(slice(begin, begin + size) for begin, size in zip(offset, tensor.shape, strict=True))] = tensor
        self._known[name] = before


def _read(store: Any) -> dict[str, Any]:
    """From the chain's newest version, by way of a checkpoint in a temporary folder."""
    from safetensors import safe_open

    try:
        if dw.Chain(store).head is None:
            return {}
    except NotFound:  # the first publish makes it
        return {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="deltawire-scales-") as folder:
        with dw.Replica(store, folder, heartbeat=False) as replica:
            replica.pull()
        for file in weight_files(Path(folder)):
            names = [name for name, _, _ in specs_of(file) if name.rpartition(".")[2] in SCALES]
            with safe_open(file, framework="pt") as opened:
                found.update((name, opened.get_tensor(name).clone()) for name in names)
    return found
