"""The process that keeps a host's folder: fetched versions, the checkpoint that follows them, and crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw
from deltawire._internal.identity import Wanted
from deltawire.engines import host as host_module
from deltawire.engines.host import Host, Keeper, Rhythm, local_identity, newest_here, spooled_identity
from deltawire.engines.settings import Settings
from deltawire.engines.workers import WorkerFile, read_workers


class Trainer:
    """Publishes versions of a small model."""

    def __init__(self, folder: Path) -> None:
        self.store, self.local = str(folder / "store"), str(folder / "local")
        self.weights = {"a": np.arange(4096, dtype=np.float32).reshape(64, 64), "b": np.ones(100, np.float32)}
        self._publisher = dw.Publisher(self.store, self.weights)
        self.step()

    def step(self) -> dw.Identity:
        self.weights["a"].flat[np.random.default_rng().integers(4096, size=20)] += 1
        return self._publisher.publish().identity

    def settings(self, **options: Any) -> Settings:
        return Settings(store=self.store, local=self.local, interval=0.2, **options)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "in_process", False)


def wait_until(said: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


def keepers(local: str) -> list[int]:
    """Processes that have the folder's lock open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                links = {os.readlink(fd) for fd in (entry / "fd").iterdir()} if b"deltawire.engines.host" in command else set()
            except OSError:
                continue
            if str(Path(local, ".deltawire", "keeper")) in links:
                found.append(int(entry.name))
    return found


@pytest.mark.usefixtures("processes")
def test_process_keeps_the_folder_and_ends_with_its_worker(trainer: Trainer) -> None:
    with closing(Host(trainer.settings())) as host:
        held = host.wait_for(Wanted(0), 30, in_checkpoint=True)
        assert held == local_identity(trainer.local)
        version = trainer.step()
        assert host.wait_for(Wanted.of(version), 30) == version
        (pid,) = keepers(trainer.local)
        assert pid != os.getpid()
    wait_until(lambda: not keepers(trainer.local))


@pytest.mark.usefixtures("processes")
def test_restarts_a_killed_process(trainer: Trainer) -> None:
    with closing(Host(trainer.settings())) as one, closing(Host(trainer.settings())) as other:
        one.wait_for(Wanted(0), 30, in_checkpoint=True)
        for _ in range(2):
            wait_until(lambda: keepers(trainer.local))
            for pid in keepers(trainer.local):
                os.kill(pid, signal.SIGKILL)
            version = trainer.step()
            assert one.wait_for(Wanted.of(version), 30) == other.wait_for(Wanted.of(version), 30) == version


@pytest.mark.usefixtures("processes")
def test_process_ends_when_its_worker_is_killed(trainer: Trainer) -> None:
    code = f"""
from deltawire.engines.host import Host
from deltawire.engines.settings import Settings
from deltawire._internal.identity import Wanted
host = Host(Settings(store={trainer.store!r}, local={trainer.local!r}))
print(host.wait_for(Wanted(0), 30), flush=True)
import time; time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert "version 0" in worker.stdout.readline()
        worker.kill()
    wait_until(lambda: not keepers(trainer.local))


@pytest.fixture
def keeper(trainer: Trainer) -> Iterator[Keeper]:
    with closing(Keeper(trainer.settings())) as found:
        wait_until(lambda: local_identity(trainer.local) is not None)
        yield found


@pytest.mark.usefixtures("keeper")
def test_checkpoint_follows_behind(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_RECORD_SECONDS", 3600)
    first = local_identity(trainer.local)
    version = trainer.step()
    wait_until(lambda: newest_here(trainer.local) == version)
    assert local_identity(trainer.local) == first, "the time is not over"
    with closing(WorkerFile(trainer.local, "reader", served=first, reads_local=True)):
        wait_until(lambda: local_identity(trainer.local) == version)
    last = version
    for _ in range(8):
        version = trainer.step()
    wait_until(lambda: local_identity(trainer.local) == version)
    assert last != version
    monkeypatch.setattr(host_module, "_RECORD_SECONDS", 0.5)
    version = trainer.step()
    wait_until(lambda: local_identity(trainer.local) == version)


def test_fetches_versions_without_a_writable_checkpoint(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Host(trainer.settings())) as host, closing(WorkerFile(trainer.local, "w", reads_local=True)):
        first = host.wait_for(Wanted(0), 30, in_checkpoint=True)

        def full(*_: Any) -> None:
            raise dw.errors.IoError("No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(dw.Replica, "commit", full)
            version = trainer.step()
            assert host.wait_for(Wanted.of(version), 30) == version
            wait_until(lambda: "No space left" in (host.error or ""))
            assert not host.is_blocked, "serving goes on"
            assert local_identity(trainer.local) == first
        assert host.wait_for(Wanted.of(version), 30, in_checkpoint=True) == version
        wait_until(lambda: host.error is None)


def test_notices_arrive_while_another_thread_is_busy(trainer: Trainer) -> None:
    """A notice lost by a busy interpreter would be replaced only after an interval, which is longer than the test."""
    ended = threading.Event()

    def burn() -> None:
        while not ended.is_set():
            sum(range(1000))

    busy = threading.Thread(target=burn)
    busy.start()
    try:
        with closing(Keeper(Settings(store=trainer.store, local=trainer.local, interval=3600.0))):
            wait_until(lambda: spooled_identity(trainer.local) is not None)
            for _ in range(20):
                version = trainer.step()
                wait_until(lambda version=version: spooled_identity(trainer.local) == version)
    finally:
        ended.set()
        busy.join()


def test_unreadable_store_leaks_no_threads(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(*_: Any, **__: Any) -> None:
        tries.append(threading.active_count())
        raise dw.errors.IoError("no space left")

    monkeypatch.setattr(host_module._core, "Spool", fail)
    with closing(Keeper(Settings(store=trainer.store, local=trainer.local, interval=0.02))):
        wait_until(lambda: len(tries) > 20)
    assert tries[20] == tries[2]


@pytest.mark.usefixtures("keeper")
def test_recreates_a_folder_that_was_moved_away(trainer: Trainer, tmp_path: Path) -> None:
    with closing(WorkerFile(trainer.local, "w")) as file:
        Path(trainer.local).rename(tmp_path / "away")
        wait_until(lambda: local_identity(trainer.local) is not None)
        file.note(served=list(local_identity(trainer.local) or ()))
        assert list(read_workers(trainer.local)) == ["w"]


def test_removes_the_file_of_a_dead_worker(tmp_path: Path) -> None:
    (tmp_path / ".deltawire" / "workers").mkdir(parents=True)
    (tmp_path / ".deltawire" / "workers" / "dead").write_text('{"served": ["r", 1, "m"]}')
    with closing(WorkerFile(str(tmp_path), "alive", text="x" * 10000)):
        assert list(read_workers(tmp_path)) == ["alive"]
    assert read_workers(tmp_path) == {}


def test_polls_faster_when_a_version_is_expected() -> None:
    rhythm = Rhythm(5.0)
    assert rhythm.pause(0.0) == 5.0
    for now in (0.0, 10.0, 20.0, 30.0):
        rhythm.came(now)
    assert rhythm.pause(30.0) == 5.0
    assert rhythm.pause(36.0) == pytest.approx(2.0)
    assert rhythm.pause(39.9) == pytest.approx(0.2)
    assert rhythm.pause(44.0) == pytest.approx(1.0), "less often the later it is"
    assert rhythm.pause(100.0) == 5.0
