"""TRL's flow in its own files, against servers that read them as its pull requests do: written here from its format alone."""

import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.trainers.trl_bucket import BucketTransfer

DTYPES = {"BF16": np.uint16, "F32": np.uint32, "I32": np.int32, "U16": np.uint16, "U32": np.uint32}


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A safetensors file: weights as bits."""
    contents = path.read_bytes()
    size = struct.unpack("<Q", contents[:8])[0]
    header = json.loads(contents[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(contents[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return arrays, metadata


class Server:
    """A vLLM server with TRL's receiving side: a folder for the bucket, and weights as bits."""

    def __init__(self, bucket: Path) -> None:
        self.bucket, self.weights, self.calls = bucket, {}, []  # type: Path, dict[str, np.ndarray], list[str]
        self.paused, self.fail_on, self.was_paused = False, "", []  # type: bool, str, list[bool]
        self.lose_answer, self.cuts_errors, self.is_begun = "", False, True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status = outer.take(self.path, json.loads(body) if body else {})
                if outer.lose_answer and outer.lose_answer in self.path:
                    return  # the connection ends
                self.send_response(status)
                if outer.cuts_errors and status != 200:
                    self.send_header("Content-Length", "99")  # more than comes
                self.end_headers()
                self.wfile.write(b'{"error": "out of memory"}' if status != 200 else b"{}")

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, body: dict[str, Any]) -> int:
        info = body.get("update_info", {})
        self.calls.append(path + (" " + info["filename"] if info else ""))
        if self.fail_on and self.fail_on in self.calls[-1]:
            return 500
        if path == "/init_weight_transfer_engine":
            self.is_begun = True
        elif not self.is_begun:
            return 500
        if path == "/pause?mode=keep":
            self.paused = True
        elif path == "/resume":
            self.paused = False
        elif path == "/update_weights":
            self.was_paused.append(self.paused)
            self.apply(info)
        return 200

    def apply(self, info: dict[str, str]) -> None:
        arrays, metadata = read(self.bucket / info["filename"])
        assert metadata["format"] == "sparse_weight_patch"
        if metadata["sparse"] == "False":
            self.weights = arrays
            return
        suffix, values = (".idx", ".val") if "encoding" in metadata else (".indices", ".values")
        for name in [name.removesuffix(suffix) for name in arrays if name.endswith(suffix)]:
            at = arrays[name + suffix].astype(np.int64)
            if metadata.get("encoding") == "gap_delta":
                at = np.cumsum(at + 1) - 1
            self.weights[name].reshape(-1)[at] = arrays[name + values]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "bucket")
    yield made
    made.close()


other = server  # a second one


@pytest.fixture
def transfer_to(tmp_path: Path) -> Iterator[Callable[..., BucketTransfer]]:
    """Makes transfers, and ends them."""
    made: list[BucketTransfer] = []

    def make(*servers: Server, **options: Any) -> BucketTransfer:
        places = {"work": tmp_path / "work", "base_url": [server.url for server in servers]}
        made.append(BucketTransfer(tmp_path / "store", tmp_path / "bucket", dtype="bfloat16", timeout=20, **places, **options))
        return made[-1]

    yield make
    for transfer in made:
        transfer.destroy()


def model() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(2)
    return {f"layers.{n}.weight": torch.randn(16, 16, generator=generator) for n in range(3)}


def step(weights: dict[str, Any], number: int) -> None:
    weights["layers.0.weight"][number % 16, 3] += 1
    weights["layers.1.weight"][2, number % 16] = -0.0 if number % 2 else float("inf")


def sync(transfer: BucketTransfer, weights: dict[str, Any]) -> None:
    """As `AsyncGRPOTrainer` does it."""
    transfer.pause()
    transfer.send_weights(iter(weights.items()))
    transfer.resume()


def assert_holds(server: Server, weights: dict[str, Any]) -> None:
    assert server.weights.keys() == weights.keys()
    for name, tensor in weights.items():
        np.testing.assert_array_equal(server.weights[name], tensor.bfloat16().view(torch.uint16).numpy(), err_msg=name)


@pytest.mark.parametrize("encoding", ["gap_delta", "raw", "v1"])
def test_a_server_that_knows_only_their_files_ends_with_the_exact_weights(
    transfer_to: Any, tmp_path: Path, server: Server, encoding: str
) -> None:
    transfer, weights = transfer_to(server, encoding=encoding, anchor_every=3), model()
    transfer.init_weight_transfer()
    for number in range(7):
        sync(transfer, weights)
        assert_holds(server, weights)
        assert not server.paused
        step(weights, number)
    transfer.destroy()
    transfer.destroy()
    assert all(server.was_paused)
    files = sorted(str(path.relative_to(tmp_path / "bucket")) for path in (tmp_path / "bucket").glob("*/*.safetensors"))
    anchors = [f"anchors/step_{number:06d}.safetensors" for number in (0, 1, 3, 6)]
    assert files == anchors + [f"deltas/step_{number:06d}.safetensors" for number in (2, 4, 5)]
    assert dw.Chain(tmp_path / "store").head == 6


def test_the_calls_are_theirs_in_their_order(transfer_to: Any, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    transfer.init_weight_transfer()
    for number in range(3):
        sync(transfer, weights)
        step(weights, number)
    assert server.calls[0] == "/init_weight_transfer_engine"
    update = "/update_weights deltas/step_000002.safetensors"
    assert server.calls[-5:] == ["/pause?mode=keep", "/start_weight_update", update, "/finish_weight_update", "/resume"]


def test_nothing_changed_nothing_said(transfer_to: Any, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    sync(transfer, weights)
    calls = len(server.calls)
    sync(transfer, weights)
    assert len(server.calls) == calls


def test_a_late_one_begins_with_the_newest_anchor(transfer_to: Any, tmp_path: Path, server: Server) -> None:
    transfer, weights = transfer_to(server, anchor_every=4), model()
    for number in range(7):
        sync(transfer, weights)
        step(weights, number)
    sync(transfer, weights)
    late = Server(tmp_path / "bucket")
    transfer.add_server(late.url)
    assert_holds(late, weights)
    files = [call.split()[1] for call in late.calls if call.startswith("/update_weights")]
    assert files == ["anchors/step_000004.safetensors"] + [f"deltas/step_{number:06d}.safetensors" for number in (5, 6, 7)]
    step(weights, 9)
    sync(transfer, weights)
    for one in server, late:
        assert_holds(one, weights)
    late.close()


@pytest.mark.parametrize("where", ["/update_weights", "/finish_weight_update", "/start_weight_update"])
def test_a_failed_update_is_raised_the_server_resumed_and_then_repaired(
    transfer_to: Any, server: Server, other: Server, where: str
) -> None:
    transfer, weights = transfer_to(server, other), model()
    for number in range(3):
        sync(transfer, weights)
        step(weights, number)
    server.fail_on = where
    with pytest.raises(dw.Unavailable, match=rf"not on 1 of 2: {server.url}{where}: answers 500: .*out of memory"):
        sync(transfer, weights)
    assert not server.paused
    assert transfer.holds[server.url] is None
    assert_holds(other, weights)  # it did not wait for the one that failed
    server.fail_on = ""
    step(weights, 5)
    sync(transfer, weights)
    assert "/update_weights anchors/step_000001.safetensors" in server.calls[-20:]
    for one in server, other:
        assert_holds(one, weights)


def test_a_pause_whose_answer_is_lost_ends_too(transfer_to: Any, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    server.lose_answer = "/pause"
    with pytest.raises(dw.Unavailable, match=r"/pause\?mode=keep: no answer"):
        sync(transfer, weights)
    assert not server.paused


def test_an_error_whose_words_do_not_come_is_of_its_server_alone(transfer_to: Any, server: Server, other: Server) -> None:
    transfer, weights = transfer_to(server, other), model()
    server.fail_on = "/update_weights"
    server.cuts_errors = True
    with pytest.raises(dw.Unavailable, match="not on 1 of 2: .*answers 500"):
        sync(transfer, weights)
    assert_holds(other, weights)


def test_a_server_that_was_restarted_is_begun_with_anew(transfer_to: Any, tmp_path: Path, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    transfer.init_weight_transfer()
    sync(transfer, weights)
    server.weights, server.is_begun = {}, False
    (tmp_path / "bucket/anchors/step_old.safetensors").write_bytes(b"")  # somebody else's
    step(weights, 1)
    with pytest.raises(dw.Unavailable):
        sync(transfer, weights)
    step(weights, 2)
    sync(transfer, weights)
    assert_holds(server, weights)


def test_a_trainer_that_was_restarted_trusts_no_server(transfer_to: Any, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    for number in range(3):
        sync(transfer, weights)
        step(weights, number)
    transfer.destroy()
    server.weights = {}  # it was restarted as well
    again = transfer_to(server)
    again.init_weight_transfer()
    sync(again, weights)
    assert_holds(server, weights)


def test_a_server_that_is_gone_is_named_in_time(transfer_to: Any, tmp_path: Path, server: Server) -> None:
    transfer, weights = transfer_to(server), model()
    sync(transfer, weights)
    server.close()
    step(weights, 1)
    with pytest.raises(dw.Unavailable, match=rf"{server.url}/pause\?mode=keep: no answer"):
        sync(transfer, weights)
    assert dw.Chain(tmp_path / "store").head == 1  # it is published all the same


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match="no base_url"):
        BucketTransfer(tmp_path, tmp_path, base_url=[])
    with pytest.raises(dw.InvalidArgument, match="wait='captured'"):
        BucketTransfer(tmp_path, tmp_path, base_url="http://a", wait="captured")
