"""Kinds of models in a real vLLM server: two tensor-parallel workers, tied embeddings, Llama, experts; the standard calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from servers import NUM_GPUS, PACKAGE, VllmServer, assert_equal, need

import deltawire as dw

need("vllm")

from packing import reloaded_of
from trainers import new_trainer

PROGRAM = PACKAGE.parent / "deltawire"


def fresh_answers(folder: Path, log: Path, tp: int = 1) -> list[dict]:
    with VllmServer(folder, log, tp=tp) as fresh:
        return fresh.answers()


@pytest.mark.parametrize(("kind", "tied", "tp"), [("llama", True, 2), ("qwen3", True, 1)])
def test_standard_calls_update_the_server(tmp_path, kind, tied, tp):
    """The server has no store until a trainer names it; the trainer pauses, updates and resumes."""
    trainer = new_trainer(tmp_path, kind, tied=tied)
    allowed = {"allow_stores": [trainer.store], "allow_locals": [str(tmp_path / "local")]}
    with VllmServer(trainer.folder, tmp_path / "server.log", deltawire=allowed, tp=tp) as server:
        for bad in ({}, {"local": str(tmp_path / "home" / ".ssh")}, {"local": str(tmp_path / "local"), "store": str(tmp_path)}):
            init = {"store": trainer.store} | bad
            status, answer = server.call("POST", "/init_weight_transfer_engine", {"init_info": init})
            assert status != 200 and server.call("GET", "/health")[0] == 200, answer
        assert "this server does not accept this setting" in server.tail(20000)
        assert not (tmp_path / "home").exists()
        init = {"store": trainer.store, "local": str(tmp_path / "local"), "interval": 1, "timeout": 60}
        server.post("/init_weight_transfer_engine", {"init_info": init})
        server.post("/init_weight_transfer_engine", {"init_info": init})
        for _ in range(2):
            version = trainer.step()
            server.post("/pause?mode=keep")
            server.post("/start_weight_update")
            server.post("/update_weights", {"update_info": {"version": version}})
            server.post("/finish_weight_update", {"weight_version": str(version)})
            server.post("/resume")
        assert server.get("/weight_info")["weight_version"] == str(version)
        # A version that does not arrive: a clear error, and the server serves on.
        server.post("/start_weight_update")
        status, answer = server.call("POST", "/update_weights", {"update_info": {"version": 99, "timeout": 1}})
        assert status != 200, answer
        assert "version 99 did not arrive" in server.tail(200_000)
        server.call("POST", "/finish_weight_update", {})
        ours = server.answers()
        proven = server.post("/collective_rpc", {"method": "deltawire", "args": ["prove"]})["results"]
        assert len(proven) == tp
        assert all(result["ok"]["wrong"] == [] and result["ok"]["num_tensors"] for result in proven), proven
    assert_equal(ours, fresh_answers(trainer.folder, tmp_path / "fresh.log", tp))


def test_updates_engines_side_by_side_with_an_api_key(tmp_path):
    """Data parallel: each engine has its own weights. The server's key protects its status."""
    trainer = new_trainer(tmp_path)
    settings = {"store": trainer.store, "local": str(tmp_path / "local"), "interval": 1}
    server = VllmServer(tmp_path / "local", tmp_path / "server.log", "--api-key", "sesame", deltawire=settings, dp=2)
    with server:
        for method, path in (("GET", "status"), ("GET", "ready"), ("GET", "metrics"), ("POST", "prove"), ("POST", "update")):
            assert server.call(method, f"/deltawire/{path}")[0] == 401
        server.headers = {"Authorization": "Bearer sesame"}
        server.wait_for(0)
        status = server.wait_for(trainer.step())
        assert [worker["served"]["version"] for worker in status["workers"]] == [1, 1]
        assert len({worker["pid"] for worker in status["workers"]}) == 2
        assert (server.get("/weight_info")["weight_version"], status["updates"]) == ("1", 1)
        ours = [server.answers() for _ in range(2)]  # of both
        assert server.post("/deltawire/prove")["wrong"] == []
    theirs = fresh_answers(trainer.folder, tmp_path / "fresh.log")
    for each in ours:
        assert_equal(each, theirs)


def test_updates_repacked_experts(tmp_path):
    """On a CPU vLLM packs experts: they use its own reload, other weights a scatter. On a GPU all use a scatter."""
    trainer = new_trainer(tmp_path, "moe")
    settings = {"store": trainer.store, "local": str(tmp_path / "local"), "interval": 1}
    with VllmServer(tmp_path / "local", tmp_path / "server.log", deltawire=settings) as server:
        server.wait_for(0)
        for names in ("", "self_attn", "experts"):
            version = trainer.step(0.05, names)
            status = server.wait_for(version)
        (worker,) = status["workers"]
        assert any(".mlp.experts." in name for name in worker["reloaded"]) == (NUM_GPUS == 0)
        others = [[name for name in names if ".mlp." not in name] for names in (worker["reloaded"], reloaded_of(trainer.weights))]
        assert others[0] == others[1]
        proven = server.post("/deltawire/prove")
        assert proven["wrong"] == [] and proven["num_tensors"] + len(proven["unproven"]) == len(trainer.weights)
        ours = server.answers()
    assert_equal(ours, fresh_answers(trainer.folder, tmp_path / "fresh.log"))


def test_drafting_layer_follows(tmp_path):
    """Multi-token prediction is part of the checkpoint and of each version: drafts equal those of a fresh server."""
    flags = ["--trust-remote-code", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}']
    trainer = new_trainer(tmp_path, "mimo")
    settings = {"store": trainer.store, "local": str(tmp_path / "local"), "interval": 1}
    with VllmServer(tmp_path / "local", tmp_path / "server.log", *flags, deltawire=settings) as server:
        server.wait_for(0)
        for names in ("", "mtp_layers"):
            version = trainer.step(0.3, names)
            status = server.wait_for(version)
        (worker,) = status["workers"]
        reloaded = reloaded_of(trainer.weights)
        assert worker["reloaded"] == reloaded
        proven = server.post("/deltawire/prove")
        assert proven["wrong"] == [] and sorted(proven["unproven"]) == reloaded
        assert proven["num_tensors"] == len(trainer.weights) - len(reloaded)
        before = accepted_drafts(server)
        ours = server.answers()
        accepted = accepted_drafts(server) - before
    with VllmServer(trainer.folder, tmp_path / "fresh.log", *flags) as fresh:
        before = accepted_drafts(fresh)
        assert_equal(ours, fresh.answers())
        assert accepted == accepted_drafts(fresh) - before


def accepted_drafts(server: VllmServer) -> float:
    """The number of drafted tokens accepted so far."""
    lines = str(server.get("/metrics")).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:spec_decode_num_accepted_tokens_total"))


def test_refuses_an_untrusted_version(tmp_path):
    """Only versions signed with a trusted key are served."""
    for name in ("trainer-key", "other-key"):
        subprocess.run([PROGRAM, "keygen", "-o", tmp_path / name], check=True, capture_output=True)
    trainer = new_trainer(tmp_path, keys=dw.Keys(sign=tmp_path / "trainer-key"))
    settings = {"store": trainer.store, "local": str(tmp_path / "host"), "interval": 1, "timeout": 5}
    settings["trust"] = str(tmp_path / "other-key.pub")
    with VllmServer(trainer.folder, tmp_path / "server.log", deltawire=settings) as server:
        status = server.wait_until(lambda status: "key" in str(status["error"]))
        assert status["version"] is None
        assert server.call("GET", "/deltawire/ready")[0] == 503
        server.logprobs()


def test_plain_path_reloads_a_server_from_disk(tmp_path):
    """Without a plugin: `deltawire follow --notify` patches the local checkpoint, and the server loads it again."""
    trainer = new_trainer(tmp_path)
    with VllmServer(tmp_path / "local", tmp_path / "server.log") as server:
        version = trainer.step()
        url = f"vllm=http://127.0.0.1:{server.port}"
        command = [PROGRAM, "follow", trainer.store, tmp_path / "local", "--notify", url, "--until", str(version)]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        server.call("POST", "/reset_prefix_cache")
        ours = server.answers()
    assert_equal(ours, fresh_answers(trainer.folder, tmp_path / "fresh.log"))
