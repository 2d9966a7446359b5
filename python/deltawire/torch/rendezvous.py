"""Process groups for engines and trainers that were launched separately.

They do not use torch's global state. The ranks meet in a `TCPStore` of rank 0. It does not authenticate: anyone who reaches the
port can join, so use a trusted network.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from deltawire.errors import InvalidArgument, Unavailable, Unsupported

GroupBackend = Literal["gloo", "nccl"]

_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 0.05  # between checks for missing ranks


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Where a group of `world_size` ranks forms; rank 0 listens."""

    master_address: str
    master_port: int
    world_size: int
    rank: int
    group_name: str = "deltawire"
    """Groups with the same rank-0 process may share an address."""
    backend: GroupBackend = "gloo"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.backend not in get_args(GroupBackend):
            raise InvalidArgument(f"backend={self.backend!r}: must be one of {', '.join(get_args(GroupBackend))}")
        if not self.master_address or not 0 < self.master_port < 1 << 16:
            raise InvalidArgument(f"{self.master_address!r}, {self.master_port}: master_address and master_port are required")
        if not 0 <= self.rank < self.world_size:
            raise InvalidArgument(f"rank={self.rank}: must be one of the {self.world_size} ranks of the group")

    def __str__(self) -> str:
        return f"group {self.group_name} at {self.master_address}:{self.master_port}"


class Meeting:
    """A rank's side of a rendezvous. Not thread-safe."""

    def __init__(self, place: Rendezvous) -> None:
        self._place = place
        self._store: Any = None
        self._here = ""  # the group that this rank has announced itself for

    def form(self, timeout: float, check: Callable[[], None]) -> tuple[Any, Any]:
        """Wait for all ranks; return the gloo group, and the NCCL group or None. `check` is called meanwhile and may raise.

        `Unavailable`: rank 0 does not answer, or the group does not form within `timeout` seconds after all ranks have arrived.
        """
        place = self._place
        if not dist.is_available() or not dist.is_gloo_available():
            raise Unsupported("torch was built without gloo")
        if place.backend == "nccl" and not (dist.is_nccl_available() and torch.cuda.is_available()):
            raise Unsupported("torch was built without nccl, or there is no GPU")
        try:
            epoch = self._meet(check)
            return self._groups(dist.PrefixStore(epoch, self._keys), timedelta(seconds=timeout))
        except (RuntimeError, OSError) as error:
            raise Unavailable(f"{place}: {first_line(error)}") from None
        finally:
            if place.rank != 0:  # rank 0 may be another process next time
                self._store = None

    @property
    def _keys(self) -> Any:
        place = self._place
        if self._store is None:
            limit = timedelta(seconds=_CONNECT_SECONDS)
            if place.rank != 0:  # fail early: torch would log every retry
                socket.create_connection((place.master_address, place.master_port), _CONNECT_SECONDS).close()
            self._store = dist.TCPStore(
                place.master_address, place.master_port, is_master=place.rank == 0, wait_for_workers=False, timeout=limit
            )
        return dist.PrefixStore(place.group_name, self._store)

    def _meet(self, check: Callable[[], None]) -> str:
        """Wait for all ranks. Rank 0 names the group; a rank that finds a group formed without it waits for the next."""
        place, keys = self._place, self._keys
        epoch: str
        if place.rank == 0:
            epoch = uuid.uuid4().hex
            keys.set("epoch", f"{epoch} {place.world_size} {place.backend}")
            here = [f"{epoch}/here/{rank}" for rank in range(1, place.world_size)]
            while here and not keys.check(here):
                check()
                time.sleep(_LOOK_SECONDS)
            keys.set(f"{epoch}/begin", "")
            return epoch
        while True:
            check()
            if keys.check(["epoch"]):
                words: list[str] = keys.get("epoch").decode().split(" ")
                epoch, size, backend = words
                if (int(size), backend) != (place.world_size, place.backend):
                    expected = f"rank {place.rank} expects {place.world_size} ranks and {place.backend}"
                    raise InvalidArgument(f"{place}: has {size} ranks and backend {backend}; {expected}")
                begun = keys.check([f"{epoch}/begin"])
                if begun and self._here == epoch:
                    self._here = ""
                    return epoch
                if not begun and self._here != epoch:
                    keys.set(f"{epoch}/here/{place.rank}", "")
                    self._here = epoch
            time.sleep(_LOOK_SECONDS)

    def _groups(self, store: Any, limit: timedelta) -> tuple[Any, Any]:
        place = self._place
        store.set_timeout(limit)
        options = dist.ProcessGroupGloo._Options()  # torch has no public name for one with devices
        options._timeout = limit
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._own_address())]
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), place.rank, place.world_size, options)
        nccl = None
        if place.backend == "nccl":
            nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), place.rank, place.world_size, limit)
        return gloo, nccl

    def _own_address(self) -> str:
        """This host's address towards rank 0. By default gloo resolves the host name, which may be on another network."""
        kind, _, _, _, address = socket.getaddrinfo(self._place.master_address, self._place.master_port)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as found:
            found.connect(address)  # sends nothing
            return str(found.getsockname()[0])


def first_line(error: BaseException) -> str:
    """The message of a torch error without source location and advice."""
    return str(error).strip().split("\n")[0].rpartition("] ")[2].split(". ")[0] or type(error).__name__


class Wire:
    """A group in this process. Not thread-safe; a failure ends the group."""

    def __init__(self, group: Any, nccl: Any, root: int, timeout: float, check: Callable[[], None]) -> None:
        """`group`: a process group with gloo and perhaps NCCL; or a gloo group, with `nccl` as the NCCL group or None."""
        if isinstance(group, dist.ProcessGroup):
            group, nccl = _backend_of(group, "cpu", "gloo"), _backend_of(group, "cuda", "nccl")
        if group is None:
            raise InvalidArgument(
                "Broadcast: the group has no gloo backend, which waits for versions without occupying a GPU; with NCCL, use "
                'backend="cpu:gloo,cuda:nccl"'
            )
        self.rank, self.size = int(group.rank()), int(group.size())
        if not 0 <= root < self.size:
            raise InvalidArgument(f"Broadcast: src={root}: must be one of the {self.size} ranks of the group")
        self._gloo, self._nccl, self._root = group, nccl, root
        self._timeout, self._check = timeout, check

    def announce(self, header: torch.Tensor) -> None:
        """Broadcast a small host tensor from the root. Other ranks may wait for it for a long time."""
        work = self._gloo.broadcast([header], self._options())
        while True:
            try:
                work.wait(timedelta(milliseconds=100))
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises if it failed
                    return
            self._check()

    def broadcast(self, data: torch.Tensor) -> None:
        """Broadcast host memory from the root; through the GPUs if the group has NCCL."""
        if self._nccl is None:
            self.announce(data)
            return
        staged = data.cuda() if self.rank == self._root else torch.empty_like(data, device="cuda")
        work = self._nccl.broadcast([staged], self._options())
        end = time.monotonic() + self._timeout
        while not work.is_completed():
            self._check()
            if time.monotonic() > end:
                raise RuntimeError(f"NCCL: no answer within {self._timeout:g} s")
            time.sleep(2e-4)
        work.wait()
        if self.rank != self._root:
            data.copy_(staged)

    def end(self) -> list[int]:
        """Close all connections, so that every rank notices. Returns the ranks that have left."""
        if self._nccl is not None:
            self._nccl.abort()
        gone = []
        # gloo's abort() does not close connections; a receive that times out does.
        for rank in range(self.size):
            if rank != self.rank:
                try:
                    self._gloo.recv([torch.empty(1, dtype=torch.uint8)], rank, 1 << 30).wait(timedelta(milliseconds=1))
                except RuntimeError as error:
                    if "Connection closed by peer" in str(error) or "reset" in str(error):
                        gone.append(rank)
        return gone

    def _options(self) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank, options.timeout = self._root, timedelta(seconds=self._timeout)
        return options


def _backend_of(group: Any, device: str, name: str) -> Any:
    """None: the group has no such backend for this device."""
    try:
        backend = group._get_backend(torch.device(device))
    except RuntimeError:
        return None
    return backend if str(backend.name()).lower() == name else None
