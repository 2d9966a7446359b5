"""Hosts of engines that receive versions through a process group, or over HTTP from the trainer."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import deltawire as dw
from deltawire._internal.identity import ANY, Wanted
from deltawire.engines.host import Host, local_identity
from deltawire.engines.settings import Settings, token_of
from deltawire.torch import Broadcast, Rendezvous


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Trainer:
    """Publishes to a group of two: itself, and one host."""

    def __init__(self, store: Path, port: int, begin: int = 0) -> None:
        here = Rendezvous(master_address="127.0.0.1", master_port=port, world_size=2, rank=0)
        self.broadcast = Broadcast(here, store, timeout=10)
        self._weights = {"w": np.full((64, 64), begin, np.float32)}
        self._publisher = dw.Publisher(self.broadcast.store, self._weights)

    def step(self) -> int:
        self._weights["w"][0, 0] += 1
        return self._publisher.publish().number

    def close(self) -> None:
        self._publisher.close()
        self.broadcast.close()


def settings(port: int, local: Path, store: Path, **more: Any) -> Settings:
    named = {"transport": "group", "master_address": "127.0.0.1", "master_port": port, "world_size": 2, "rank_offset": 1}
    return Settings.of(named | {"interval": 0.3, "local": str(local), "store": str(store)} | more)


def wait_until(said: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_host_receives_versions_through_a_group(tmp_path: Path) -> None:
    chain, local, port = tmp_path / "chain", tmp_path / "local", free_port()
    trainer = Trainer(chain, port)
    trainer.step()
    how = settings(port, local, chain, interval=60)  # the store is not looked at
    host = Host(how)
    beside = Host(how)  # another worker of the same host: there is one keeper, with one rank
    assert host.wait_for(ANY, 60).version == 0
    trainer.broadcast.wait(60)
    for _ in range(3):
        version = trainer.step()
        wait_until(lambda version=version: (local_identity(str(local)) or (0, 0))[1] == version)
        assert host.wait_for(Wanted(version), 60).version == beside.wait_for(ANY, 60).version == version
    assert (host.error, beside.error, trainer.broadcast.error) == (None, None, None)
    beside.close()
    host.close()
    trainer.close()


def test_host_survives_its_publisher_and_joins_the_next(tmp_path: Path) -> None:
    chain, local, port = tmp_path / "chain", tmp_path / "local", free_port()
    trainer = Trainer(chain, port)
    host = Host(settings(port, local, chain))
    trainer.broadcast.wait(60)
    host.wait_for(Wanted(trainer.step()), 60)
    trainer.close()
    wait_until(lambda: host.error)
    assert not host.is_blocked
    assert str(port) in str(host.error) or "has ended" in str(host.error)
    with pytest.raises(dw.Unavailable, match="version 9 did not arrive"):
        host.wait_for(Wanted(9), 0.2)
    with dw.Publisher(str(chain), {"w": np.full((64, 64), 9, np.float32)}) as beside:
        version = beside.publish().number
    assert host.wait_for(Wanted(version), 60).version == version == 1  # of the store behind
    trainer = Trainer(chain, port, begin=1)
    trainer.broadcast.wait(60)
    version = trainer.step()
    assert host.wait_for(Wanted(version), 60).version == version == 2
    wait_until(lambda: host.error is None)
    host.close()
    trainer.close()


def test_reports_a_wrong_group_size_and_reads_the_store(tmp_path: Path) -> None:
    chain, local, port = tmp_path / "chain", tmp_path / "local", free_port()
    trainer = Trainer(chain, port)
    trainer.step()
    host = Host(settings(port, local, chain, world_size=3))
    wait_until(lambda: host.error is not None and "has 2 ranks and backend gloo; rank 1 expects 3" in host.error)
    assert host.wait_for(Wanted(0), 60).version == 0
    assert not host.is_blocked
    host.close()
    trainer.close()


def test_host_reads_from_a_serving_trainer(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the trainer\n")
    with (
        dw.Publisher("memory:served-to-hosts", {"w": np.zeros(1000, np.float32)}) as publisher,
        dw.serve("memory:served-to-hosts", token="of the trainer") as server,
    ):
        publisher.publish()
        for number, token in enumerate(({"token": "of the trainer"}, {"token_file": str(tmp_path / "token")})):
            host = Host(Settings.of({"store": server.url, "local": str(tmp_path / f"local-{number}"), "interval": 60} | token))
            version = publisher.publish({"w": np.full(1000, number, np.float32)}).number
            assert host.wait_for(Wanted(version), 60).version == version
            host.close()
        host = Host(Settings.of({"store": server.url, "local": str(tmp_path / "other"), "token": "another", "interval": 0.3}))
        wait_until(lambda: host.error)
        assert local_identity(str(tmp_path / "other")) is None
        host.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"transport": "pigeon"}, "must be one of store, nixl, group"),
        ({"transport": "tcp"}, "must be one of store, nixl, group"),
        ({"store": ""}, "`store` and `local` are required"),
        ({"transport": "nixl"}, "needs a `store` at http"),
        ({"transport": "group"}, "needs `master_address` and `master_port`"),
        ({"transport": "group", "master_address": "a", "master_port": 70000}, "needs `master_address` and `master_port`"),
        ({"transport": "group", "master_address": "a", "master_port": 1, "world_size": 2}, "the group needs both"),
        (
            {"transport": "group", "master_address": "a", "master_port": 1, "world_size": 2, "rank_offset": 0},
            "rank 0 is the publisher",
        ),
        (
            {"transport": "group", "master_address": "a", "master_port": 1, "world_size": 2, "rank_offset": 1, "backend": "mpi"},
            "must be one of gloo, nccl",
        ),
    ],
)
def test_rejects_contradictory_settings(values: dict[str, Any], words: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=words):
        Settings.of({"local": "l", "store": "s"} | values)


def test_reads_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"local": "/l", "store": "/s", "transport": "group", "master_address": "h", "master_port": "7000"}
    for name, value in (named | {"world_size": "3", "rank_offset": "2"}).items():
        monkeypatch.setenv(f"DELTAWIRE_{name.upper()}", value)
    found = Settings.from_environment()
    assert found is not None
    assert (found.source, found.store, found.master_port) == ("group://h:7000", "/s", 7000)
    assert (found.rendezvous.rank, found.rendezvous.world_size, found.rendezvous.backend) == (2, 3, "gloo")
    assert "words" not in repr(Settings.of({"store": "s", "local": "l", "token": "words"}))


def test_token_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text in "of two words ", "of two words \n", "of two words \r\n# a note\n":
        file.write_bytes(text.encode())
        assert token_of("", str(file)) == "of two words "
    file.write_text("\nsecond")
    with pytest.raises(dw.InvalidArgument, match="contains no token"):
        token_of("", str(file))
