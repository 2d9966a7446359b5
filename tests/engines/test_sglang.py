"""A real SGLang server (scripts/engines installs it; DELTAWIRE_ENGINES says where) and the ways its weights come from a chain.

Starts are slow, so that one server takes most tests, one after the other: each leaves it serving the newest version.
"""

from __future__ import annotations

import base64
import json
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from servers import ENGINES, SglangServer
from sglang_trainer import NUM_TENSORS, PROGRAM, Trainer, outputs

import deltawire as dw
from deltawire.engines.host import local_identity

pytestmark = pytest.mark.skipif(not (ENGINES / "sglang" / "serve").exists(), reason="SGLang is not installed: make test-engines")

LOADER = "deltawire.engines.sglang.load"


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return Trainer(tmp_path_factory.mktemp("sglang"))


@pytest.fixture(scope="module")
def local(trainer: Trainer) -> Path:
    folder = trainer.folder / "local"
    with dw.Replica(str(trainer.store), str(folder)) as replica:  # as `deltawire pull` does
        replica.pull()
    return folder


def _settings(trainer: Trainer, local: Path, **more: str) -> dict[str, str]:
    named = {"DELTAWIRE_STORE": str(trainer.store), "DELTAWIRE_LOCAL": str(local), "DELTAWIRE_INTERVAL": "0.5"}
    named["DELTAWIRE_TRUST"] = str(trainer.folder / "key.pub")
    return named | {f"DELTAWIRE_{name.upper()}": value for name, value in more.items()}


@pytest.fixture(scope="module")
def server(trainer: Trainer, local: Path) -> Iterator[SglangServer]:
    """Follows the chain; its custom loader can also be called."""
    flags = "--custom-weight-loader", LOADER
    with SglangServer(local, trainer.folder / "server.log", *flags, settings=_settings(trainer, local)) as server:
        server.wait("/deltawire/ready", 120)
        yield server


@pytest.fixture(scope="module")
def plain(trainer: Trainer) -> Iterator[SglangServer]:
    """A server without a chain, started from the trainer's checkpoint."""
    with SglangServer(trainer.checkpoint(), trainer.folder / "plain.log") as server:
        yield server


def _publish(trainer: Trainer, server: SglangServer, **options: Any) -> int:
    version = trainer.publish(**options)
    server.wait(f"/deltawire/ready?version={version}", 120)
    return version


def _load(server: SglangServer, tensors: list[tuple[str, torch.Tensor]], ranks: int = 1, **more: Any) -> tuple[int, Any]:
    payload = base64.b64encode(pickle.dumps(tensors)).decode()
    begun, answer = server.call("POST", "/begin_weight_update", {})
    assert begun in (200, 404), answer  # 404 before 0.5.21
    body = {"serialized_named_tensors": [payload] * ranks, "load_format": LOADER, "flush_cache": False}
    try:
        return server.call("POST", "/update_weights_from_tensor", body | more)
    finally:
        assert server.call("POST", "/end_weight_update", {})[0] == begun


def _proven(server: SglangServer, version: int) -> None:
    status, proof = server.call("POST", "/deltawire/prove", {})
    assert status == 200
    assert (proof["version"], proof["num_tensors"], proof["wrong"], proof["unproven"]) == (version, NUM_TENSORS, [], [])


def test_server_reports_what_it_serves(server: SglangServer, trainer: Trainer) -> None:
    assert server.call("GET", f"/deltawire/ready?version={trainer.version}")[0] == 200
    assert server.call("GET", f"/deltawire/ready?version={trainer.version + 1}")[0] == 503
    _, status = server.call("GET", "/deltawire/status")
    assert (status["version"], status["state"], status["error"]) == (trainer.version, "serving", None)
    assert [(worker["tensors"], worker["reloaded"]) for worker in status["workers"]] == [(NUM_TENSORS, [])]
    _, metrics = server.call("GET", "/deltawire/metrics")
    assert f'deltawire_engine_weight_version{{run="{status["run"]}"}} {trainer.version}\n' in metrics
    assert server.call("GET", "/model_info")[1]["weight_version"] == str(trainer.version)
    assert server.call("POST", "/deltawire/prove?mode=some", {})[0] == 400


def test_update_equals_a_fresh_server(
    server: SglangServer, trainer: Trainer, request: pytest.FixtureRequest
) -> None:
    before = outputs(server)
    _publish(trainer, server)
    version = _publish(trainer, server)
    after = outputs(server)
    assert after != before
    _proven(server, version)
    plain = request.getfixturevalue("plain")  # started now, from the checkpoint of this version
    assert outputs(plain) == after


def test_cached_prefixes_belong_to_one_version(server: SglangServer, trainer: Trainer) -> None:
    prompt = [3 + step % 200 for step in range(64)]
    server.generate(prompt, 2)
    assert server.generate(prompt, 2)["meta_info"]["cached_tokens"] > 0
    _publish(trainer, server)
    first = server.generate(prompt, 8)
    assert first["meta_info"]["cached_tokens"] == 0
    again = server.generate(prompt, 8)
    assert again["meta_info"]["cached_tokens"] > 0
    assert again["output_ids"] == first["output_ids"]
    assert server.generate(prompt, 2, extra_key="tenant")["meta_info"]["cached_tokens"] == 0  # a caller's own key still counts


def _stream(server: SglangServer, count: int, results: list[dict[str, Any]], begun: threading.Event) -> None:
    parameters = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
    body = json.dumps({"input_ids": [5, 6, 7, len(results) + 8], "sampling_params": parameters, "stream": True}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/generate", data=body, headers={"Content-Type": "application/json"}
    )
    last: dict[str, Any] = {}
    with urllib.request.urlopen(request, timeout=300) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                last = json.loads(line[6:])
                begun.set()
    results.append(last)


def _update_while_streaming(server: SglangServer, trainer: Trainer, count: int) -> list[dict[str, Any]]:
    for _ in range(5):  # a quick machine may be done before the version is there
        results: list[dict[str, Any]] = []
        begun = threading.Event()
        threads = [threading.Thread(target=_stream, args=(server, count, results, begun)) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert begun.wait(300)
        version = _publish(trainer, server)
        in_time = any(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        if in_time:
            break
    assert in_time, "requests were over before the update, each time"
    assert len(results) == 3
    assert all(result["meta_info"]["completion_tokens"] == count for result in results)
    _proven(server, version)
    return results


def test_requests_stream_through_an_update(server: SglangServer, trainer: Trainer) -> None:
    results = _update_while_streaming(server, trainer, 300)
    # SGLang reports the version of each token.
    versions = [{str(span["version"]) for span in result["meta_info"]["weight_versions"]} for result in results]
    assert {str(trainer.version - 1), str(trainer.version)} in versions


def test_loader_reports_its_version(server: SglangServer, trainer: Trainer) -> None:
    status, answer = _load(server, [])
    assert (status, answer["success"]) == (200, True)
    assert answer["message"].startswith(f"deltawire: version {trainer.version} of run ")
    version = trainer.publish()
    status, answer = _load(server, [("deltawire.version", torch.tensor([version]))], weight_version=str(version))
    assert (status, answer["success"]) == (200, True)
    assert answer["message"].startswith(f"deltawire: version {version}")
    _proven(server, version)


def test_failing_loader_does_not_end_the_server(server: SglangServer, trainer: Trainer) -> None:
    before = outputs(server)
    status, answer = _load(server, [("deltawire.version", torch.tensor([], dtype=torch.int64))])
    assert (status, answer["success"]) == (400, False)
    assert answer["message"].startswith("deltawire: IndexError")
    assert outputs(server) == before
    _proven(server, trainer.version)


def test_concurrent_updates_both_end(server: SglangServer, trainer: Trainer) -> None:
    version = trainer.publish()
    answers: list[tuple[int, Any]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(server.call("POST", f"/deltawire/update?version={version}", {})))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(status, answer["version"]) for status, answer in answers] == [(200, version)] * 2
    _proven(server, version)
    assert server.call("POST", f"/deltawire/update?version={version + 1}&timeout=0.2", {})[0] == 503


def _error(server: SglangServer, words: str = "") -> str:
    """The error in the server's status."""
    end = time.monotonic() + 60
    while not (error := server.call("GET", "/deltawire/status")[1]["error"]) or words not in error:
        assert time.monotonic() < end, f"no error is shown: {error}"
        time.sleep(0.1)
    return str(error)


def _serves_on(server: SglangServer, version: int, before: list[Any]) -> None:
    assert server.call("GET", f"/deltawire/ready?version={version + 1}")[0] == 503
    assert outputs(server) == before
    _proven(server, version)


def _goes_on(server: SglangServer, version: int) -> None:
    server.wait(f"/deltawire/ready?version={version}", 120)
    assert server.call("GET", "/deltawire/status")[1]["error"] is None
    _proven(server, version)


def test_damaged_part_keeps_the_old_version(server: SglangServer, trainer: Trainer) -> None:
    before = outputs(server)
    old, version = trainer.version, trainer.publish(damaged=True)
    assert "orrupt" in _error(server)
    _serves_on(server, old, before)
    trainer.deliver()
    _goes_on(server, version)


def test_refuses_a_version_of_an_unknown_key(server: SglangServer, trainer: Trainer) -> None:
    before = outputs(server)
    assert trainer.forge() == trainer.version + 1
    assert "sign" in _error(server)
    _serves_on(server, trainer.version, before)
    _goes_on(server, trainer.publish())


def test_serves_on_without_its_store_or_run(server: SglangServer, trainer: Trainer, tmp_path: Path) -> None:
    before = outputs(server)
    away = trainer.folder / "away"
    trainer.store.rename(away)
    assert _error(server)
    _serves_on(server, trainer.version, before)
    Trainer(tmp_path).store.rename(trainer.store)
    _error(server, "run")
    _serves_on(server, trainer.version, before)
    trainer.store.rename(trainer.folder / "wrong")
    away.rename(trainer.store)
    _goes_on(server, trainer.publish())


def test_reload_from_disk_changes_nothing(server: SglangServer, trainer: Trainer) -> None:
    version, local = _publish(trainer, server), server.status()["local_folder"]
    server.wait_until(lambda _: (held := local_identity(local)) and held.version == version)  # updated every 5 seconds
    before = outputs(server)
    assert server.call("POST", "/update_weights_from_disk", {"model_path": local, "flush_cache": False})[0] == 200
    assert outputs(server) == before
    _proven(server, version)


def test_keeps_a_foreign_pause(server: SglangServer, trainer: Trainer) -> None:
    assert server.call("POST", "/pause_generation", {"mode": "in_place"})[0] == 200
    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=_stream, args=(server, 4, results, threading.Event()))
    thread.start()
    try:
        version = _publish(trainer, server)
        time.sleep(0.5)
        assert thread.is_alive()
    finally:
        assert server.call("POST", "/continue_generation", {})[0] == 200
    thread.join()
    assert results[0]["meta_info"]["weight_version"] == str(version)


def test_plain_path_reloads_a_server_from_disk(server: SglangServer, plain: SglangServer, trainer: Trainer) -> None:
    version, folder = trainer.version, trainer.folder / "plain-local"
    command = [PROGRAM, "follow", trainer.store, folder, "--until", str(version)]
    command += ["--notify", f"sglang=http://127.0.0.1:{plain.port}"]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert plain.call("GET", "/model_info")[1]["weight_version"] == str(version)
    assert outputs(plain) == outputs(server)
    plain.stop()


def test_killed_server_returns_at_the_newest_version(server: SglangServer, trainer: Trainer, local: Path) -> None:
    """The second run has two workers, and drops caches with every version."""
    expected = outputs(server)
    trainer.publish()
    server.stop(signal.SIGKILL)
    for _ in range(3):
        trainer.publish()
    settings = _settings(trainer, local, keep_cache="0") | {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with SglangServer(local, trainer.folder / "again.log", "--tp", "2", settings=settings) as again:
        again.wait(f"/deltawire/ready?version={trainer.version}", 120)
        _proven(again, trainer.version)
        assert len(again.call("GET", "/deltawire/status")[1]["workers"]) == 2
        assert outputs(again) != expected
        _update_while_streaming(again, trainer, 200)
        prompt = [3 + step % 200 for step in range(64)]
        again.generate(prompt, 2)
        _publish(trainer, again)
        assert again.generate(prompt, 2)["meta_info"]["cached_tokens"] == 0
        assert "cannot drop" not in again.log.read_text(errors="replace")


def test_weights_in_another_dtype_use_sglangs_loader(trainer: Trainer) -> None:
    local = trainer.folder / "converted"
    with dw.Replica(str(trainer.store), str(local)) as replica:
        replica.pull()
    log = trainer.folder / "converted.log"
    with SglangServer(local, log, "--dtype", "float32", settings=_settings(trainer, local)) as server:
        server.wait("/deltawire/ready", 120)
        before = outputs(server)
        version = _publish(trainer, server)
        after = outputs(server)
        assert after != before
        status, proof = server.call("POST", "/deltawire/prove", {})
        assert (status, proof["version"], proof["num_tensors"], len(proof["unproven"])) == (200, version, 0, NUM_TENSORS)
        # The same as if SGLang had reloaded everything.
        assert server.call("POST", "/update_weights_from_disk", {"model_path": str(local), "flush_cache": False})[0] == 200
        assert outputs(server) == after
