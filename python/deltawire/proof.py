"""What processes hold together, proven without moving a weight."""

from __future__ import annotations

from deltawire import _core
from deltawire.chain import Chain
from deltawire.errors import NotFound
from deltawire.explain import explained
from deltawire.stores import StoreLike
from deltawire.tensors import Source, readable
from deltawire.units import plural


class Proof:
    """Sums of what this process holds of a model. Sums of all processes are the digests of its tensors, however they were cut.

    Each rank of an engine or a trainer makes a proof from its shards (`dw.Tensor` says where an array lies in its tensor) and
    sends the text of it to one that adds them up. A box that several ranks hold counts once, and must be the same on all.
    `deltawire.torch.prove` does all of that over `torch.distributed`.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.arange(600, dtype=np.float32).reshape(20, 30)}
    >>> dw.Publisher("memory:proof", weights).publish().number
    0
    >>> left = dw.Proof({"w": dw.Tensor(weights["w"][:, :13], shape=(20, 30), offset=(0, 0))})
    >>> right = dw.Proof({"w": dw.Tensor(weights["w"][:, 13:], shape=(20, 30), offset=(0, 13))})
    >>> (left + dw.Proof.parse(right.text)).check("memory:proof")
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
