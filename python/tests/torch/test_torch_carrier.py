"""Process groups of torch as carriers: real processes, gloo on the CPU."""

import os
import re
import signal
import threading

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

from rank_processes import Rank, error_of, run_ranks

import deltawire as dw
from deltawire.torch.carrier import TorchCarrier
from deltawire.torch.groups import TorchBackend

SIZES = [0, 1, 4096, 1 << 20]


def _bytes(source: int, target: int, index: int, size: int) -> bytes:
    return bytes([(source * 64 + target * 8 + index) % 251]) * size


def _all_to_all(carrier: TorchCarrier) -> None:
    """Several of each size to and from everybody, and nobody else's."""
    others = [rank for rank in range(carrier.size) if rank != carrier.rank and rank not in carrier.lost()]
    to = [(rank, _bytes(carrier.rank, rank, i, size)) for i, size in enumerate(SIZES) for rank in others]
    from_ = [(rank, bytearray(size)) for size in SIZES for rank in reversed(others)]
    carrier.exchange(to, from_, 60)
    expected = [_bytes(rank, carrier.rank, i, size) for i, size in enumerate(SIZES) for rank in reversed(others)]
    assert [data for _, data in from_] == expected


def _exchanges(rank: Rank) -> tuple[str, int, int]:
    carrier = rank.carrier()
    for _ in range(3):
        _all_to_all(carrier)
    for root in range(carrier.size):
        data = bytearray(b"\x07" * 100_000 if carrier.rank == root else 100_000)
        carrier.broadcast(root, data, 60)
        assert data == b"\x07" * 100_000
    carrier.broadcast(0, bytearray(), 60)
    carrier.exchange([], [], 60)
    return carrier.name, carrier.rank, carrier.size


@pytest.mark.parametrize("size", [2, 3, 8])
def test_exchange_and_broadcast(size: int) -> None:
    assert run_ranks(size, _exchanges) == [("gloo", rank, size) for rank in range(size)]


def _pairs(rank: Rank) -> None:
    """Only those who name each other call, and each as often as it has to."""
    carrier = rank.carrier()
    if rank.rank == 0:
        for other, times in ((1, 2), (2, 1)):
            for index in range(times):
                carrier.exchange([(other, _bytes(0, other, index, 5000))], [], 60)
    else:
        for index in range(3 - rank.rank):
            data = bytearray(5000)
            carrier.exchange([], [(0, data)], 60)
            assert data == _bytes(0, rank.rank, index, 5000)


def test_ranks_with_nothing_to_say_do_not_call() -> None:
    run_ranks(3, _pairs)


def _one_dies(rank: Rank) -> tuple[list[str], list[int]]:
    carrier = rank.carrier()
    _all_to_all(carrier)
    if rank.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    said = [error_of(lambda: _all_to_all(carrier))]
    _all_to_all(carrier)  # the others go on
    said.append(error_of(lambda: carrier.exchange([(2, b"x" * 1000)], [], 60)))
    _all_to_all(carrier)
    return said, carrier.lost()


def test_a_killed_rank_is_named_and_the_others_go_on() -> None:
    results = run_ranks(4, _one_dies)
    assert results.pop(2) is None
    for said, lost in results:
        assert lost == [2]
        for words in said:
            assert re.fullmatch(r"Unavailable: gloo: rank 2 is gone: .+", words), words


def _one_dies_in_a_broadcast(rank: Rank) -> tuple[str, str, list[int]]:
    carrier = rank.carrier()
    data = bytearray(1 << 20)
    carrier.broadcast(0, data, 60)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    first = error_of(lambda: [carrier.broadcast(0, data, 60) for _ in range(100)])
    return first, error_of(lambda: carrier.broadcast(0, data, 60)), carrier.lost()


def test_a_rank_killed_in_a_broadcast() -> None:
    results = run_ranks(2, _one_dies_in_a_broadcast)
    assert results[1] is None
    first, second, lost = results[0]
    assert re.fullmatch(r"Unavailable: gloo: rank 1 is gone: .+", first), first
    assert second.startswith("Unavailable: gloo: the group is of no use any more"), second
    assert lost == [1]


def _one_hangs(rank: Rank, how: str) -> tuple[str, str, list[int]] | None:
    carrier = rank.carrier()
    pid = bytearray(os.getpid().to_bytes(8, "little") if rank.rank == 1 else 8)
    carrier.broadcast(1, pid, 60)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    data = bytearray(1 << 20)
    calls = {
        "receive": lambda: carrier.exchange([], [(1, data)], 0.5),
        "send": lambda: carrier.exchange([(1, bytes(1 << 26))], [], 0.5),
        "broadcast": lambda: carrier.broadcast(1, data, 0.5),
    }
    first = error_of(calls[how])
    second = error_of(lambda: carrier.exchange([(1, b"x")], [], 60))
    os.kill(int.from_bytes(pid, "little"), signal.SIGCONT)
    return first, second, carrier.lost()


@pytest.mark.parametrize("how", ["receive", "send", "broadcast"])
def test_a_rank_that_hangs(how: str) -> None:
    (first, second, lost), _ = run_ranks(2, _one_hangs, how)
    assert second.startswith("Unavailable: gloo: the group is of no use any more"), second
    if how == "broadcast":  # of which gloo does not say who is late
        assert re.fullmatch(r"Unavailable: gloo: rank 0: Timed out waiting .+", first), first
    else:
        assert re.fullmatch(r"Unavailable: gloo: rank 1 is late: Timed out waiting .+", first), first
        assert lost == [1]


def _aborts(rank: Rank, how: str) -> list[str] | None:
    carrier = rank.carrier()
    if rank.rank == 1:
        rank.told()
        return None
    aborting = threading.Timer(0.2, carrier.abort)
    aborting.start()
    data = bytearray(1 << 20)
    waiting = {"exchange": lambda: carrier.exchange([], [(1, data)], 200), "broadcast": lambda: carrier.broadcast(1, data, 200)}
    said = [error_of(waiting[how]), error_of(lambda: carrier.exchange([], [], 1))]
    aborting.join()
    rank.told("you may go")
    return said


@pytest.mark.parametrize("how", ["exchange", "broadcast"])
def test_abort_ends_what_another_thread_waits_for(how: str) -> None:
    said, _ = run_ranks(2, _aborts, how)
    assert said == ["Cancelled: gloo: the group was aborted"] * 2


def _wrong_sizes(rank: Rank) -> list[str]:
    backend = TorchBackend("gloo")
    if rank.rank == 0:
        gathering = backend.open(3, "127.0.0.1", 60)
        rank.told(gathering.ticket)
        return [error_of(lambda: gathering.finish(30))]
    ticket = rank.told()
    refused = [error_of(lambda: backend.enter(ticket, 1, 2, 8)), error_of(lambda: backend.enter(ticket, 3, 3, 8))]
    return [*refused, error_of(lambda: backend.enter(ticket, 1, 3, 30))]


def test_a_wrong_number_of_ranks() -> None:
    (first,), (other_size, no_rank, missing) = run_ranks(2, _wrong_sizes)
    assert first == "Unavailable: gloo: 1 of 3 ranks did not come in time: 2"
    assert other_size == "InvalidArgument: gloo: the group has 3 ranks, and rank 1 was told of 2"
    assert no_rank == "InvalidArgument: gloo: rank 3 is not one of 1 to 2"
    assert missing.startswith("Unavailable: gloo: ")


def _beside_others(rank: Rank) -> None:
    import torch.distributed as dist

    port = 0
    if rank.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
    port = rank.told(port)
    if rank.rank != 0:
        store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank.rank, world_size=rank.size)
    groups = [TorchCarrier(), TorchCarrier(dist.new_group(backend="gloo")), rank.carrier(), rank.carrier()]
    for carrier in groups:
        _all_to_all(carrier)
    dist.barrier()  # the default group is as it was
    dist.destroy_process_group()
    _all_to_all(groups[-1])


def test_groups_beside_the_default_one() -> None:
    run_ranks(3, _beside_others)


def test_what_is_no_group_is_refused() -> None:
    assert "no default one" in error_of(TorchCarrier)
    backend = TorchBackend("gloo")
    for ticket in ("", "127.0.0.1 0 2 x", "127.0.0.1 99999 2 x", "127.0.0.1 80 -1 x", "a b c d e"):
        assert error_of(lambda ticket=ticket: backend.enter(ticket, 1, 2, 1)).startswith("InvalidArgument: not the ticket")
    assert error_of(lambda: backend.open(2, "192.0.2.1", 1)).startswith("Unavailable: gloo: 192.0.2.1 cannot be listened on")
    closed = backend.open(2, "127.0.0.1", 1).ticket  # its store went with it
    assert error_of(lambda: backend.enter(closed, 1, 2, 1)).startswith("Unavailable: gloo: rank 0 at 127.0.0.1:")
    alone = backend.open(1, "127.0.0.1", 10).finish(10)
    alone.broadcast(0, bytearray(b"abc"), 1)
    for rank in (0, 1, -1):
        assert "is not another one" in error_of(lambda rank=rank: alone.exchange([(rank, b"x")], [], 1))
    assert "is not one of the 1" in error_of(lambda: alone.broadcast(1, bytearray(1), 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nccl_needs_a_gpu() -> None:
    with pytest.raises(dw.Unsupported, match="nccl"):
        TorchBackend("nccl").open(2, "127.0.0.1", 1)
