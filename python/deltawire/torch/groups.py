"""Process groups of torch beside the ones that a process has: the backends "gloo" and "nccl" of carriers.

Nothing of torch's global state is touched: a server or a trainer may have a default group, or none. Ranks find each other through
a `TCPStore` of rank 0, as with any group of torch; it knows no secret, so that the network says who may join.
"""

from __future__ import annotations

import socket
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from deltawire.carriers import Backend, Gathering
from deltawire.errors import InvalidArgument, Unavailable, Unsupported
from deltawire.torch.carrier import TorchCarrier

_MAX_RANKS = 1 << 16


class TorchBackend(Backend):
    """Groups of torch's gloo, or of its NCCL."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, size: int, host: str, timeout: float) -> Gathering:
        """On rank 0, which others reach as `host`."""
        self._check()
        try:
            listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise Unavailable(f"{self.name}: {host} cannot be listened on: {error.strerror or error}") from error
        port = int(listening.getsockname()[1])
        store = dist.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach(), use_libuv=False
        )
        return _Gathering(self, f"{host} {port} {size} {uuid.uuid4().hex}", size, store)

    def enter(self, ticket: str, rank: int, size: int, timeout: float) -> TorchCarrier:
        """On any other rank."""
        self._check()
        host, port, told, epoch = _parsed(ticket)
        if told != size:
            raise InvalidArgument(f"{self.name}: the group has {told} ranks, and rank {rank} was told of {size}")
        if not 0 < rank < size:
            raise InvalidArgument(f"{self.name}: rank {rank} is not one of 1 to {size - 1}")
        end = time.monotonic() + timeout
        try:
            store = dist.TCPStore(host, port, wait_for_workers=False, timeout=timedelta(seconds=timeout), use_libuv=False)
        except (RuntimeError, ValueError) as error:
            raise Unavailable(f"{self.name}: rank 0 at {host}:{port} does not answer: {_first_line(error)}") from None
        return self.form(store, epoch, host, port, rank, size, end - time.monotonic())

    def form(self, store: Any, epoch: str, host: str, port: int, rank: int, size: int, timeout: float) -> TorchCarrier:
        """Meet the others. Who does not come is named."""
        limit = timedelta(seconds=max(0.001, timeout))
        own = dist.PrefixStore(epoch, store)
        own.set_timeout(limit)
        try:
            own.set(f"here/{rank}", "")
            return TorchCarrier(self._group(own, host, port, rank, size, limit))
        except RuntimeError as error:
            raise Unavailable(f"{self.name}: {_missing(own, size) or _first_line(error)}") from None

    def _group(self, store: Any, host: str, port: int, rank: int, size: int, limit: timedelta) -> Any:
        if self.name != "gloo":
            return dist.ProcessGroupNCCL(store, rank, size, limit)
        options = dist.ProcessGroupGloo._Options()  # torch has no public name for one with devices
        options._timeout = limit
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=_own_address(host, port))]
        return dist.ProcessGroupGloo(store, rank, size, options)

    def _check(self) -> None:
        there = dist.is_available() and (dist.is_gloo_available() if self.name == "gloo" else dist.is_nccl_available())
        if not there:
            raise Unsupported(f"{self.name}: this torch was built without it")
        if self.name != "gloo" and not torch.cuda.is_available():
            raise Unsupported(f"{self.name}: there is no GPU; say gloo or tcp")


BACKENDS = {name: TorchBackend(name) for name in ("gloo", "nccl")}


class _Gathering(Gathering):
    def __init__(self, backend: TorchBackend, ticket: str, size: int, store: Any) -> None:
        self._backend, self.ticket, self._size, self._store = backend, ticket, size, store

    def finish(self, timeout: float) -> TorchCarrier:
        """Wait for all of them."""
        host, port, _, epoch = _parsed(self.ticket)
        return self._backend.form(self._store, epoch, host, port, 0, self._size, timeout)


def _parsed(ticket: str) -> tuple[str, int, int, str]:
    try:
        host, port, size, epoch = ticket.split(" ")
        if not (0 < int(port) < 1 << 16 and 0 < int(size) < _MAX_RANKS):
            raise ValueError
        return host, int(port), int(size), epoch
    except ValueError:
        raise InvalidArgument(f"not the ticket of a process group: {ticket[:80]!r}") from None


def _own_address(host: str, port: int) -> str:
    """Of this host, as seen from rank 0's: gloo would ask for that of the host's name, which may be another network's."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.connect((host, port))  # sends nothing
        return str(found.getsockname()[0])


def _missing(store: Any, size: int) -> str:
    """Which ranks did not come."""
    store.set_timeout(timedelta(seconds=1))
    with suppress(RuntimeError):
        missing = [rank for rank in range(size) if not store.check([f"here/{rank}"])]
        if missing:
            return f"{len(missing)} of {size} ranks did not come in time: {', '.join(map(str, missing[:16]))}"
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
