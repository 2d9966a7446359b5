"""Hosts of engines that get versions straight from a publisher."""

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
from deltawire.engines.settings import Settings
from deltawire.engines.transport import serve

SECRET = "of this test"


class Trainer:
    """Publishes to whoever joins, and to a folder if one is given."""

    def __init__(self, store: Path | str = "", port: int = 0, begin: int = 0) -> None:
        self.shipper = serve("tcp", str(store), port=port, secret=SECRET)
        self.port = int(self.shipper.address.rpartition(":")[2])
        self._weights = {"w": np.full((64, 64), begin, np.float32)}
        self._publisher = dw.Publisher(self.shipper.store, self._weights)

    def step(self) -> int:
        self._weights["w"][0, 0] += 1
        return self._publisher.publish().number

    def close(self) -> None:
        self._publisher.close()
        self.shipper.close()
        del self._publisher, self.shipper


def settings(port: int, local: Path, **more: Any) -> Settings:
    named = {"transport": "tcp", "master_address": "127.0.0.1", "master_port": port, "secret": SECRET, "interval": 0.3}
    return Settings.of(named | {"local": str(local)} | more)


def wait_until(said: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_host_gets_versions_without_a_store(tmp_path: Path) -> None:
    trainer, local = Trainer(), tmp_path / "local"
    trainer.step()
    host = Host(settings(trainer.port, local, world_size=4, rank_offset=2))
    assert host.wait_for(ANY, 60).version == 0
    beside = Host(settings(trainer.port, local))  # another worker of the same host: the publisher does not hear of it
    for _ in range(3):
        version = trainer.step()
        assert host.wait_for(Wanted(version), 60).version == version
        assert beside.wait_for(Wanted(version), 60).version == beside.wait_for(ANY, 60).version == version
        report = trainer.shipper.settle()
        assert [(one.version, one.error) for one in report.replicas] == [(version, "")]
    assert report.carrier == "tcp"
    beside.close()
    host.close()
    assert (host.error, beside.error) == (None, None)
    trainer.close()


def test_a_host_outlives_its_publisher(tmp_path: Path) -> None:
    chain, local = tmp_path / "of-the-trainer", tmp_path / "local"
    trainer = Trainer(chain)
    host = Host(settings(trainer.port, local))
    host.wait_for(Wanted(trainer.step()), 60)
    port = trainer.port
    trainer.close()
    wait_until(lambda: host.error)
    with pytest.raises(dw.Unavailable, match="version 9 did not come"):
        host.wait_for(Wanted(9), 0.2)
    assert local_identity(str(local)).version == 0
    trainer = Trainer(chain, port, begin=1)
    version = trainer.step()
    assert host.wait_for(Wanted(version), 60).version == version == 1
    host.close()
    trainer.close()


def test_a_store_is_read_while_nobody_ships(tmp_path: Path) -> None:
    chain, local = tmp_path / "chain", tmp_path / "local"
    trainer = Trainer(chain)
    first = trainer.step()
    port = trainer.port
    trainer.close()
    host = Host(settings(port, local, store=str(chain)))  # which can join nobody
    assert host.wait_for(Wanted(first), 60).version == first
    trainer = Trainer(chain, port, begin=1)
    version = trainer.step()
    assert host.wait_for(Wanted(version), 60).version == version == 1
    trainer.shipper.wait_for(1, 60)
    host.close()
    trainer.close()


def test_a_host_with_a_wrong_secret_says_so(tmp_path: Path) -> None:
    trainer = Trainer()
    trainer.step()
    host = Host(settings(trainer.port, tmp_path / "local", secret="another"))
    wait_until(lambda: host.error is not None and "secret" in host.error)
    assert local_identity(str(tmp_path / "local")) is None
    host.close()
    trainer.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"transport": "pigeon"}, "must be one of store, tcp, gloo, nccl"),
        ({"transport": "store"}, "both `store` and `local` are needed"),
        ({"transport": "gloo"}, "needs `master_address` and `master_port`"),
        ({"transport": "gloo", "master_address": "a", "master_port": 70000}, "needs `master_address` and `master_port`"),
        ({"transport": "tcp", "master_address": "a", "master_port": 1, "world_size": 2}, "go together"),
        ({"transport": "tcp", "master_address": "a", "master_port": 1, "world_size": 2, "rank_offset": 2}, "one of the 2 ranks"),
        (
            {"transport": "tcp", "master_address": "a", "master_port": 1, "world_size": 2, "rank_offset": 0},
            "0 is the publisher's",
        ),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, Any], words: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=words):
        Settings.of({"local": "l"} | values)


def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("  words\n")
    named = {"local": "/l", "transport": "gloo", "master_address": "h", "master_port": "7000", "secret_file": tmp_path / "secret"}
    for name, value in named.items():
        monkeypatch.setenv(f"DELTAWIRE_{name.upper()}", str(value))
    found = Settings.from_environment()
    assert found is not None
    assert (found.source, found.store, found.master_port) == ("gloo://h:7000", "", 7000)
    assert "words" not in repr(Settings.of({"store": "s", "local": "l", "secret": "words"}))


def test_a_secret_is_the_first_line_of_its_file_as_for_the_program(tmp_path: Path) -> None:
    from deltawire.engines.transport import secret_of

    file = tmp_path / "secret"
    for text in "of two words ", "of two words \n", "of two words \r\n# a note\n":
        file.write_bytes(text.encode())
        assert secret_of("", str(file)) == "of two words "
    file.write_text("\nsecond")
    with pytest.raises(dw.InvalidArgument, match="holds no secret"):
        secret_of("", str(file))
