"""Objects fetched by one-sided NIXL reads from the memory of another process."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw
import deltawire.nixl
from deltawire._internal.stores import store_handle
from deltawire.nixl import PREFIX, Arena, NixlStore, _Reader

try:
    import nixl._api  # noqa: F401
except ImportError as error:
    pytest.skip(f"{error}; scripts/venv build/venv nixl installs it", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture(params=["shared memory", "tcp"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The UCX transports between the two processes."""
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    monkeypatch.setenv("UCX_TLS", "tcp" if request.param == "tcp" else "shm,tcp")


class Server:
    """A process that publishes into `store` and serves it."""

    def __init__(self, store: str, size_bytes: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("nixl_server.py")), store, str(size_bytes)]
        path = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def serving(store: str = "memory:served", size_bytes: int = 64 << 20) -> Iterator[Server]:
    server = Server(store, size_bytes)
    try:
        yield server
    finally:
        server.kill()


def weights_of(version: int) -> np.ndarray:
    weights = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
    for _ in range(version):
        weights[::4] += 1
    return weights


def blank() -> dict[str, np.ndarray]:
    return {"w": np.zeros((1024, 1024), np.float32)}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@contextmanager
def before_a_read(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> Iterator[None]:
    """Run `do` once, after a reader has learned an object's address."""
    read, left = _Reader._read, [do]

    def reading(self: _Reader, *args: Any) -> None:
        if left:
            left.pop()()
        read(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(_Reader, "_read", reading)
        yield
    assert not left, "nothing was read by NIXL"


def test_reads_versions_by_nixl(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        store, mine = NixlStore(server.url), blank()
        assert store.url == server.url
        replica, files = dw.TensorReplica(store, mine), dw.Replica(NixlStore(server.url), tmp_path / "files")
        assert replica.pull().version == files.pull().version == 0
        assert (mine["w"] == weights_of(0)).all()
        seed_bytes = store.bytes_read
        assert seed_bytes > mine["w"].nbytes // 2

        told = threading.Timer(0.5, server.tell, ["publish()"])
        told.start()
        for pulled in replica.follow(interval=3600):  # longer than any test may take: the server notifies it
            assert pulled.version == 1
            break
        told.join()
        assert (mine["w"] == weights_of(1)).all()
        assert store.bytes_read > seed_bytes
        assert files.pull().version == 1
        replica.close()
        files.close()
    assert warnings_in(caplog) == []


@pytest.mark.parametrize("damage", ["arena.bytes[:] = 7", "reuse()"])
def test_reads_overwritten_bytes_over_http(
    damage: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as server, before_a_read(monkeypatch, lambda: server.tell(damage)):
        mine = blank()
        with dw.TensorReplica(NixlStore(server.url), mine) as replica:
            assert replica.pull(version=0).version == 0
        assert (mine["w"] == weights_of(0)).all()
    (said,) = warnings_in(caplog)
    assert "overwritten" in said


def test_falls_back_when_the_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(tmp_path / "store")
    with serving(folder) as server, dw.serve(folder) as other, before_a_read(monkeypatch, server.kill):
        store, mine = NixlStore(f"{server.url},{other.url}"), blank()
        with dw.TensorReplica(store, mine) as replica:
            replica.pull()
        assert (mine["w"] == weights_of(0)).all()
        assert store.bytes_read == 0
    (said,) = [said for said in warnings_in(caplog) if said.startswith("nixl: ")]
    assert "using HTTP" in said


def test_survives_a_stopped_server(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its memory can still be read; over TCP it has to answer."""
    monkeypatch.setattr(deltawire.nixl, "_READ_SECONDS", 1.0)
    with serving() as server:
        store = NixlStore(server.url)
        reader = store._reader
        assert reader is not None
        below = store_handle(dw.open_store(server.url))
        info = max(store.list("full/"), key=lambda info: info.size_bytes)

        def read() -> int:
            reader._seen.clear()
            return sum(map(len, reader.pieces(below, info.name, info.size_bytes)))

        assert read() == info.size_bytes
        pieces = reader._free.qsize()

        def stop() -> None:
            server.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)  # its threads may go on for a while

        with before_a_read(monkeypatch, stop):
            came = read()
        server.process.send_signal(signal.SIGCONT)
        if os.environ["UCX_TLS"] == "tcp":
            (said,) = warnings_in(caplog)
            assert "did not arrive within 1 seconds" in said
            assert came < info.size_bytes
            assert reader._free.qsize() == pieces - 1, "what comes late must not meet another object"
            assert read() == 0, "over HTTP for a while"
            reader._paused_until = 0.0
        else:
            assert came == info.size_bytes
        assert read() == info.size_bytes


def test_falls_back_without_nixl_on_the_server(store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = {"w": weights_of(0)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    (tmp_path / "token").write_text("abc\n")
    with dw.serve(store, token="abc") as server:
        read, mine = NixlStore(server.url, token_file=str(tmp_path / "token")), blank()
        with dw.TensorReplica(read, mine) as replica:
            replica.pull()
            weights["w"][::4] += 1
            publisher.publish()
            assert replica.pull().version == 1
        assert (mine["w"] == weights["w"]).all()
        assert read.bytes_read == 0
    (said,) = warnings_in(caplog)
    assert PREFIX in said
    with pytest.raises(dw.InvalidArgument, match="http"):
        NixlStore("memory:x")


def test_evicts_the_oldest_objects(store: str) -> None:
    objects = dw.open_store(store)
    for name in "abc":
        objects.put(f"parts/{name}", name.encode() * 400)
    objects.put("parts/large", bytes(1001))
    objects.put("HEAD", b"0")
    with closing(Arena(1000, "127.0.0.1:0")) as arena:
        where = partial(arena.where, store_handle(objects))
        first = where("parts/a")
        assert where("parts/b") != first
        assert where("parts/a") == first
        assert where("parts/c") == first  # where a was
        assert list(arena._held) == ["parts/b", "parts/c"]
        assert bytes(arena.bytes[:800]) == b"c" * 400 + b"b" * 400
        for name in "parts/large", "HEAD", "parts/none":
            with pytest.raises(dw.NotFound, match=name):
                where(name)
        assert list(arena._held) == ["parts/b", "parts/c"]


def test_keeper_reads_by_nixl(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from deltawire.engines.host import Keeper, local_identity
    from deltawire.engines.settings import Settings

    with serving() as server:
        settings = Settings(store=server.url, local=str(tmp_path / "local"), transport="nixl")
        with closing(Keeper(settings)):
            end = time.monotonic() + 60
            while local_identity(settings.local) is None and time.monotonic() < end:
                time.sleep(0.05)
        held = local_identity(settings.local)
        assert held is not None
        assert held.version == 0
    assert warnings_in(caplog) == []
