"""For processes that hold live weights: `Exchange` writes listed elements in a pause, `Proof` adds up what is held."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from deltawire import _core
from deltawire._internal.chain import Chain
from deltawire._internal.options import explained
from deltawire._internal.output import plural
from deltawire._internal.stores import StoreLike
from deltawire._internal.tensors import Source, Tensor, readable, writable
from deltawire.errors import InvalidArgument, NotFound


class Exchange:
    """Writes staged values to listed elements of arrays and keeps what was there; the next `swap()` puts that back.

    Everything is checked and copied to where it is used beforehand: to the memory of the GPU that holds the arrays, as far as
    `device_bytes` goes, else to pinned memory. `swap()` is one pass over the lists.

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
        """Stage `lists` of (array, offsets, values), which are copied; the arrays are not touched.

        Arrays are numpy's or torch's, contiguous and writable, in host memory or on one GPU. Offsets count the elements of the
        flat array and ascend strictly; values have the array's dtype, or are its raw bytes (`bytes`, or unsigned integers). No
        element may be listed twice, in lists of arrays that share memory either. `InvalidArgument` names the list and the offset.

        `device_bytes` is what lists may take of the GPU's memory, beside tables of 4 bytes for 1,024 elements; None: half of what
        is free. `threads` work on arrays in host memory; 0 is one for each core.
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

    def swap(self) -> None:
        """Exchange values and elements, and wait for it: on a GPU, after what torch's current stream was given."""
        if "torch" not in sys.modules:
            return self._core.swap()
        from deltawire.torch.gpu import count_write, gpu_of, stream_of

        try:
            self._core.swap(stream_of(gpu_of(self._arrays)))
        finally:
            count_write(self._arrays)

    @property
    def num_changed(self) -> int:
        """Elements in all lists."""
        return self._core.num_changed

    @property
    def device_bytes(self) -> int:
        """What the lists take of a GPU's memory."""
        return self._core.device_bytes

    @property
    def host_bytes(self) -> int:
        """What the lists take of host memory, pinned memory included."""
        return self._core.host_bytes

    def __repr__(self) -> str:
        return f"Exchange({plural(len(self._arrays), 'list')}, {plural(self.num_changed, 'element')})"


_NO_BYTES = memoryview(bytearray())


def _offsets_of(name: str, offsets: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(offsets, torch.Tensor):
        offsets = offsets.detach().contiguous()
        if offsets.device.type != "cpu":
            raise InvalidArgument(f"{name}: its offsets must be in host memory")
    if getattr(offsets, "ndim", None) != 1:
        raise InvalidArgument(f"{name}: offsets must be an array of one dimension")
    return offsets


class Proof:
    """Sums of what this process holds of a model. Sums of all processes are the digests of its tensors, however they were cut.

    Each rank of an engine or a trainer makes a proof from its shards (`dw.Tensor` says where an array lies in its tensor) and
    sends the text of it to one that adds them up. A box that several ranks hold counts once, and must be the same on all.
    `deltawire.torch.prove` does all of that over `torch.distributed`.

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
        """Add up `tensors`: a dict of arrays, or of `Tensor` for boxes. Arrays on a GPU are added up there.

        `threads`: 0 is one for each core.
        """
        self._core = _core.Proof()
        self.add(tensors, threads=threads)

    @explained
    def add(self, tensors: Source, *, threads: int = 0) -> None:
        """Add up more of what this process holds."""
        self._core.add(readable(tensors), threads)

    @property
    def text(self) -> str:
        """For other processes; `parse` reads it."""
        return self._core.text()

    @classmethod
    def parse(cls, text: str) -> Proof:
        """From the text of another process. `Corruption` when it is none."""
        proof = cls.__new__(cls)
        proof._core = _core.Proof.parse(text)
        return proof

    @property
    def digests(self) -> dict[str, str]:
        """sum128 of each tensor. `InvalidArgument`, naming a tensor, when its boxes overlap or leave something out."""
        return self._core.digests()

    def check(self, chain: StoreLike | Chain, version: int | None = None) -> int:
        """Whether this is what a version says, the newest if none is given; returns its number.

        `BaseMismatch` names the tensors that differ or are missing, `InvalidArgument` one whose boxes overlap or leave something
        out. `Unsupported` when a tensor was published in boxes without sums.
        """
        opened = chain if isinstance(chain, Chain) else Chain(chain)
        number = opened.head if version is None else version
        if number is None:
            raise NotFound("nothing was published yet")
        opened._core.prove(number, self._core)
        return number

    def __add__(self, other: Proof) -> Proof:
        """Both together. `BaseMismatch` when they hold other bytes of one box."""
        both = Proof.parse(self.text)
        both._core.merge(other._core)
        return both

    def __repr__(self) -> str:
        return f"Proof({plural(self._core.num_tensors, 'tensor')})"
