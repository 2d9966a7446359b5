"""`deltawire.trl.WeightTransfer` waits for servers: what `/deltawire/ready` of each may say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("torch")

from test_trl import sync, weights

import deltawire as dw
from deltawire.trl import WeightTransfer


class Server:
    """Serves `version`, and says what it is told to."""

    def __init__(self) -> None:
        self.version: int | None = 0
        self.error: str | None = None
        self.status: int | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                wanted = int(self.path.partition("=")[2] or 0)
                ready = outer.version is not None and outer.version >= wanted
                words = {"ready": ready, "version": outer.version, "wanted": wanted, "error": outer.error}
                self.send_response(outer.status or (200 if ready else 503))
                self.end_headers()
                self.wfile.write(json.dumps(words).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_a_sync_is_done_when_all_servers_serve_it(store: str, server: Server) -> None:
    other = Server()
    try:
        transfer = WeightTransfer(store, base_url=[server.url + "/", other.url], timeout=20)
        transfer.init_weight_transfer()
        sync(transfer, model := weights())
        assert transfer.served == [0, 0]
        model["layers.0.weight"][0, 0] += 1
        other.version = 5
        timer = threading.Timer(0.3, lambda: setattr(server, "version", 1))
        timer.start()
        sync(transfer, model)
        timer.join()
        assert transfer.served == [1, 5]
        assert "/deltawire/ready?version=1" in server.asked
        transfer.destroy()
    finally:
        other.close()


def test_a_server_that_does_not_come_is_an_error_with_its_own_words(store: str, server: Server) -> None:
    transfer = WeightTransfer(store, base_url=server.url, timeout=2)
    sync(transfer, model := weights())
    model["layers.0.weight"][0, 0] += 1
    server.error = "corruption: v000000001/part-00000"
    with pytest.raises(dw.Unavailable, match=r"version 1 is not served after 2 s: .*serves version 0, and says: corruption"):
        sync(transfer, model)
    assert transfer.version is not None
    assert transfer.version.number == 1  # it is committed; a server that comes back goes to it
    server.version, server.error = None, None
    with pytest.raises(dw.Unavailable, match="no version yet"):
        sync(transfer, model)
    server.status = 500
    with pytest.raises(dw.Unavailable, match="answers 500"):
        sync(transfer, model)
    transfer.destroy()


def test_servers_that_follow_no_chain_or_are_not_there(store: str, server: Server) -> None:
    server.status, server.error = 404, "this server follows no chain"
    transfer = WeightTransfer(store, base_url=server.url, timeout=20)
    with pytest.raises(dw.InvalidArgument, match="follows no chain"):
        transfer.init_weight_transfer()
    transfer.destroy()
    nobody = WeightTransfer(store, base_url="http://127.0.0.1:1", timeout=0.2)
    with pytest.raises(dw.Unavailable, match=r"127.0.0.1:1: no answer \(.*refused"):
        nobody.init_weight_transfer()
    nobody.destroy()
