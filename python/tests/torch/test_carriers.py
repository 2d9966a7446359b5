"""Groups of ranks and hubs, from Python and written in Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from interrupted import interrupted

import deltawire as dw
from deltawire import _core, carriers
from deltawire.carriers import Buffer, Carrier, Hub, Member


def on_all(group: Sequence[Carrier], body: Callable[[Carrier], None]) -> None:
    failures: list[BaseException] = []

    def run(carrier: Carrier) -> None:
        try:
            body(carrier)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(carrier,)) for carrier in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Forwarding(Carrier):
    """Written in Python, around another one: what it is given goes through the border twice."""

    def __init__(self, inner: Carrier) -> None:
        self.inner = inner
        self.name, self.rank, self.size = "forwarding", inner.rank, inner.size
        self.lent: list[Buffer] = []

    def exchange(self, to: Sequence[tuple[int, Buffer]], from_: Sequence[tuple[int, Buffer]], timeout: float) -> None:
        self.lent += [data for _, data in [*to, *from_]]
        self.inner.exchange(to, from_, timeout)

    def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
        self.inner.broadcast(root, data, timeout)

    def lost(self) -> list[int]:
        return self.inner.lost()

    def abort(self) -> None:
        self.inner.abort()


class ForwardingBackend(carriers.Backend):
    class Gathering(carriers.Gathering):
        def __init__(self, inner: carriers.Gathering) -> None:
            self.inner, self.ticket = inner, inner.ticket

        def finish(self, timeout: float) -> Carrier:
            return Forwarding(self.inner.finish(timeout))

    name = "forwarding"

    def open(self, size: int, host: str, timeout: float) -> carriers.Gathering:
        return self.Gathering(carriers.open_group(size, host=host, timeout=timeout))

    def enter(self, ticket: str, rank: int, size: int, timeout: float) -> Carrier:
        return Forwarding(carriers.enter_group(ticket, rank, size, timeout=timeout))


def around_the_ring(carrier: Carrier) -> None:
    own = np.full(100_000, carrier.rank, np.int64)
    room = np.empty_like(own)
    before, after = (carrier.rank - 1) % carrier.size, (carrier.rank + 1) % carrier.size
    carrier.exchange([(after, own), (after, b"")], [(before, room)], 30)
    assert (room == before).all()
    word = bytearray(b"word") if carrier.rank == 1 else bytearray(4)
    carrier.broadcast(1, word, 30)
    assert word == b"word"


def test_a_group_inside_a_process() -> None:
    on_all(carriers.local_group(4), around_the_ring)


@pytest.mark.parametrize("backend", ["tcp", "forwarding"])
def test_a_group_by_ticket(backend: str) -> None:
    carriers.add_backend(ForwardingBackend())
    assert backend in carriers.backends()
    gathering = carriers.open_group(3, backend=backend)
    group: list[Carrier] = []

    def enter(rank: int) -> None:
        group.append(carriers.enter_group(gathering.ticket, rank, 3, backend=backend))

    threads = [threading.Thread(target=enter, args=(rank,)) for rank in (2, 1)]
    for thread in threads:
        thread.start()
    group.append(gathering.finish(30))
    for thread in threads:
        thread.join()
    assert sorted(carrier.rank for carrier in group) == [0, 1, 2]
    assert {carrier.name for carrier in group} == {backend}
    on_all(group, around_the_ring)


def test_lent_memory_is_taken_back() -> None:
    inner = carriers.local_group(2)
    python = [Forwarding(carrier) for carrier in inner]
    handles = [_core.adapt_carrier(carrier) for carrier in python]
    thread = threading.Thread(target=lambda: handles[0].exchange([(1, b"abc")], [], 10))
    thread.start()
    room = bytearray(3)
    handles[1].exchange([], [(0, room)], 10)
    thread.join()
    assert room == b"abc"
    for view in python[0].lent + python[1].lent:
        with pytest.raises(ValueError, match="released"):
            bytes(view)


def test_what_a_carrier_raises_comes_back() -> None:
    class Broken(Forwarding):
        def broadcast(self, root: int, data: Buffer, timeout: float) -> None:
            raise dw.Unavailable("rank 3 is gone")

        def exchange(self, *arguments: object) -> None:
            raise KeyError("a bug")

    handle = _core.adapt_carrier(Broken(carriers.local_group(1)[0]))
    with pytest.raises(dw.Unavailable, match="forwarding: rank 3 is gone"):
        handle.broadcast(0, bytearray(1), 1)
    with pytest.raises(dw.InternalError, match="a bug") as raised:
        handle.exchange([], [], 1)
    assert isinstance(raised.value.__cause__, KeyError)


def test_late_gone_and_aborted_ranks() -> None:
    first, second = carriers.local_group(2)
    with pytest.raises(dw.Unavailable, match="rank 1 did not finish"):
        first.exchange([], [(1, bytearray(1))], 0.01)
    assert first.lost() == [1]
    with pytest.raises(dw.Unavailable, match="rank 0 is gone"):
        second.exchange([], [(0, bytearray(1))], 10)
    first, second = carriers.local_group(2)
    timer = threading.Timer(0.1, first.abort)
    timer.start()
    with pytest.raises(dw.Cancelled):
        first.exchange([], [(1, bytearray(1))], 60)
    timer.join()


def test_room_must_be_writable() -> None:
    first, _second = carriers.local_group(2)
    with pytest.raises(BufferError):
        first.exchange([], [(1, b"constant")], 1)


def test_ctrl_c_ends_a_call() -> None:
    first, _second = carriers.local_group(2)
    with interrupted(0.2):
        first.exchange([], [(1, bytearray(1))], 60)


def test_hub_and_member() -> None:
    with Hub(secret="s") as hub:
        with pytest.raises(dw.InvalidArgument, match="secret"):
            Member(hub.address, secret="t")
        member = Member(hub.address, secret="s", name="one", hello=b"\0hi")
        hub.wait_for(1)
        [info] = hub.members()
        assert (info.id, info.name, info.hello, info.address) == (member.id, "one", b"\0hi", member.address)
        hub.send(info.id, b"\xff\0")
        assert member.receive() == b"\xff\0"
        with pytest.raises(dw.Unavailable, match="timed out"):
            member.receive(0.2)
        assert not member.lost
        member.send(b"last words")
        member.close()
        assert hub.receive(info.id) == b"last words"
        with pytest.raises(dw.Unavailable, match="member one .* left"):
            hub.receive(info.id)
        with pytest.raises(dw.NotFound):
            hub.send(99, b"")
        other = Member(hub.address, secret="s")
        hub.dismiss(other.id, "no room")
        with pytest.raises(dw.Cancelled, match="no room"):
            other.receive()


def test_a_hub_that_closes_is_noticed() -> None:
    hub = Hub()
    member = Member(hub.address)
    hub.close()
    with pytest.raises(dw.Cancelled, match="closed"):
        member.receive()
    assert member.lost


def test_ctrl_c_ends_a_wait() -> None:
    with Hub() as hub, interrupted(0.2):
        hub.wait_for(1, 600)
