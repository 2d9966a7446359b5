"""From the ranks of a trainer straight into the workers of an engine: members over real groups, without an engine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_models import Engine, changed, checkpoint
from safetensors.torch import save_file

import deltawire as dw
from deltawire import carriers
from deltawire.engines.map import bits
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.torch import ShardPublisher

SECRET = "of this test"
WAIT = 240.0


class Rank:
    """A worker among threads: what each says is received by all."""

    def __init__(self, rank: int, barrier: threading.Barrier, words: list[Any]) -> None:
        self.rank, self.size, self._barrier, self._words = rank, len(words), barrier, words

    def all_gather(self, data: bytes) -> list[bytes]:
        self._words[self.rank] = data
        self._barrier.wait(WAIT)
        gathered = list(self._words)
        self._barrier.wait(WAIT)
        return gathered


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each gives, in a thread of its own, or raises."""
    results: list[Any] = [None] * len(calls)

    def one(number: int) -> None:
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT)
        assert not thread.is_alive()
    return results


def rows(tensors: dict[str, Any], rank: int, ranks: int) -> dict[str, dw.Tensor]:
    """What a rank of FSDP holds: the rows that `torch.chunk` gives it, in memory of its own."""
    held = {}
    for name, tensor in tensors.items():
        size = -(-tensor.shape[0] // ranks)
        part = tensor[rank * size : (rank + 1) * size].clone()
        if part.numel():
            held[name] = dw.Tensor(part, shape=tuple(tensor.shape), offset=(rank * size,) + (0,) * (tensor.dim() - 1))
    return held


class Trainer:
    """Two ranks, as threads."""

    def __init__(self, tensors: dict[str, Any], backend: str, port: int = 0, timeout: float = WAIT, workers: int = 2) -> None:
        self.tensors, self._held = tensors, [rows(tensors, rank, 2) for rank in range(2)]
        self.ranks: list[ShardPublisher] = []
        address = f"127.0.0.1:{port}"
        for rank in range(2):
            options = {"engine_workers": workers, "rank": rank, "ranks": 2, "secret": SECRET, "backend": backend}
            options |= {"timeout": timeout, "patience": 10, "history_bytes": 1 << 20}
            self.ranks.append(ShardPublisher(self._held[rank], address, **options))
            address = self.ranks[0].address
        self.port = int(address.rpartition(":")[2])

    def step(self, seed: int) -> None:
        self.tensors = changed(self.tensors, seed)
        for rank, held in enumerate(self._held):
            for name, part in rows(self.tensors, rank, 2).items():
                held[name].array.copy_(part.array)

    def publish(self, wait: bool = False) -> list[Any]:
        return together(*(lambda one=one: one.publish(wait=wait) for one in self.ranks))

    def go_to(self, version: int, whole: int | None = None) -> None:
        """Publish the next version: no worker fails."""
        published = self.publish()
        assert [(one.version, one.errors) for one in published] == [(version, {})] * 2, published
        assert whole is None or [one.report.num_whole for one in published] == [whole] * 2

    def close(self) -> None:
        for one in reversed(self.ranks):
            one.close()


def numbered(said: dict[str, Any]) -> dict[str, Any]:
    """An answer with the number of a version in place of its identity."""
    return {key: value.version if isinstance(value, dw.Identity) else value for key, value in said.items()}


class Served:
    """An engine of two tensor-parallel workers, between whose steps calls are made."""

    def __init__(
        self, folder: Path, port: int, tensors: dict[str, Any], place: tuple[int, int] = (2, 4), kind: type = Engine, **form: Any
    ) -> None:
        """`place`: rank_offset and world_size."""
        folder.mkdir(exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        named = {"transport": "gloo", "shards": True, "master_address": "127.0.0.1", "master_port": port, "secret": SECRET}
        self._settings = Settings.of(
            named | {"local": str(folder), "world_size": place[1], "rank_offset": place[0], "interval": 0.1}
        )
        self._form, self._kind, barrier, words = form, kind, threading.Barrier(2), [None] * 2
        self.engines = [loaded(tensors, kind, rank=rank, world=2, **form) for rank in range(2)]
        self.members = [
            Member(self._settings, engine, engine="test", group=Rank(rank, barrier, words), reload=engine.load_weights)
            for rank, engine in enumerate(self.engines)
        ]

    def call(self, name: str, **options: Any) -> list[dict[str, Any]]:
        return [numbered(said) for said in together(*(lambda one=one: one.call(name, **options) for one in self.members))]

    def wait_for(self, version: int) -> None:
        """Until both have it staged."""
        wait_until(lambda: all((said["ok"].get("staged") or {}).get("version") == version for said in self.call("status")))

    def assert_serves(self, tensors: dict[str, Any]) -> None:
        for rank, engine in enumerate(self.engines):
            expected = loaded(tensors, self._kind, rank=rank, world=2, **self._form)
            for (name, own), other in zip(engine.named_parameters(), expected.parameters(), strict=True):
                assert torch.equal(bits(own), bits(other)), (rank, name)

    def take(self, version: int, tensors: dict[str, Any], call: str = "update") -> None:
        """Go to a version that comes, and serve these."""
        self.wait_for(version)
        assert self.call(call) == [{"ok": version}] * 2
        self.assert_serves(tensors)

    def keep(self, tensors: dict[str, Any]) -> None:
        """Nothing has come: the first version is served on."""
        assert self.call("update") == [{"ok": 0}] * 2
        self.assert_serves(tensors)

    def close(self) -> None:
        for member in self.members:
            member.close()


def loaded(tensors: dict[str, Any], kind: type = Engine, **form: Any) -> Any:
    engine = kind(**form)
    engine.load_weights(tensors.items())
    return engine


def wait_until(said: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def running(
    folder: Path, backend: str = "tcp", timeout: float = WAIT, trained: dict[str, Any] | None = None, **form: Any
) -> Iterator[tuple[Trainer, Served]]:
    """A trainer and an engine that was started from the weights before its first step."""
    tensors = checkpoint(tied=form.get("tied", False))
    trainer = Trainer(tensors if trained is None else trained, backend, timeout=timeout)
    served = Served(folder / "model", trainer.port, tensors, **form)
    try:
        yield trainer, served
    finally:
        served.close()
        trainer.close()


@contextmanager
def two_servers(folder: Path, timeout: float = WAIT) -> Iterator[tuple[Trainer, Served, Served]]:
    """A trainer and two engines, which have attached."""
    tensors = checkpoint()
    with ExitStack() as closing:
        trainer = closing.enter_context(contextlib.closing(Trainer(tensors, "tcp", workers=4, timeout=timeout)))
        servers = [Served(folder / str(first), trainer.port, tensors, (first, 6)) for first in (2, 4)]
        for served in servers:
            closing.callback(served.close)
            served.call("attach")
        yield trainer, *servers


def fail_after(
    monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, error: type[Exception] = dw.Unavailable, *, once: bool = False
) -> None:
    """It does its work, and fails then."""
    call = getattr(owner, method)

    def fail(*arguments: Any) -> None:
        call(*arguments)
        if once:
            monkeypatch.undo()
        raise error("memory is full")

    monkeypatch.setattr(owner, method, fail)


def begin(trainer: Trainer, served: Served) -> None:
    """The first version."""
    assert all("no version has come" in said["error"] for said in served.call("attach"))
    trainer.go_to(0)
    served.take(0, trainer.tensors, "attach")


def go_on(trainer: Trainer, served: Served, version: int) -> None:
    """The next version, with changes, on all workers."""
    trainer.step(version)
    trainer.go_to(version)
    served.take(version, trainer.tensors)


@pytest.mark.parametrize(
    ("backend", "form"), [("tcp", {}), ("gloo", {}), ("tcp", {"transposed": True}), ("tcp", {"tied": True})], ids=str
)
def test_versions_go_from_rank_to_worker(tmp_path: Path, backend: str, form: dict[str, Any]) -> None:
    with running(tmp_path, backend, **form) as (trainer, served):
        trainer.step(1)  # the engine was started from an older one
        begin(trainer, served)
        for version in (1, 2, 3):
            trainer.step(version + 1)
            trainer.go_to(version, whole=0)
            served.take(version, trainer.tensors)
            assert trainer.ranks[0].settle() == {}
            for said in served.call("prove"):
                assert (said["ok"]["version"], said["ok"]["wrong"]) == (version, ())
                assert said["ok"]["num_tensors"] == len(trainer.tensors)
        pause = served.call("status")[0]["ok"]["last_pause"]
        assert pause["staged_before"]
        assert pause["changed"] > 0


def test_publish_waits_until_it_is_served(tmp_path: Path) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        trainer.step(1)

        def update() -> Any:
            served.wait_for(1)
            return served.call("update")

        said, updated = together(lambda: trainer.publish(wait=True), update)
        assert updated == [{"ok": 1}] * 2
        assert [(one.version, one.errors) for one in said] == [(1, {})] * 2
        served.assert_serves(trainer.tensors)


def test_a_failure_of_one_worker_takes_all_back(tmp_path: Path) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        trainer.step(1)
        trainer.publish()
        served.wait_for(1)
        norm = served.engines[1].norm.data  # one bit of a tensor that the version does not bring there turns, as memory's do
        bits(norm)[0] ^= 64
        assert all("error" in said for said in served.call("update"))
        bits(norm)[0] ^= 64
        served.assert_serves(before)
        assert all("its next version comes whole" in said["error"] for said in served.call("update"))
        errors = trainer.ranks[0].settle()
        assert sorted(errors) == [0, 1]
        assert "model.norm.weight" in errors[1]
        trainer.step(2)
        assert [(one.report.num_whole, one.report.num_merged) for one in trainer.publish()] == [(2, 0)] * 2
        served.take(2, trainer.tensors)


def test_a_version_that_comes_to_one_worker_alone_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        fail_after(monkeypatch, served.members[1].worker, "receive")
        trainer.step(1)
        first, second = trainer.publish()
        assert first.errors == second.errors
        assert [*first.errors.items()] == [(0, "it came not to all workers of its engine"), (1, "unavailable: memory is full")]
        served.keep(before)
        monkeypatch.undo()
        trainer.step(2)
        trainer.go_to(2)
        served.take(2, trainer.tensors)


@pytest.mark.parametrize("backend", ["tcp", "gloo"])
def test_a_trainer_that_is_gone_is_named_and_comes_back(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, backend) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        trainer.close()
        wait_until(lambda: all(said["ok"]["host_error"] for said in served.call("status")))
        assert str(trainer.port) in served.call("status")[0]["ok"]["host_error"]
        served.keep(before)
        with contextlib.closing(Trainer(changed(before, 5), backend, trainer.port)) as again:
            again.go_to(1)  # its numbers go on
            served.take(1, again.tensors)


def test_a_trainer_rank_that_dies_in_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, timeout=5) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        trainer.step(1)

        def die(version: int) -> None:
            trainer.ranks[1]._leave()  # its connections close, as they do when a process ends
            raise dw.Unavailable("killed")

        monkeypatch.setattr(trainer.ranks[1], "_send", die)
        first, second = trainer.publish()
        assert isinstance(first, dw.Unavailable)
        assert "trainer rank 1" in str(first)
        assert isinstance(second, dw.Unavailable)
        wait_until(lambda: all("rank 1" in (said["ok"]["host_error"] or "") for said in served.call("status")))
        served.keep(before)
        monkeypatch.undo()
        trainer.step(2)
        assert [one.errors for one in trainer.publish()] == [{}, {}]
        wait_until(lambda: all(said["ok"]["staged"] for said in served.call("status")))
        assert all("ok" in said for said in served.call("update"))
        served.assert_serves(trainer.tensors)


def cut(member: carriers.Member) -> None:
    """Its connection ends without a word."""
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                host, port, *_ = one.getsockname()
                if f"{host}:{port}" == member.address:
                    one.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):  # another kind of descriptor
            continue
    wait_until(lambda: member.lost)


def test_a_trainer_rank_that_loses_its_connection_joins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as (trainer, served):
        rank: Any = trainer.ranks[1]
        enter = rank._enter

        def enter_and_lose(words: Any) -> None:
            enter(words)
            monkeypatch.undo()  # once
            cut(rank._member)

        monkeypatch.setattr(rank, "_enter", enter_and_lose)
        begin(trainer, served)
        go_on(trainer, served, 1)


def test_a_worker_that_leaves_while_the_group_is_made_is_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as (trainer, served):
        fail_after(monkeypatch, served.members[1]._host, "_enter", RuntimeError, once=True)
        begin(trainer, served)


def test_workers_that_do_not_come_are_named(tmp_path: Path) -> None:
    with contextlib.closing(Trainer(checkpoint(), "tcp", timeout=5)) as trainer:
        first, second = trainer.publish()
    assert isinstance(first, dw.Unavailable)
    assert "engine worker 0, engine worker 1 did not join" in str(first)
    assert isinstance(second, dw.Unavailable)
    assert "engine worker 0" in str(second)


def test_a_trainer_of_another_dtype(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its tensors come whole, and the engine's loader converts them, as it does with a checkpoint of that dtype."""
    masters = {name: tensor.float() for name, tensor in checkpoint().items()}
    with running(tmp_path, trained=masters) as (trainer, served):
        begin(trainer, served)
        for version in (1, 2):
            trainer.step(version)
            trainer.go_to(version, whole=0)
            served.take(version, trainer.tensors)
        assert len(fallback_of(caplog)) == 2, "once for each worker"
        assert "other-dtype" in fallback_of(caplog)[0]
        assert "embed_tokens.weight" in fallback_of(caplog)[0]


_KILLED = """
import sys, torch
from safetensors.torch import load_file
from deltawire.torch import ShardPublisher
publisher = ShardPublisher(load_file(sys.argv[1]), engine_workers=1, secret=sys.argv[2], backend=sys.argv[3], timeout=60)
print(publisher.address, flush=True)
publisher.publish()
print("served", flush=True)
publisher._sender.send = lambda *_: sys.stdin.read()  # in the midst of the next one
publisher.publish()
"""


@pytest.mark.parametrize("backend", ["tcp", "gloo"])
def test_a_trainer_that_is_killed_in_a_version(tmp_path: Path, backend: str) -> None:
    tensors = checkpoint()
    save_file(tensors, tmp_path / "model.safetensors")
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "model.safetensors"), SECRET, backend]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        named = {"transport": backend, "shards": True, "master_address": host, "master_port": int(port), "secret": SECRET}
        named |= {"local": str(tmp_path), "world_size": 2, "rank_offset": 1, "interval": 0.1}
        engine = loaded(tensors)
        member = Member(Settings.of(named), engine, engine="test")
        try:
            wait_until(lambda: numbered(member.call("attach")) == {"ok": 0})
            assert process.stdout.readline() == "served\n"
            process.kill()
            wait_until(lambda: member.call("status")["ok"]["host_error"])
            words = member.call("status")["ok"]["host_error"]
            assert port in words or "rank 0 is gone" in words
            assert numbered(member.call("update")) == {"ok": 0}
            assert member.call("prove")["ok"]["wrong"] == ()
        finally:
            process.kill()
            member.close()


class Repacked(Engine):
    """Keeps a parameter otherwise than the checkpoint does, whatever is loaded."""

    def load_weights(self, weights: Any) -> None:
        super().load_weights(weights)
        self.norm.data.copy_(self.norm.data.flip(0))


def test_one_server_that_is_away_does_not_stop_the_others(tmp_path: Path) -> None:
    with two_servers(tmp_path) as (trainer, here, other):
        trainer.go_to(0)
        for served in (here, other):
            served.wait_for(0)
            assert served.call("attach") == [{"ok": 0}] * 2
        before = trainer.tensors
        links: list[Any] = [member._host for member in other.members]
        for link in links:  # its connections end, and it does not come back yet
            link._settings = replace(link._settings, master_port=1)
        hub: Any = trainer.ranks[0]._hub
        for info in hub.members():
            if info.name.endswith(("rank 4", "rank 5")):
                hub.dismiss(info.id)
        for version in (1, 2):
            trainer.step(version)
            published = trainer.publish()
            assert [list(one.errors) for one in published] == [[2, 3]] * 2
            assert "not there" in published[0].errors[2]
            here.take(version, trainer.tensors)
            other.assert_serves(before)
        for link in links:
            link._settings = replace(link._settings, master_port=trainer.port)
        wait_until(lambda: not any(said["ok"]["host_error"] for said in other.call("status")))
        trainer.step(3)
        published = trainer.publish()
        assert [(one.errors, one.report.num_whole, one.report.num_merged) for one in published] == [({}, 0, 2)] * 2
        for served in (here, other):
            served.take(3, trainer.tensors)
            assert all(said["ok"]["wrong"] == () for said in served.call("prove"))


def test_a_server_that_does_not_enter_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection lives, and it does nothing: the group is made without it."""
    with two_servers(tmp_path, timeout=6) as (trainer, here, other):
        stuck = threading.Event()
        link: Any = other.members[1]._host
        monkeypatch.setattr(link, "_enter", lambda *_: stuck.wait(WAIT))
        published = trainer.publish()
        assert not [one for one in published if isinstance(one, Exception)]
        assert [list(one.errors) for one in published] == [[2, 3]] * 2
        here.take(0, trainer.tensors, "attach")
        stuck.set()


def test_a_failure_of_one_server_leaves_the_other_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_servers(tmp_path) as (trainer, here, other):
        fail_after(monkeypatch, other.members[1].worker, "receive")
        assert [list(one.errors) for one in trainer.publish()] == [[2, 3]] * 2
        here.wait_for(0)
        assert here.call("attach") == [{"ok": 0}] * 2
        monkeypatch.undo()
        trainer.step(1)
        assert [one.errors for one in trainer.publish()] == [{}] * 2
        for served in (here, other):
            served.wait_for(1)
            assert all(said == {"ok": 1} for said in (*served.call("attach"), *served.call("update"))[2:])
            served.assert_serves(trainer.tensors)


def test_strangers_at_the_hub_do_no_harm(tmp_path: Path) -> None:
    """Whoever knows the secret may still say nonsense."""
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        huge = {"role": "engine", "rank": 2, "first": 2, "workers": 1 << 40, "server": "x", "world_size": 4}
        says: list[dict[str, Any]] = [
            huge,
            huge | {"workers": -1},
            huge | {"workers": "2"},
            huge | {"workers": 2, "server": None},
            huge | {"workers": 2, "version": "9"},
            huge | {"workers": 2, "rank": True},
            {"role": "trainer", "rank": 99},
            {"role": "trainer", "rank": -1},
            {"role": "trainer", "rank": [1]},
        ]
        words = [json.dumps(one).encode() for one in says] + [b"", b"\xff", b"[]", b"null"]
        address = trainer.ranks[0].address
        strangers = [carriers.Member(address, secret=SECRET, hello=hello, timeout=WAIT) for hello in words]
        try:
            trainer.step(1)
            trainer.go_to(1)
            served.take(1, trainer.tensors)
        finally:
            for stranger in strangers:
                stranger.close()


_RANK = """
import sys
from safetensors.torch import load_file
from deltawire import Tensor
from deltawire.torch import ShardPublisher
whole, address, secret = load_file(sys.argv[1]), sys.argv[2], sys.argv[3]
held = {}
for name, tensor in whole.items():
    size = -(-tensor.shape[0] // 2)
    if tensor.shape[0] > size:
        held[name] = Tensor(tensor[size:].clone(), shape=tuple(tensor.shape), offset=(size,) + (0,) * (tensor.dim() - 1))
publisher = ShardPublisher(held, address, engine_workers=2, rank=1, ranks=2, secret=secret, timeout=60)
print(publisher.publish(wait=False).version, flush=True)
publisher._sender.send = lambda *_: sys.stdin.read()  # in the midst of the next one
publisher.publish()
"""


def test_a_trainer_rank_that_is_killed_in_a_version(tmp_path: Path) -> None:
    """A process of its own, with two workers behind; what comes back begins anew."""
    tensors = checkpoint()
    save_file(tensors, tmp_path / "model.safetensors")
    first = ShardPublisher(
        rows(tensors, 0, 2), engine_workers=2, rank=0, ranks=2, secret=SECRET, backend="tcp", timeout=WAIT, patience=2
    )
    served = Served(tmp_path / "model", int(first.address.rpartition(":")[2]), tensors)
    command = [sys.executable, "-c", _RANK, str(tmp_path / "model.safetensors"), first.address, SECRET]
    try:
        served.call("attach")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert first.publish(wait=False).errors == {}
            assert process.stdout.readline() == "0\n"
            served.wait_for(0)
            assert served.call("attach") == [{"ok": 0}] * 2
            threading.Timer(0.5, process.kill).start()
            with pytest.raises(dw.Unavailable, match="trainer rank 1"):
                first.publish()
        served.keep(tensors)
        again = ShardPublisher(rows(tensors, 1, 2), first.address, engine_workers=2, rank=1, ranks=2, secret=SECRET, timeout=30)
        try:
            published = together(lambda: first.publish(wait=False), lambda: again.publish(wait=False))
            assert [one.errors for one in published] == [{}] * 2
            served.take(published[0].version, tensors)
        finally:
            again.close()
    finally:
        served.close()
        first.close()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((2, 4), "came first with rank_offset=2"),
        ((1, 4), "ranks 1 to 2 are not among those of engine workers, 2 to 3"),
        ((2, 5), "world_size=5: the trainer counts 4, 2 ranks of the trainer and 2 engine workers"),
    ],
    ids=str,
)
def test_a_server_in_a_wrong_place_is_refused(tmp_path: Path, place: tuple[int, int], words: str) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        with contextlib.closing(Served(tmp_path / "wrong", trainer.port, trainer.tensors, place)) as wrong:
            wrong.call("attach")
            wait_until(lambda: len(trainer.ranks[0]._hub.members()) >= 5)  # it is heard by the next version
            trainer.step(1)
            first, _ = trainer.publish()
            assert first.errors == {}
            assert any(words in said for said in first.warnings)
            served.take(1, trainer.tensors)
            wait_until(lambda: any(words in (said["ok"]["host_error"] or "") for said in wrong.call("status")))


def fallback_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "come whole to each worker" in record.getMessage()]


def test_tensors_that_an_engine_repacks_come_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, kind=Repacked) as (trainer, served):
        trainer.step(1)
        begin(trainer, served)
        for version in (1, 2, 3):
            trainer.step(version + 1)
            trainer.go_to(version, whole=0)
            served.take(version, trainer.tensors)
            for said in served.call("prove"):
                assert (said["ok"]["wrong"], said["ok"]["version"]) == ((), version)
                assert "model.norm.weight" in said["ok"]["unproven"]
        assert len(fallback_of(caplog)) == 2, "once for each worker"
        assert "not kept as they are" in fallback_of(caplog)[0]
        assert "model.norm.weight" in fallback_of(caplog)[0]
        assert "model.norm.weight" in served.call("status")[0]["ok"]["reloaded"]


def test_what_the_engine_loaded_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, kind=Repacked) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        trainer.step(1)
        trainer.publish()
        served.wait_for(1)
        fail_after(monkeypatch, served.members[1].worker, "_engine_reload", once=True)
        assert all("memory is full" in said["error"] for said in served.call("update"))
        served.assert_serves(before)
        assert served.call("update") == [{"ok": 0}] * 2
        assert sorted(trainer.ranks[0].settle()) == [0, 1]
        trainer.step(2)
        assert [(one.errors, one.report.num_whole) for one in trainer.publish()] == [({}, 0)] * 2
        served.take(2, trainer.tensors)


class Secretive(Engine):
    """Does not say where it keeps anything: all weights go through its loader."""

    def load_weights(self, weights: Any) -> None:
        super().load_weights((name, tensor.clone().mul(2).div(2)) for name, tensor in weights)


def test_an_engine_that_repacks_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, kind=Secretive) as (trainer, served):
        begin(trainer, served)
        go_on(trainer, served, 1)
        assert fallback_of(caplog)


def test_tensors_that_the_trainer_has_not_are_refused_by_name(tmp_path: Path) -> None:
    tensors = checkpoint()
    without = {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"}
    with running(tmp_path, timeout=10, trained=without) as (trainer, served):
        served.call("attach")
        first, second = trainer.publish()
        assert isinstance(first, dw.Unsupported)
        assert "model.norm.weight" in str(first)
        assert isinstance(second, dw.Unavailable)
        wait_until(lambda: all("model.norm.weight" in (said["ok"]["host_error"] or "") for said in served.call("status")))
        served.assert_serves(tensors)


def test_the_other_name_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"local": "l", "transport": "tcp", "master_address": "a", "master_port": 1, "world_size": 2, "rank_offset": 1}
    assert Settings.of(named | {"use_p2p_weight_update": True}).shards
    assert not Settings.of(named | {"use_p2p_weight_update": False}).shards
    with pytest.raises(dw.InvalidArgument, match="another name of `shards`"):
        Settings.of(named | {"use_p2p_weight_update": True, "shards": False})
    for name, value in (named | {"use_p2p_weight_update": "yes"}).items():
        monkeypatch.setenv(f"DELTAWIRE_{name.upper()}", str(value))
    found = Settings.from_environment()
    assert found is not None
    assert found.shards


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"store": "s"}, "`shards` needs a `transport`"),
        ({"transport": "tcp", "master_address": "a", "master_port": 1}, "`world_size` and `rank_offset`"),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, Any], words: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=words):
        Settings.of({"local": "l", "shards": True} | values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine_workers": 0}, "at least 1"),
        ({"engine_workers": 1, "rank": 0}, "go together"),
        ({"engine_workers": 1, "rank": 2, "ranks": 2}, "must be one of 2"),
        ({"engine_workers": 1, "address": "0.0.0.0:7000"}, "reach rank 0"),
    ],
)
def test_publishers_that_cannot_be_meant(options: dict[str, Any], words: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=words):
        ShardPublisher({}, **options)


def test_more_workers_than_ranks(tmp_path: Path) -> None:
    named = {"transport": "tcp", "master_address": "127.0.0.1", "master_port": 1, "world_size": 2, "rank_offset": 1}
    group = Rank(0, threading.Barrier(2), [None] * 2)
    with pytest.raises(dw.InvalidArgument, match="2 workers are more"):
        Member(Settings.of(named | {"local": str(tmp_path), "shards": True}), Engine(), engine="test", group=group)
