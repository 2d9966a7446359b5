"""A real vLLM server that follows a chain by itself. One server for most of it: each takes half a minute to start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from servers import NUM_GPUS, VllmServer, assert_equal, need

import deltawire as dw

need("vllm")

from packing import reloaded_of
from trainers import Trainer, new_trainer


class Scene:
    """A trainer and a server that follows it."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.local = folder / "local"
        self.local.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "deltawire-test", self.local]
        self.is_small_disk = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self.trainer: Trainer = new_trainer(folder, **options)
        self.link = folder / "served"
        self.link.symlink_to(self.trainer.store)
        self.settings = {"store": str(self.link), "local": str(folder / "local"), "interval": 1}

    @contextmanager
    def outage(self, instead: Path | None = None):
        """The server's store is missing or differs."""
        self.link.unlink()
        if instead is not None:
            self.link.symlink_to(instead)
        yield
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.trainer.store)

    def server(self, *flags: str, tp: int = 1, **settings: object) -> VllmServer:
        return VllmServer(self.folder / "local", self.folder / "server.log", *flags, deltawire=self.settings | settings, tp=tp)

    def fresh(self) -> VllmServer:
        """A plain server started from the trainer's checkpoint."""
        return VllmServer(self.trainer.folder, self.folder / "fresh.log")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("vllm"))
    yield made
    made.trainer.close()
    if made.is_small_disk:
        subprocess.run(["umount", "-l", made.local], check=True)


@pytest.fixture(scope="module")
def server(scene):
    with scene.server() as running:
        yield running


def assert_proven(server: VllmServer, version: int) -> None:
    proven = server.post("/deltawire/prove")
    assert proven["version"] == version
    assert proven["wrong"] == []
    assert proven["num_tensors"] > 0


def test_serves_the_local_version(scene, server):
    status = server.wait_for(0)
    assert status["version"] == 0
    assert status["workers"][0]["reloaded"] == reloaded_of(scene.trainer.weights)
    assert_proven(server, 0)
    assert server.get("/weight_info")["weight_version"] == "0"


def test_not_ready_for_a_version_it_does_not_serve(server):
    status, answer = server.call("GET", "/deltawire/ready?version=1000000")
    assert (status, answer["ready"], answer["wanted"]["version"]) == (503, False, 1000000)
    run = server.status()["run"]
    assert server.call("GET", f"/deltawire/ready?version=0&run={run}")[0] == 200
    assert server.call("GET", f"/deltawire/ready?version=0&run={'f' * 32}")[0] == 503


def test_follows_the_chain(scene, server):
    before = server.logprobs()
    version = scene.trainer.step()
    status = server.wait_for(version)
    pause = status["workers"][0]["last_pause"]
    assert pause["staged_before"] and pause["changed"] > 0
    assert server.logprobs() != before
    assert_proven(server, version)
    assert server.get("/weight_info")["weight_version"] == str(version)


def test_metrics_report_the_version(scene, server):
    status, text = server.call("GET", "/deltawire/metrics")
    assert status == 200
    run = dw.Chain(scene.trainer.store).run
    assert f'deltawire_engine_weight_version{{run="{run}"}} {scene.trainer.version}\n' in text
    assert "deltawire_engine_ready 1\n" in text
    assert "deltawire_engine_proof_ok 1\n" in text
    assert "# TYPE deltawire_engine_pause_seconds gauge" in text


def test_applies_many_versions_in_order_or_merged(scene, server):
    for _ in range(10):
        version = scene.trainer.step(0.005)
    server.wait_for(version)
    assert_proven(server, version)


def test_requests_stream_through_updates(scene, server):
    answers: list[dict] = []
    asking = threading.Thread(
        target=lambda: answers.append(server.complete("tell me", 200, ignore_eos=True, return_token_ids=True))
    )
    asking.start()
    versions = [scene.trainer.step(0.01) for _ in range(3)]
    server.wait_for(versions[-1])
    asking.join(timeout=120)
    assert len(answers) == 1 and answers[0]["finish_reason"] == "length"
    assert_proven(server, versions[-1])


@pytest.mark.skipif(NUM_GPUS > 0, reason="on a GPU rounding differs with and without a cached prefix")
def test_cached_prefixes_belong_to_one_version(scene, server):
    prompt = "a prefix that is long enough to fill blocks of the cache, which hold a few tokens each " * 2
    server.logprobs(prompt)
    running = threading.Thread(target=server.complete, args=(prompt, 40), kwargs={"ignore_eos": True})
    running.start()  # blocks of the cache are in use while the version changes
    version = scene.trainer.step(0.2)
    server.wait_for(version)
    running.join(timeout=120)
    cached = server.logprobs(prompt)
    server.call("POST", "/reset_prefix_cache")
    assert cached == pytest.approx(server.logprobs(prompt), abs=1e-4)


def test_corrupt_part_keeps_the_old_version(scene, server):
    held = server.status()["version"]
    before = server.logprobs()
    with scene.outage():
        parts = set(Path(scene.trainer.store).rglob("*.safetensors"))
        version = scene.trainer.step()
        (part,) = set(Path(scene.trainer.store).rglob("*.safetensors")) - parts
        good = part.read_bytes()
        part.write_bytes(good[:-9] + bytes([good[-9] ^ 0xFF]) + good[-8:])
    status = server.wait_until(lambda status: "sha-256" in str(status["error"]))
    assert status["version"] == held and part.name in status["error"]
    assert server.logprobs() == before
    part.write_bytes(good)
    server.wait_for(version)
    assert server.status()["error"] is None
    assert_proven(server, version)


def test_serves_on_during_a_store_outage(scene, server):
    held = server.status()["version"]
    with scene.outage():
        version = scene.trainer.step()
        status = server.wait_until(lambda status: status["error"])
        assert status["version"] == held
        server.logprobs()
    server.wait_for(version)
    assert server.status()["error"] is None


def test_full_disk_keeps_the_old_version(scene, server):
    if not scene.is_small_disk:
        pytest.skip("no small disk can be mounted here")
    held = server.status()["version"]
    ballast = scene.local / "ballast"
    free = shutil.disk_usage(scene.local).free
    ballast.write_bytes(bytes(free))
    version = scene.trainer.step()
    status = server.wait_until(lambda status: "o space" in str(status["error"]))
    assert status["version"] == held
    server.logprobs()
    ballast.unlink()
    server.wait_for(version)
    assert_proven(server, version)


def test_refuses_another_run(scene, server):
    held = server.status()["version"]
    other = scene.folder / "other"
    with dw.Publisher(str(other)) as publisher:
        for _ in range(held + 3):
            publisher.publish({"w": torch.rand(4)})
    with scene.outage(other):
        status = server.wait_until(lambda status: not status["ready"])
        assert "run" in status["error"] and status["version"] == held
        code, answer = server.call("GET", "/deltawire/ready?version=0")
        assert (code, "run" in answer["error"]) == (503, True)
        assert server.call("POST", "/deltawire/update?version=0&timeout=1")[0] == 503
        assert server.call("POST", "/update_weights", {"update_info": {"version": 0, "timeout": 1}})[0] != 200
        server.logprobs()
    version = scene.trainer.step()
    server.wait_for(version)


def test_keeps_a_foreign_pause(scene, server):
    server.post("/pause?mode=keep")
    version = scene.trainer.step()
    server.wait_for(version)
    assert server.get("/is_paused")["is_paused"]
    server.post("/resume")
    assert not server.get("/is_paused")["is_paused"]
    assert_proven(server, version)


def test_detects_and_heals_foreign_writes(scene, server):
    version = server.status()["version"]
    before = server.logprobs()
    server.post("/weight_checker", {"action": "reset"})
    status, proven = server.call("POST", "/deltawire/prove")
    assert status == 500 and proven["wrong"]
    server.wait_until(lambda status: status["heals"] == 1)
    server.wait_for(version)
    assert_proven(server, version)
    server.call("POST", "/reset_prefix_cache")
    assert server.logprobs() == pytest.approx(before, abs=1e-5)


def test_concurrent_updates_both_end(scene, server):
    """The server's own update and one requested over HTTP: both end, and the newer version is served."""
    version = scene.trainer.step()
    answers = []

    def ask() -> None:
        answers.append(server.call("POST", "/start_weight_update", {}))
        answers.append(server.call("POST", "/update_weights", {"update_info": {"version": version}}))
        answers.append(server.call("POST", "/finish_weight_update", {"weight_version": str(version)}))

    asking = threading.Thread(target=ask)
    asking.start()
    server.wait_for(version)
    asking.join(timeout=60)
    assert [status for status, _ in answers] == [200, 200, 200], answers
    assert_proven(server, version)


def test_tokens_equal_those_of_a_fresh_server(scene, server):
    version = scene.trainer.step()
    server.wait_for(version)
    ours = server.answers()
    with scene.fresh() as fresh:
        assert_equal(ours, fresh.answers())


def test_killed_server_returns_at_the_newest_version(scene, server):
    server.stop(signal.SIGKILL)
    for _ in range(10):
        version = scene.trainer.step(0.005)
    with scene.server(verify="behind") as again:
        again.wait_for(version)
        version = scene.trainer.step(0.005)
        again.wait_for(version)
        again.wait_until(lambda status: (status["workers"][0]["proof"] or {}).get("mode") == "behind")
        assert_proven(again, version)
        # A worker that dies takes its server down, which reports it.
        os.kill(again.status()["workers"][0]["pid"], signal.SIGKILL)
        end = time.monotonic() + 60
        while time.monotonic() < end and again.call("GET", "/health")[0] == 200:
            time.sleep(0.2)
        assert again.call("GET", "/health")[0] != 200
