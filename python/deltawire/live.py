"""For processes with live weights: `Exchange` swaps elements during a pause, `Proof` computes digests of weights."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deltawire import _core
from deltawire._internal.chain import Chain
from deltawire._internal.options import explained
from deltawire._internal.output import plural
from deltawire._internal.stores import StoreLike
from deltawire._internal.tensors import Source, Tensor, readable, writable
from deltawire.errors import InvalidArgument, NotFound


class Exchange:
    """Swaps listed elements of arrays with staged values; a second `swap()` restores them.

    >>> import numpy as np, deltawire as dw
    >>> live = np.zeros(8, np.float32)
    >>> exchange = dw.live.Exchange([(live, np.array([1, 6], np.uint32), np.array([0.5, 2.5], np.float32))])
    >>> exchange.swap()
    >>> live
    array([0. , 0.5, 0. , 0. , 0. , 0. , 2.5, 0. ], dtype=float32)
    >>> exchange.swap()
    >>> live.any()
    np.False_
    """

    def __init__(self, lists: Iterable[tuple[Any, Any, Any]], *, device_bytes: int | None = None, threads: int = 0) -> None:
        """Copy and check `lists` of (array, offsets, values).

        Arrays are contiguous, in host memory or on one GPU. Offsets into the flat array ascend strictly. Values have the array's
        dtype, or are raw bytes. `device_bytes` limits GPU memory (None: half of what is free); the rest is in pinned host
        memory.
        """
        items, self._arrays = [], []
        for number, (array, offsets, values) in enumerate(lists):
            name = f"list {number}"
            target = writable([(name, array)])[0]
            if isinstance(values, bytes | bytearray | memoryview):
                values = Tensor(memoryview(values).cast("B") if len(values) else _NO_BYTES, "U8")
            items.append((target, _offsets_of(name, offsets), readable([(name, values)])[0]))
            self._arrays.append(array.array if isinstance(array, Tensor) else array)
        self._core = _core.Exchange(items, device_bytes, threads)

    @classmethod
    def _of(cls, core: _core.Exchange, arrays: Sequence[Any]) -> Exchange:
        """An exchange that the extension has staged for these arrays."""
        exchange = cls.__new__(cls)
        exchange._core, exchange._arrays = core, list(arrays)
        return exchange

    def swap(self) -> None:
        """Swap, and wait; on a GPU, in torch's current stream."""
        if "torch" not in sys.modules:
            return self._core.swap()
        from deltawire.torch.gpu import count_write, gpu_of, stream_of

        try:
            self._core.swap(stream_of(gpu_of(self._arrays)))
        finally:
            count_write(self._arrays)

    @property
    def num_changed(self) -> int:
        """Listed elements."""
        return self._core.num_changed

    @property
    def device_bytes(self) -> int:
        """GPU memory used."""
        return self._core.device_bytes

    @property
    def host_bytes(self) -> int:
        """Host memory used."""
        return self._core.host_bytes

    def __repr__(self) -> str:
        return f"Exchange({plural(len(self._arrays), 'list')}, {plural(self.num_changed, 'element')})"


_NO_BYTES = memoryview(bytearray())


def _offsets_of(name: str, offsets: Any) -> Any:
    """Convert to contiguous uint32."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(offsets, torch.Tensor):
        if offsets.device.type != "cpu":
            raise InvalidArgument(f"{name}: offsets must be in host memory")
        if offsets.is_floating_point():
            raise InvalidArgument(f"{name}: offsets must be integers of 32 or 64 bits")
        offsets = offsets.detach().numpy()
    if getattr(offsets, "ndim", None) != 1:
        raise InvalidArgument(f"{name}: offsets must be an array of one dimension")
    array = np.ascontiguousarray(offsets)
    if array.dtype.name not in ("uint32", "int32", "int64", "uint64"):
        raise InvalidArgument(f"{name}: offsets must be integers of 32 or 64 bits")
    narrow = array.astype(np.uint32, copy=False)
    if (wrong := np.flatnonzero(narrow != array)).size:
        raise InvalidArgument(f"{name}: offset {array[wrong[0]]} (number {wrong[0]} of the list): must be in [0, 2^32)")
    return narrow


class Proof:
    """Digests of what this process holds. The sum over all processes gives each tensor's digest.

    A part that several ranks hold must be equal on all, and counts once. `deltawire.torch.prove` does all this over
    `torch.distributed`.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.arange(600, dtype=np.float32).reshape(20, 30)}
    >>> dw.Publisher("memory:proof", weights).publish().number
    0
    >>> left = dw.live.Proof({"w": dw.Tensor(weights["w"][:, :13], shape=(20, 30), offset=(0, 0))})
    >>> right = dw.live.Proof({"w": dw.Tensor(weights["w"][:, 13:], shape=(20, 30), offset=(0, 13))})
    >>> (left + dw.live.Proof.parse(right.text)).check("memory:proof")
    0
    """

    @explained
    def __init__(self, tensors: Source = (), *, threads: int = 0) -> None:
        """Begin with these tensors: a dict of arrays or `Tensor`s."""
        self._core = _core.Proof()
        self.add(tensors, threads=threads)

    @explained
    def add(self, tensors: Source, *, threads: int = 0) -> None:
        """Add more tensors."""
        self._core.add(readable(tensors), threads)

    @property
    def text(self) -> str:
        """For other processes; read by `Proof.parse`."""
        return self._core.text()

    @classmethod
    def parse(cls, text: str) -> Proof:
        """Parse the text of another process; `Corruption` if it is invalid."""
        proof = cls.__new__(cls)
        proof._core = _core.Proof.parse(text)
        return proof

    @property
    def digests(self) -> dict[str, str]:
        """sum128 by tensor. `InvalidArgument`: parts overlap or leave gaps."""
        return self._core.digests()

    def check(self, chain: StoreLike | Chain, version: int | None = None) -> int:
        """Compare with a version (default: the newest); returns its number.

        `BaseMismatch` names tensors that differ or are missing. `Unsupported`: one was published in parts without sums.
        """
        opened = chain if isinstance(chain, Chain) else Chain(chain)
        number = opened.head if version is None else version
        if number is None:
            raise NotFound("nothing was published yet")
        opened._core.prove(number, self._core)
        return number

    def __add__(self, other: Proof) -> Proof:
        """Combine two proofs. `BaseMismatch`: they hold different bytes of the same part."""
        both = Proof.parse(self.text)
        both._core.merge(other._core)
        return both

    def __repr__(self) -> str:
        return f"Proof({plural(self._core.num_tensors, 'tensor')})"
