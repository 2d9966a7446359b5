"""Any process group of torch as a carrier: gloo on a CPU, NCCL on GPUs.

    carrier = TorchCarrier()                                # the default group, of torchrun say
    carrier = TorchCarrier(dist.new_group(backend="gloo"))

`deltawire.torch.groups` makes groups of their own, beside whatever else a process has.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from deltawire.carriers import Buffer, Carrier
from deltawire.errors import Cancelled, InvalidArgument, Unavailable

Message = tuple[int, torch.Tensor]
"""A rank, and bytes for it or from it."""

_ABORT_TAG = 1 << 30  # of no message
_END_SECONDS = 10.0
# What gloo says.
_LATE = "Timed out waiting"
_CONSEQUENCE = "pair closure"  # of another one's failure


class TorchCarrier(Carrier):
    """Bytes between the ranks of a process group.

    `device` is where NCCL has its bytes: they are staged there. gloo takes them where they lie, and goes on with the others when
    a rank is gone. One that is late ends the group, for torch closes all its connections then, as NCCL does with any failure.
    """

    def __init__(self, group: Any = None, device: torch.device | str | None = None) -> None:
        if group is None:
            if not dist.is_initialized():
                raise InvalidArgument("TorchCarrier: no group is given, and this process has no default one")
            group = dist.group.WORLD
        self._group = group
        self.rank, self.size = int(group.rank()), int(group.size())
        self.name = str(group.name()).lower()
        self._device = torch.device(device or _device_of(self.name))
        self._sent, self._received = [0] * self.size, [0] * self.size
        self._lost: set[int] = set()
        self._ended: str | None = None  # why the group is of no use any more
        self._aborted = False

    def exchange(self, to: Sequence[tuple[int, Buffer]], from_: Sequence[tuple[int, Buffer]], timeout: float) -> None:
        """All sends and receives at once."""
        sends = [(rank, _tensor(data)) for rank, data in to if memoryview(data).nbytes]
        receives = [(rank, _tensor(data)) for rank, data in from_ if memoryview(data).nbytes]
        for rank, _ in (*sends, *receives):
            if rank == self.rank or not 0 <= rank < self.size:
                raise InvalidArgument(f"{self.name}: rank {rank} is not another one of the {self.size} of this group")
        self._begin()
        (self._exchange if self._device.type == "cpu" else self._exchange_on_device)(sends, receives, timeout)

    def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
        """The bytes of `root` to all others."""
        if not 0 <= root < self.size:
            raise InvalidArgument(f"{self.name}: rank {root} is not one of the {self.size} of this group")
        if self.size == 1 or not memoryview(data).nbytes:
            return
        self._begin()
        tensor = _tensor(data)
        staged = tensor if self._device.type == "cpu" else tensor.to(self._device)
        self._poll(self._group.broadcast([staged], _broadcast_options(root, timeout)), timeout)
        if staged is not tensor and root != self.rank:
            tensor.copy_(staged)

    def lost(self) -> list[int]:
        """Ranks that were gone or late."""
        return sorted(self._lost)

    def abort(self) -> None:
        """End what another thread waits for."""
        self._aborted = True
        self._end("it was aborted")

    # ---- gloo's messages: each is waited for by itself, so that it is known whose failed

    def _exchange(self, sends: list[Message], receives: list[Message], timeout: float) -> None:
        end = time.monotonic() + timeout
        failures: dict[int, str] = {}
        works: list[tuple[int, Any]] = []
        try:
            for call, messages, counts in ((self._group.recv, receives, self._received), (self._group.send, sends, self._sent)):
                for rank, tensor in messages:
                    with _noting(failures, rank):
                        works.append((rank, call([tensor], rank, counts[rank])))
                    counts[rank] = (counts[rank] + 1) % _ABORT_TAG
            for rank, work in works:
                with _noting(failures, rank):
                    work.wait(timedelta(seconds=max(0.001, end - time.monotonic())))
        finally:
            works.clear()  # a work lets go of its memory when it goes, and not before
        if failures:
            self._fail(failures)

    def _fail(self, failures: dict[int, str]) -> None:
        if self._aborted:
            raise Cancelled(f"{self.name}: the group was aborted")
        late = {rank for rank, words in failures.items() if _LATE in words}
        gone = {rank for rank, words in failures.items() if _LATE not in words and _CONSEQUENCE not in words}
        self._lost |= late | gone
        words = "; ".join(f"rank {rank} is {'late' if rank in late else 'gone'}" for rank in sorted(late | gone))
        told = f"{self.name}: {words or 'the group is of no use any more'}: {next(iter(failures.values()))}"
        if late or not gone:
            self._end(told)
        raise Unavailable(told)

    # ---- what is looked at until it is done: gloo's collectives, and all of NCCL

    def _exchange_on_device(self, sends: list[Message], receives: list[Message], timeout: float) -> None:
        sent = [(rank, tensor.to(self._device)) for rank, tensor in sends]
        arrived = [(rank, torch.empty_like(tensor, device=self._device)) for rank, tensor in receives]
        self._group._start_coalescing(self._device)  # one after the other they could wait for each other
        for rank, tensor in sent:
            self._group.send([tensor], rank, 0)
        for rank, tensor in arrived:
            self._group.recv([tensor], rank, 0)
        self._poll(self._group._end_coalescing(self._device), timeout)
        for (_, tensor), (_, staged) in zip(receives, arrived, strict=True):
            tensor.copy_(staged)

    def _poll(self, work: Any, timeout: float) -> None:
        end = time.monotonic() + timeout
        pause = 1e-5
        try:
            while not work.is_completed():
                if time.monotonic() >= end:
                    raise RuntimeError(f"{_LATE} {timeout:g} s; {self.name} does not say for which rank")
                time.sleep(pause)
                pause = min(2 * pause, 1e-3)
            work.wait()
        except RuntimeError as error:
            failures = self._closed()
            self._end(_first_line(error))
            self._wait_for_the_end_of(work)
            if not failures and not self._aborted:
                raise Unavailable(f"{self.name}: rank {self.rank}: {_first_line(error)}") from None
            self._fail(failures)

    def _closed(self) -> dict[int, str]:
        """Whose connections are known to be closed. A collective of gloo does not say it, and NCCL never."""
        failures: dict[int, str] = {}
        for rank in range(self.size if self._device.type == "cpu" else 0):
            if rank != self.rank:
                with _noting(failures, rank):
                    self._group.recv([torch.empty(1, dtype=torch.uint8)], rank, _ABORT_TAG)
        return {rank: words for rank, words in failures.items() if _CONSEQUENCE not in words}

    def _wait_for_the_end_of(self, work: Any) -> None:
        """It may still write to memory of a call that is over."""
        end = time.monotonic() + _END_SECONDS
        with suppress(RuntimeError):
            while not work.is_completed() and time.monotonic() < end:
                time.sleep(1e-3)

    # ---- the end of the group

    def _begin(self) -> None:
        if self._aborted:
            raise Cancelled(f"{self.name}: the group was aborted")
        if self._ended is not None:
            raise Unavailable(f"{self.name}: the group is of no use any more: {self._ended}")

    def _end(self, why: str) -> None:
        """Close all connections, so that nothing waits or is written any more."""
        if self._ended is not None:
            return
        self._ended = why
        if self._device.type != "cpu":
            with suppress(Exception):
                self._group.abort()
            return
        # gloo's own abort() ends nothing. A receive that nobody answers does: when it is late, all connections are closed.
        for rank in range(self.size):
            if rank != self.rank:
                with suppress(RuntimeError):
                    self._group.recv([torch.empty(1, dtype=torch.uint8)], rank, _ABORT_TAG).wait(timedelta(milliseconds=1))


@contextmanager
def _noting(failures: dict[int, str], rank: int) -> Iterator[None]:
    """What torch raises is noted as the failure of that rank; the first of them says most."""
    try:
        yield
    except RuntimeError as error:
        failures.setdefault(rank, _first_line(error))


def _first_line(error: RuntimeError) -> str:
    """Without the place in torch's sources and its advice."""
    return str(error).strip().split("\n")[0].rpartition("] ")[2].split(". ")[0]


def _device_of(name: str) -> str:
    if name != "nccl":
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}"


def _broadcast_options(root: int, timeout: float) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank, options.timeout = root, timedelta(seconds=timeout)
    return options


def _tensor(data: Buffer) -> torch.Tensor:
    """The same memory. torch warns of memory that it may only read, and nothing is written to what is sent."""
    view = np.frombuffer(memoryview(data), np.uint8)
    return torch.frombuffer((ctypes.c_uint8 * view.size).from_address(view.ctypes.data), dtype=torch.uint8)
