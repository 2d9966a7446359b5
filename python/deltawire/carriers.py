"""How bytes go between processes without a store: groups of ranks, and the hub that knows who is there."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltawire import _core
from deltawire._internal.steps import Closing
from deltawire.errors import Unsupported

if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer
else:
    Buffer = object


class Carrier(ABC):
    """A fixed group of ranks that give bytes to each other. Subclass it to use any interconnect.

    All ranks make the same calls in the same order, one at a time, and both ends of a transfer name the same size. Raise
    `Unavailable` when a rank is gone or late, and name it in `lost()`; every call ends within `timeout` seconds. Buffers that a
    subclass gets are lent for the time of the call.

    >>> import threading, deltawire.carriers as carriers
    >>> first, second = carriers.local_group(2)
    >>> room = bytearray(5)
    >>> other = threading.Thread(target=lambda: second.exchange([], [(0, room)], 10))
    >>> other.start()
    >>> first.exchange([(1, b"bytes")], [], 10)
    >>> other.join()
    >>> room
    bytearray(b'bytes')
    """

    name: str
    """What messages call it: "tcp", "gloo"."""
    rank: int
    """Of this process, from 0."""
    size: int
    """How many ranks there are."""

    @abstractmethod
    def exchange(self, to: Sequence[tuple[int, Buffer]], from_: Sequence[tuple[int, Buffer]], timeout: float) -> None:
        """Send and receive, all at once: `(rank, bytes)` and `(rank, room)`, of one rank in the order of the list.

        Empty ones are not sent.
        """

    @abstractmethod
    def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
        """The bytes of rank `root` to all others, into `data`; all ranks call it."""

    def lost(self) -> list[int]:
        """Ranks that were gone or late."""
        return []

    @abstractmethod
    def abort(self) -> None:
        """End a call of another thread with `Cancelled`. The group is of no use afterwards."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: rank {self.rank} of {self.size}>"


class Gathering(ABC):
    """What rank 0 of a group holds until the others have entered."""

    ticket: str
    """One line, for the other ranks."""

    @abstractmethod
    def finish(self, timeout: float) -> Carrier:
        """Wait for all ranks."""


class Backend(ABC):
    """How groups of one kind are joined. Subclass it, and `add_backend` it, for groups of your own."""

    name: str
    """By which it is asked for."""

    @abstractmethod
    def open(self, size: int, host: str, timeout: float) -> Gathering:
        """On rank 0. `host` is an address of this machine that the other ranks can reach."""

    @abstractmethod
    def enter(self, ticket: str, rank: int, size: int, timeout: float) -> Carrier:
        """On all other ranks."""


class _BuiltinCarrier(Carrier):
    """A carrier of the library."""

    def __init__(self, handle: _core.Carrier) -> None:
        self.handle = handle
        self.name, self.rank, self.size = handle.name, handle.rank, handle.size

    def exchange(self, to: Sequence[tuple[int, Buffer]], from_: Sequence[tuple[int, Buffer]], timeout: float) -> None:
        self.handle.exchange(list(to), list(from_), timeout)

    def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
        self.handle.broadcast(root, data, timeout)

    def lost(self) -> list[int]:
        return list(self.handle.lost())

    def abort(self) -> None:
        self.handle.abort()

    def close(self) -> None:
        self.handle.close()


class _BuiltinGathering(Gathering):
    def __init__(self, handle: _core.Gathering) -> None:
        self.handle, self.ticket = handle, handle.ticket

    def finish(self, timeout: float) -> Carrier:
        return _BuiltinCarrier(self.handle.finish(timeout))


def carrier_handle(carrier: Carrier) -> _core.Carrier:
    """The library's view of a carrier."""
    return carrier.handle if isinstance(carrier, _BuiltinCarrier) else _core.adapt_carrier(carrier)


def local_group(size: int) -> list[Carrier]:
    """All ranks of a group inside this process: one for each thread."""
    return [_BuiltinCarrier(handle) for handle in _core.local_group(size)]


def backends() -> list[str]:
    """Names of what groups can be made with."""
    return list(_core.backend_names())


def add_backend(backend: Backend) -> None:
    """Make `backend` known under its name."""
    _core.add_backend(backend)


def open_group(size: int, *, backend: str = "tcp", host: str = "127.0.0.1", secret: str = "", timeout: float = 60) -> Gathering:
    """Begin a group as its rank 0. The others enter with the ticket, however it gets to them.

    >>> import threading, deltawire.carriers as carriers
    >>> gathering = carriers.open_group(2, secret="known to all")
    >>> entered = []
    >>> def enter():
    ...     entered.append(carriers.enter_group(gathering.ticket, 1, 2, secret="known to all"))
    >>> other = threading.Thread(target=enter)
    >>> other.start()
    >>> gathering.finish(30)
    <_BuiltinCarrier tcp: rank 0 of 2>
    >>> other.join()
    """
    return _BuiltinGathering(_core.open_group(backend, size, host, secret, timeout))


def enter_group(ticket: str, rank: int, size: int, *, backend: str = "tcp", secret: str = "", timeout: float = 60) -> Carrier:
    """Enter a group as one of its other ranks."""
    return _BuiltinCarrier(_core.enter_group(backend, ticket, rank, size, secret, timeout))


class _OnDemand(Backend):
    """A backend of a module that is imported when a group of it is made: torch takes seconds."""

    def __init__(self, name: str, module: str) -> None:
        self.name, self._module = name, module

    def open(self, size: int, host: str, timeout: float) -> Gathering:
        return self._found().open(size, host, timeout)

    def enter(self, ticket: str, rank: int, size: int, timeout: float) -> Carrier:
        return self._found().enter(ticket, rank, size, timeout)

    def _found(self) -> Backend:
        try:
            module = importlib.import_module(self._module)
        except ImportError as error:
            raise Unsupported(f'backend "{self.name}": {error}') from error
        found: Backend = module.BACKENDS[self.name]
        return found


for _name in ("gloo", "nccl"):
    add_backend(_OnDemand(_name, "deltawire.torch.groups"))


@dataclass(frozen=True)
class MemberInfo:
    """One that has joined a hub."""

    id: int
    name: str
    hello: bytes
    address: str


class Hub(Closing):
    """Who is there, and what each has to say: small messages over TCP, with a shared secret.

    Without a secret it listens on loopback only, unless `open_to_all`. Members that say nothing for `silence` seconds, not even
    that they are there, are gone.

    >>> from deltawire.carriers import Hub, Member
    >>> with Hub(secret="known to all") as hub, Member(hub.address, secret="known to all", name="one") as member:
    ...     hub.wait_for(1)
    ...     hub.send(member.id, b"version 7 comes")
    ...     member.receive()
    b'version 7 comes'
    """

    def __init__(
        self,
        address: str = "127.0.0.1:0",
        *,
        secret: str = "",
        open_to_all: bool = False,
        max_members: int = 4096,
        handshake_timeout: float = 10,
        silence: float = 15,
    ) -> None:
        self.handle = _core.Hub(address, secret, open_to_all, max_members, handshake_timeout, silence)

    @property
    def address(self) -> str:
        """`host:port`, to join."""
        return self.handle.address

    def members(self) -> list[MemberInfo]:
        """Those who are there now."""
        return [MemberInfo(*info) for info in self.handle.members()]

    def wait_for(self, count: int, timeout: float = 60) -> None:
        """Until so many are there."""
        self.handle.wait_for(count, timeout)

    def send(self, member: int, message: bytes, timeout: float = 60) -> None:
        """`Unavailable` when the member is gone or late."""
        self.handle.send(member, message, timeout)

    def receive(self, member: int, timeout: float = 60) -> bytes:
        """The member's next message."""
        return self.handle.receive(member, timeout)

    def dismiss(self, member: int, reason: str = "") -> None:
        """Let a member go; `reason` is the last that it hears."""
        self.handle.dismiss(member, reason)

    def close(self) -> None:
        """Say goodbye to all."""
        self.handle.close()


class Member(Closing):
    """A connection to a hub; it may not be there yet. `InvalidArgument` when the secrets differ."""

    def __init__(self, hub: str, *, secret: str = "", name: str = "", hello: bytes = b"", timeout: float = 30) -> None:
        self.handle = _core.Member(hub, secret, name, hello, timeout)

    @property
    def id(self) -> int:
        """By which the hub knows it."""
        return self.handle.id

    @property
    def address(self) -> str:
        """Of this end of the connection."""
        return self.handle.address

    @property
    def lost(self) -> bool:
        """The hub is gone."""
        return self.handle.lost

    def send(self, message: bytes, timeout: float = 60) -> None:
        """To the hub."""
        self.handle.send(message, timeout)

    def receive(self, timeout: float = 60) -> bytes:
        """The hub's next message. `Cancelled`, with its reason, when it let this member go."""
        return self.handle.receive(timeout)

    def abort(self) -> None:
        """End `receive()` of another thread with `Cancelled`."""
        self.handle.abort()

    def close(self) -> None:
        """Leave."""
        self.handle.close()
