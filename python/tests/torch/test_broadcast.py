"""Versions through a process group: real processes, gloo on the CPU, and failures of one of them."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist
from rank_processes import Rank, run_ranks
from watched_store import Watched

import deltawire as dw
from deltawire.torch import Broadcast, Rendezvous
from deltawire.torch.rendezvous import Wire

RANKS = 3


class Counted(Watched):
    """Records the names of objects read from the backing store."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read: set[str] = set()

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().get(name, offset, length)
        self.read.add(name)
        return data


def model(step: int = 0) -> dict[str, np.ndarray]:
    """The same in every process."""
    random = np.random.default_rng(1)
    weights = {"a": random.standard_normal(200_000).astype(np.float32), "b": np.zeros((50, 50), np.float16)}
    for number in range(1, step + 1):
        weights["a"][number::97] += 1
        weights["b"][number % 50] = number
    return weights


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def place(port: int, rank: int, size: int = RANKS) -> Rendezvous:
    return Rendezvous(master_address="127.0.0.1", master_port=port, world_size=size, rank=rank)


def until(is_so: Callable[[], Any], words: str) -> None:
    end = time.monotonic() + 100
    while not is_so():
        assert time.monotonic() < end, words
        time.sleep(0.02)


class Follower:
    """A replica that is compared at every version."""

    def __init__(self, store: Any) -> None:
        self.weights = {name: np.zeros_like(array) for name, array in model().items()}
        self.replica = dw.TensorReplica(store, self.weights)

    def reach(self, version: int) -> None:
        *_, pulled = self.replica.follow(until=version, interval=0.5, timeout=100)
        assert pulled.version == version
        assert all(self.weights[name].tobytes() == array.tobytes() for name, array in model(version).items())


@contextmanager
def dying(call: Callable[[], Any]) -> Iterator[int]:
    """A process that is killed at the end of the `with` block."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _all_versions(rank: Rank, port: int, folder: Path, mode: str) -> None:
    group: Any = place(port, rank.rank)
    if mode == "of torch":
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank.rank, world_size=RANKS)
        group = None
    with Broadcast(group, Counted(folder) if rank.rank else folder, timeout=30) as broadcast:
        broadcast.wait(100)
        if rank.rank == 0:
            with dw.Publisher(broadcast.store, model(), anchors="only" if mode == "full" else None) as publisher:
                for step in range(4):
                    assert publisher.publish(model(step)).number == step
                    rank.meet()
            broadcast.flush(60)
            assert broadcast.error is None
        else:
            until(lambda: dw.open_store(folder).list("manifests/"), "version 0")
            follower = Follower(broadcast.store)
            for step in range(4):
                follower.reach(step)
                rank.meet()
            assert broadcast.error is None
        rank.meet()
    if mode == "of torch":
        dist.destroy_process_group()


@pytest.mark.parametrize("mode", ["delta", "full", "of torch"])
def test_all_ranks_receive_every_version(tmp_path: Path, mode: str) -> None:
    run_ranks(RANKS, _all_versions, free_port(), tmp_path, mode)


def _nothing_is_read_behind(rank: Rank, port: int, folder: Path, damage: str) -> set[str]:
    store: Any = folder if rank.rank == 0 else Counted(folder)
    broadcast_bytes = Wire.broadcast

    def damaged(self: Wire, data: torch.Tensor) -> None:
        broadcast_bytes(self, data)
        if (data.numpy()[:1] == ord("{")) == (damage == "manifest"):
            data[data.numel() // 2] ^= 1

    if rank.rank == 1 and damage in ("part", "manifest"):
        Wire.broadcast = damaged  # type: ignore[method-assign]
    memory = 4096 if rank.rank == 1 and damage == "too large" else 2 << 30
    with Broadcast(place(port, rank.rank), store, timeout=30, memory_bytes=memory) as broadcast:
        broadcast.wait(100)
        if rank.rank == 0:
            with dw.Publisher(broadcast.store, model()) as publisher:
                publisher.publish()
                rank.meet()
                rank.meet()
                for step in range(1, 4):
                    publisher.publish(model(step))
                    broadcast.flush(60)
                    rank.meet()
            rank.meet()
            return set()
        rank.meet()
        follower = Follower(broadcast.store)
        follower.reach(0)
        rank.meet()
        store.read.clear()
        for step in range(1, 4):
            rank.meet()
            time.sleep(0.3)  # what was sent has come
            follower.reach(step)
        assert broadcast.error is None
        rank.meet()
    return {name.partition("-")[0] for name in store.read if name.startswith(("parts/", "manifests/"))}


@pytest.mark.parametrize("damage", ["", "part", "manifest", "too large"])
def test_reads_damaged_objects_from_the_backing_store(tmp_path: Path, damage: str) -> None:
    _, first, second = run_ranks(RANKS, _nothing_is_read_behind, free_port(), tmp_path, damage)
    versions = [f"{number:010}" for number in (1, 2, 3)]
    parts, manifests = {f"parts/{number}" for number in versions}, {f"manifests/{number}.json" for number in versions}
    assert not second & (parts | manifests)
    assert parts & first == (parts if damage else set())
    if damage != "too large":  # there is room for one manifest
        assert manifests & first == (manifests if damage == "manifest" else set())


def _member_dies(rank: Rank, port: int, folder: Path, how: str) -> None:
    here = place(port, rank.rank)
    if rank.rank == 0:
        with Broadcast(here, folder, timeout=4) as broadcast, dw.Publisher(broadcast.store, model()) as publisher:
            broadcast.wait(100)
            publisher.publish()
            broadcast.flush(60)
            rank.meet()  # rank 2 is killed or stopped
            published, broadcast_bytes = threading.Event(), Wire.broadcast

            def hold(self: Wire, data: torch.Tensor) -> None:
                published.wait()  # a publish that waited for the group would never end
                broadcast_bytes(self, data)

            Wire.broadcast = hold  # type: ignore[method-assign]
            publisher.publish(model(1))
            published.set()
            until(lambda: broadcast.error, "the end of the group")
            assert isinstance(broadcast.error, dw.Unavailable)
            assert "the group of 3 ranks has ended (rank 0)" in str(broadcast.error)
            assert ("rank 2" in str(broadcast.error)) == (how == "killed"), broadcast.error
            publisher.publish(model(2))
            rank.meet()  # it may come back
            broadcast.wait(100)
            assert broadcast.error is None
            publisher.publish(model(3))
            broadcast.flush(60)
            rank.meet()
    elif rank.rank == 1:
        with Broadcast(here, folder, timeout=4) as broadcast:
            broadcast.wait(100)
            until(lambda: dw.open_store(folder).list("manifests/"), "version 0")
            follower = Follower(broadcast.store)
            follower.reach(0)
            rank.meet()
            follower.reach(1)
            follower.reach(2)  # of the store behind
            assert "the group of 3 ranks has ended (rank 1)" in str(broadcast.error)
            rank.meet()
            broadcast.wait(100)
            follower.reach(3)
            rank.meet()
    else:

        def member() -> None:
            with Broadcast(here, folder, timeout=4) as broadcast:
                broadcast.wait(100)
                until(lambda: dw.open_store(folder).list("manifests/"), "version 0")
                follower = Follower(broadcast.store)
                follower.reach(0)
                (folder / "there").touch()
                if how == "stopped":
                    follower.reach(3)
                    os.kill(os.getppid(), signal.SIGUSR1)
                time.sleep(600)

        came: list[int] = []
        signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
        with dying(member) as pid:
            until((folder / "there").exists, "version 0 in the process that will fail")
            if how == "stopped":
                os.kill(pid, signal.SIGSTOP)
                rank.meet()
                rank.meet()
                os.kill(pid, signal.SIGCONT)
                until(lambda: came, "version 3 in the process that was stopped")
                rank.meet()
                return
        rank.meet()
        rank.meet()
        with Broadcast(here, folder, timeout=4) as broadcast:
            Follower(broadcast.store).reach(3)
            rank.meet()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_failed_member_ends_the_group_and_may_rejoin(tmp_path: Path, how: str) -> None:
    run_ranks(RANKS, _member_dies, free_port(), tmp_path, how)


def _trainer_dies(rank: Rank, port: int, folder: Path) -> None:
    here = place(port, rank.rank)
    if rank.rank == 0:

        def first() -> None:
            broadcast = Broadcast(here, folder, timeout=4)
            broadcast.wait(100)
            publisher = dw.Publisher(broadcast.store, model())
            publisher.publish()
            publisher.publish(model(1))
            (folder / "there").touch()
            time.sleep(600)

        with dying(first):
            until((folder / "there").exists, "version 1")
            rank.meet()
        rank.meet()
        with Broadcast(here, folder, timeout=4) as broadcast, dw.Publisher(broadcast.store, model(2)) as publisher:
            broadcast.wait(100)
            assert publisher.publish(model(2)).number == 2
            broadcast.flush(60)
            rank.meet()
        return
    with Broadcast(here, folder, timeout=4) as broadcast:
        broadcast.wait(100)
        rank.meet()
        follower = Follower(broadcast.store)
        follower.reach(1)
        until(lambda: broadcast.error, "the end of the group")
        assert "has ended" in str(broadcast.error) or "127.0.0.1" in str(broadcast.error)
        rank.meet()
        follower.reach(2)
        assert broadcast.error is None
        rank.meet()


def test_killed_trainer_may_rejoin(tmp_path: Path) -> None:
    run_ranks(RANKS, _trainer_dies, free_port(), tmp_path)


def _idle(rank: Rank, port: int, folder: Path) -> None:
    with Broadcast(place(port, rank.rank, 2), folder, timeout=2) as broadcast:
        broadcast.wait(100)
        time.sleep(6)
        assert broadcast.error is None
        rank.meet()


def test_idle_group_stays_alive(tmp_path: Path) -> None:
    run_ranks(2, _idle, free_port(), tmp_path)


def _slow(rank: Rank, port: int, folder: Path) -> float:
    """A member that receives one piece per 0.1 s."""
    broadcast_bytes = Wire.broadcast

    def slow(self: Wire, data: torch.Tensor) -> None:
        time.sleep(0.1)
        broadcast_bytes(self, data)

    if rank.rank == 1:
        Wire.broadcast = slow  # type: ignore[method-assign]
    with Broadcast(place(port, rank.rank, 2), folder, timeout=30, buffer_bytes=64 << 10) as broadcast:
        broadcast.wait(100)
        most = 0
        if rank.rank == 0:
            with dw.Publisher(broadcast.store, model(), anchors="only") as publisher:
                began = time.monotonic()
                publisher.publish()
                took = time.monotonic() - began
                most = broadcast._link.outbox._bytes
            broadcast.flush(60)
            rank.meet()
            assert most <= 128 << 10
            return took
        until(lambda: dw.open_store(folder).list("manifests/"), "version 0")
        Follower(broadcast.store).reach(0)
        rank.meet()
    return 0.0


def test_publish_waits_for_a_slow_member(tmp_path: Path) -> None:
    took, _ = run_ranks(2, _slow, free_port(), tmp_path)
    assert took > 0.5


def test_reports_mistakes(tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match="no default group"):
        Broadcast(None, tmp_path)
    with pytest.raises(dw.InvalidArgument, match="rank 0 of a Rendezvous"):
        Broadcast(place(7000, 1), tmp_path, src=1)
    with pytest.raises(dw.InvalidArgument, match="one of the 3 ranks"):
        place(7000, 3)
    with pytest.raises(dw.InvalidArgument, match="must be one of gloo, nccl"):
        Rendezvous(master_address="a", master_port=1, world_size=2, rank=0, backend="pigeon")  # type: ignore[arg-type]
    with Broadcast(place(free_port(), 1), tmp_path) as broadcast:  # there is no rank 0
        until(lambda: broadcast.error, "an error")
        assert isinstance(broadcast.error, dw.Unavailable)
        with pytest.raises(dw.Unavailable, match="refused"):
            broadcast.wait(0.1)
    assert not broadcast._link._thread.is_alive()
