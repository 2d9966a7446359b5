"""From the ranks of a trainer straight into the workers of an engine: members over real groups, without an engine."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_models import Engine, changed, checkpoint  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import deltawire as dw  # noqa: E402
from deltawire.engines.map import bits  # noqa: E402
from deltawire.engines.member import Member  # noqa: E402
from deltawire.engines.settings import Settings  # noqa: E402
from deltawire.torch import ShardPublisher  # noqa: E402

SECRET = "of this test"
WAIT = 60.0


class Rank:
    """A worker among threads: what each says is heard by all."""

    def __init__(self, rank: int, barrier: threading.Barrier, words: list[Any]) -> None:
        self.rank, self.size, self._barrier, self._words = rank, len(words), barrier, words

    def tell(self, words: Any) -> list[Any]:
        self._words[self.rank] = words
        self._barrier.wait(WAIT)
        heard = list(self._words)
        self._barrier.wait(WAIT)
        return heard


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

    def __init__(self, tensors: dict[str, Any], backend: str, port: int = 0, timeout: float = WAIT) -> None:
        self.tensors, self._held = tensors, [rows(tensors, rank, 2) for rank in range(2)]
        self.ranks: list[ShardPublisher] = []
        address = f"127.0.0.1:{port}"
        for rank in range(2):
            options = {"engine_workers": 2, "rank": rank, "ranks": 2, "secret": SECRET, "backend": backend, "timeout": timeout}
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

    def close(self) -> None:
        for one in reversed(self.ranks):
            one.close()


class Served:
    """An engine of two tensor-parallel workers, between whose steps calls are made."""

    def __init__(self, folder: Path, port: int, tensors: dict[str, Any], **form: Any) -> None:
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        named = {"transport": "gloo", "shards": True, "master_address": "127.0.0.1", "master_port": port, "secret": SECRET}
        self._settings = Settings.of(named | {"local": str(folder), "world_size": 4, "rank_offset": 2, "interval": 0.1})
        self._form, barrier, words = form, threading.Barrier(2), [None] * 2
        self.engines = [loaded(tensors, rank=rank, world=2, **form) for rank in range(2)]
        self.members = [
            Member(self._settings, engine, engine="test", group=Rank(rank, barrier, words))
            for rank, engine in enumerate(self.engines)
        ]

    def call(self, name: str, **options: Any) -> list[dict[str, Any]]:
        return together(*(lambda one=one: one.call(name, **options) for one in self.members))

    def wait_for(self, version: int) -> None:
        """Until both have it staged."""
        wait_until(lambda: all(said["ok"].get("staged") == version for said in self.call("status")))

    def assert_serves(self, tensors: dict[str, Any]) -> None:
        for rank, engine in enumerate(self.engines):
            expected = loaded(tensors, rank=rank, world=2, **self._form)
            for (name, own), other in zip(engine.named_parameters(), expected.parameters(), strict=True):
                assert torch.equal(bits(own), bits(other)), (rank, name)

    def close(self) -> None:
        for member in self.members:
            member.close()


def loaded(tensors: dict[str, Any], **form: Any) -> Engine:
    engine = Engine(**form)
    engine.load_weights(tensors.items())
    return engine


def wait_until(said: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def running(folder: Path, backend: str = "tcp", timeout: float = WAIT, **form: Any) -> Iterator[tuple[Trainer, Served]]:
    """A trainer and an engine that was started from the weights before its first step."""
    tensors = checkpoint(tied=form.get("tied", False))
    trainer = Trainer(tensors, backend, timeout=timeout)
    served = Served(folder / "model", trainer.port, tensors, **form)
    try:
        yield trainer, served
    finally:
        served.close()
        trainer.close()


def begin(trainer: Trainer, served: Served) -> None:
    """The first version."""
    assert all("no version has come" in said["error"] for said in served.call("attach"))
    published = trainer.publish()
    assert [(one.version, one.errors) for one in published] == [(0, {})] * 2
    served.wait_for(0)
    assert served.call("attach") == [{"ok": 0}] * 2
    served.assert_serves(trainer.tensors)


@pytest.mark.parametrize(
    ("backend", "form"), [("tcp", {}), ("gloo", {}), ("tcp", {"transposed": True}), ("tcp", {"tied": True})], ids=str
)
def test_versions_go_from_rank_to_worker(tmp_path: Path, backend: str, form: dict[str, Any]) -> None:
    with running(tmp_path, backend, **form) as (trainer, served):
        trainer.step(1)  # the engine was started from an older one
        begin(trainer, served)
        for version in (1, 2, 3):
            trainer.step(version + 1)
            published = trainer.publish()
            assert [(one.version, one.errors, one.report.num_whole) for one in published] == [(version, {}, 0)] * 2
            served.wait_for(version)
            assert served.call("update") == [{"ok": version}] * 2
            served.assert_serves(trainer.tensors)
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
        assert served.call("update") == [{"ok": 0}] * 2  # nothing is staged any more
        errors = trainer.ranks[0].settle()
        assert sorted(errors) == [0, 1]
        assert "model.norm.weight" in errors[1]
        trainer.step(2)
        assert [one.report.num_whole for one in trainer.publish()] == [2, 2]
        served.wait_for(2)
        assert served.call("update") == [{"ok": 2}] * 2
        served.assert_serves(trainer.tensors)


def test_a_version_that_comes_to_one_worker_alone_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        worker: Any = served.members[1].worker
        receive = worker.receive

        def fail(carrier: Any) -> None:
            receive(carrier)
            raise dw.Unavailable("memory is full")

        monkeypatch.setattr(worker, "receive", fail)
        trainer.step(1)
        assert [list(one.errors) for one in trainer.publish()] == [[1], [1]]
        assert served.call("update") == [{"ok": 0}] * 2
        served.assert_serves(before)
        monkeypatch.undo()
        trainer.step(2)
        assert [(one.version, one.errors) for one in trainer.publish()] == [(2, {})] * 2
        served.wait_for(2)
        assert served.call("update") == [{"ok": 2}] * 2
        served.assert_serves(trainer.tensors)


def test_a_trainer_that_is_gone_is_named_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as (trainer, served):
        begin(trainer, served)
        before = trainer.tensors
        trainer.close()
        wait_until(lambda: all(said["ok"]["host_error"] for said in served.call("status")))
        assert str(trainer.port) in served.call("status")[0]["ok"]["host_error"]
        assert served.call("update") == [{"ok": 0}] * 2
        served.assert_serves(before)
        again = Trainer(changed(before, 5), "tcp", trainer.port)
        try:
            assert [(one.version, one.errors) for one in again.publish()] == [(1, {})] * 2  # its numbers go on
            served.wait_for(1)
            assert served.call("update") == [{"ok": 1}] * 2
            served.assert_serves(again.tensors)
        finally:
            again.close()


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
        assert served.call("update") == [{"ok": 0}] * 2
        served.assert_serves(before)
        monkeypatch.undo()
        trainer.step(2)
        assert [one.errors for one in trainer.publish()] == [{}, {}]
        wait_until(lambda: all(said["ok"]["staged"] for said in served.call("status")))
        assert all("ok" in said for said in served.call("update"))
        served.assert_serves(trainer.tensors)


def test_workers_that_do_not_come_are_named(tmp_path: Path) -> None:
    trainer = Trainer(checkpoint(), "tcp", timeout=1)
    try:
        first, second = trainer.publish()
        assert isinstance(first, dw.Unavailable)
        assert "engine worker 0, engine worker 1 did not join" in str(first)
        assert isinstance(second, dw.Unavailable)
        assert "engine worker 0" in str(second)
    finally:
        trainer.close()


def test_a_trainer_of_another_dtype_is_refused_by_name(tmp_path: Path) -> None:
    tensors = checkpoint()
    masters = {name: tensor.float() for name, tensor in tensors.items()}
    trainer = Trainer(masters, "tcp")
    served = Served(tmp_path / "model", trainer.port, tensors)
    try:
        served.call("attach")
        first, second = trainer.publish()
        assert isinstance(first, dw.Unsupported)
        assert "lm_head.weight" in str(first)
        assert isinstance(second, dw.Unavailable)
        wait_until(lambda: all("lm_head.weight" in (said["ok"]["host_error"] or "") for said in served.call("status")))
        served.assert_serves(tensors)
    finally:
        served.close()
        trainer.close()


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
            wait_until(lambda: member.call("attach") == {"ok": 0})
            assert process.stdout.readline() == "served\n"
            process.kill()
            wait_until(lambda: member.call("status")["ok"]["host_error"])
            words = member.call("status")["ok"]["host_error"]
            assert port in words or "rank 0 is gone" in words
            assert member.call("update") == {"ok": 0}
            assert member.call("prove")["ok"]["wrong"] == ()
        finally:
            process.kill()
            member.close()


class Repacked(Engine):
    """Keeps a parameter otherwise than the checkpoint does, whatever is loaded."""

    def load_weights(self, weights: Any) -> None:
        super().load_weights(weights)
        self.norm.data.copy_(self.norm.data.flip(0))


def test_an_engine_that_repacks_weights_is_refused_by_name(tmp_path: Path) -> None:
    tensors = checkpoint()
    trainer = ShardPublisher(tensors, engine_workers=1, secret=SECRET, backend="tcp", timeout=WAIT)
    save_file(tensors, tmp_path / "model.safetensors")
    named = {"transport": "tcp", "shards": True, "master_address": "127.0.0.1", "secret": SECRET, "local": str(tmp_path)}
    named |= {"master_port": int(trainer.address.rpartition(":")[2]), "world_size": 2, "rank_offset": 1}
    engine = Repacked()
    engine.load_weights(tensors.items())
    member = Member(Settings.of(named), engine, engine="test", reload=engine.load_weights)
    try:
        assert "model.norm.weight" in member.call("attach")["error"]
        with pytest.raises(dw.Unsupported, match=r"engine worker 0: .*model\.norm\.weight"):
            trainer.publish()
    finally:
        member.close()
        trainer.close()


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
