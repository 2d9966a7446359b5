"""Ranks as threads of one process: a `dw.Group` of them."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Barrier


@dataclass(frozen=True)
class ThreadRank:
    """One rank."""

    rank: int
    size: int
    given: list[bytes]
    barrier: Barrier

    def all_gather(self, data: bytes) -> list[bytes]:
        self.given[self.rank] = data
        self.barrier.wait(timeout=240)
        every = list(self.given)
        self.barrier.wait(timeout=240)
        return every


def thread_ranks(size: int) -> list[ThreadRank]:
    """A group."""
    given, barrier = [b""] * size, Barrier(size)
    return [ThreadRank(rank, size, given, barrier) for rank in range(size)]
