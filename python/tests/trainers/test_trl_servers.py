"""`deltawire.trainers.trl.WeightTransfer` waits for servers: possible answers of `/deltawire/ready`."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("torch")

from test_trl import sync, weights

import deltawire as dw
from deltawire._internal.identity import Wanted
from deltawire.trainers.trl import WeightTransfer


class Server:
    """Claims to serve `version` of a store's run or of another one, with scripted answers."""

    def __init__(self, store: str) -> None:
        self.store, self.run = store, ""
        self.version: int | None = 0
        self.error: str | None = None
        self.status: int | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                wanted = {name: value for name, (value,) in parse_qs(urlsplit(self.path).query).items()}
                served = outer.served()
                ready = served is not None and Wanted(**wanted | {"version": int(wanted.get("version", 0))}).is_met_by(served)
                named = {"run": None, "version": None, "manifest": None} if served is None else served._asdict()
                words = {"ready": ready, **named, "wanted": wanted, "error": outer.error}
                self.send_response(outer.status or (200 if ready else 503))
                self.end_headers()
                self.wfile.write(json.dumps(words).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def served(self) -> dw.Identity | None:
        if self.version is None:
            return None
        try:
            chain = dw.Chain(self.store)
        except dw.NotFound:  # what was served before there was a chain
            return dw.Identity("0" * 32, self.version, "")
        known = chain.head is not None and self.version <= chain.head and not self.run
        return chain[self.version].identity if known else dw.Identity(self.run or chain.run, self.version, "")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(store: str) -> Iterator[Server]:
    made = Server(store)
    yield made
    made.close()


def test_sync_ends_when_all_servers_serve_it(store: str, server: Server) -> None:
    other = Server(store)
    try:
        transfer = WeightTransfer(store, base_url=[server.url + "/", other.url], timeout=20)
        transfer.init_weight_transfer()
        sync(transfer, model := weights())
        assert [one.version for one in transfer.served] == [0, 0]
        model["layers.0.weight"][0, 0] += 1
        other.version = 5
        timer = threading.Timer(0.3, lambda: setattr(server, "version", 1))
        timer.start()
        sync(transfer, model)
        timer.join()
        assert [one.version for one in transfer.served] == [1, 5]
        wanted = transfer.version.identity
        assert f"/deltawire/ready?version=1&run={wanted.run}&manifest={wanted.manifest}" in server.asked
        transfer.destroy()
    finally:
        other.close()


def test_server_of_another_run_does_not_count(store: str, server: Server) -> None:
    transfer = WeightTransfer(store, base_url=server.url, timeout=1)
    server.run, server.version = "f" * 32, 7
    with pytest.raises(dw.Unavailable, match=r"version 0 of run .* is not served after 1 s: .*serves version 7 of run ffffffff"):
        sync(transfer, weights())
    transfer.destroy()


def test_timeout_reports_the_servers_own_words(store: str, server: Server) -> None:
    transfer = WeightTransfer(store, base_url=server.url, timeout=2)
    sync(transfer, model := weights())
    model["layers.0.weight"][0, 0] += 1
    server.error = "corruption: v000000001/part-00000"
    with pytest.raises(
        dw.Unavailable, match=r"version 1 of run .* is not served after 2 s: .*serves version 0 of run .*, and says: corruption"
    ):
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


def test_reports_missing_servers_and_those_without_a_chain(store: str, server: Server) -> None:
    server.status, server.error = 404, "this server follows no chain"
    transfer = WeightTransfer(store, base_url=server.url, timeout=20)
    with pytest.raises(dw.InvalidArgument, match="follows no chain"):
        transfer.init_weight_transfer()
    transfer.destroy()
    nobody = WeightTransfer(store, base_url="http://127.0.0.1:1", timeout=0.2)
    with pytest.raises(dw.Unavailable, match=r"127.0.0.1:1: no answer \(.*refused"):
        nobody.init_weight_transfer()
    nobody.destroy()
