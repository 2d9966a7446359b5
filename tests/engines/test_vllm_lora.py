"""A real vLLM server that follows a chain of LoRA adapters. One server for most of it: each takes half a minute to start."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from servers import VllmServer, need

import deltawire as dw

need("vllm")

from safetensors.torch import save_file
from trainers import SHAPE, make_model

HEADS, KEYS = SHAPE["num_attention_heads"] * SHAPE["head_dim"], SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
HIDDEN, INNER = SHAPE["hidden_size"], SHAPE["intermediate_size"]
SIZES = {  # out, in
    "self_attn.q_proj": (HEADS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
LONG = "a prefix that is long enough to fill blocks of the cache, which hold a few tokens each " * 2


def adapter(seed: int, rank: int = 8, sizes: dict[str, tuple[int, int]] = SIZES, layers: int = 2) -> dict[str, torch.Tensor]:
    """What PEFT saves for an adapter with a large effect."""
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        for module, (out, into) in sizes.items():
            name = f"base_model.model.model.layers.{layer}.{module}.lora_"
            tensors[f"{name}A.weight"] = torch.randn(rank, into) / 8
            tensors[f"{name}B.weight"] = torch.randn(out, rank) / 8
    return tensors


def config(rank: int = 8, **more: Any) -> dict[str, Any]:
    modules = sorted({module.partition(".")[2] for module in SIZES})
    return {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": modules, "base_model_name_or_path": "tiny"} | more


class Scene:
    """A trainer of adapters, a base model, and a server that follows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.local = folder, folder / "store", folder / "local"
        self.base = make_model(folder / "base")
        changes = dw.PublishOptions(schema_change=True)  # adapters of other shapes
        self.publisher = dw.Publisher(str(self.store), options=changes)
        self.version, self.seed = -1, 0
        self.link = folder / "served"
        self.link.symlink_to(self.store)
        self.settings = {"store": str(self.link), "local": str(self.local), "adapter": "policy", "interval": 1}
        self.step()

    def publish(self, tensors: dict[str, torch.Tensor], **values: Any) -> int:
        path = self.folder / "adapter_config.json"
        path.write_text(json.dumps(config(**values)))
        self.version = self.publisher.publish(tensors, [path]).number
        return self.version

    def step(self) -> int:
        """Publish a good version; `saved` is what PEFT would save."""
        self.seed += 1
        return self.publish(adapter(self.seed))

    def point_at(self, store: Path) -> None:
        """Point the server's store link at this store."""
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(store)

    def saved(self) -> Path:
        folder = self.folder / "saved"
        folder.mkdir(exist_ok=True)
        save_file(adapter(self.seed), folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(config()))
        return folder

    def server(self, *flags: str, tp: int = 1, **settings: Any) -> VllmServer:
        flags = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "2", *flags)
        flags += ("--additional-config", json.dumps({"deltawire": self.settings | settings}))
        environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
        return VllmServer(self.base, self.folder / "server.log", *flags, tp=tp, environment=environment)

    def fresh(self) -> VllmServer:
        """A plain server with the newest good adapter."""
        flags = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"policy={self.saved()}")
        return VllmServer(self.base, self.folder / "fresh.log", *flags)


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("lora"))
    yield made
    made.publisher.close()


@pytest.fixture(scope="module")
def server(scene) -> Iterator[VllmServer]:
    with scene.server() as running:
        running.wait_for(scene.version)
        yield running


def answer(server: VllmServer, prompt: str = "hello world", tokens: int = 8, **more: Any) -> tuple[str, list[float]]:
    """The model that answered, and its logprobs."""
    body = {"model": "policy", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1, "ignore_eos": True}
    said = server.post("/v1/completions", body | more)
    return said["model"], said["choices"][0]["logprobs"]["token_logprobs"]


def assert_served(server: VllmServer, version: int) -> None:
    proven = server.post("/deltawire/prove")
    assert (proven["version"], proven["wrong"], proven["unproven"]) == (version, [], [])
    assert proven["num_tensors"] == 20
    assert answer(server)[0] == f"policy@{version}"


def test_serves_the_first_version_beside_the_model(scene, server):
    assert_served(server, 0)
    names = [card["id"] for card in server.get("/v1/models")["data"]]
    assert names == [str(scene.base), "policy"]
    assert answer(server)[1] != server.logprobs()


def test_follows_the_chain(scene, server):
    base, before = server.logprobs(), answer(server)[1]
    version = scene.step()
    status = server.wait_for(version)
    assert status["version"] == status["held"]["version"] == version
    assert answer(server)[1] != before
    assert server.logprobs() == base  # the model is as it was
    assert_served(server, version)
    _, text = server.call("GET", "/deltawire/metrics")
    assert f'deltawire_engine_weight_version{{run="{status["run"]}"}} {version}\n' in text


def test_cached_prefixes_belong_to_one_version(scene, server):
    answer(server, LONG)
    assert answer(server, LONG)[1] == answer(server, LONG, cache_salt="apart")[1]
    scene.step()
    server.wait_for(scene.version)
    cached = answer(server, LONG)
    assert cached == answer(server, LONG, cache_salt="apart")
    assert cached[0] == f"policy@{scene.version}"


class Asking:
    """Running requests: each thread repeats its request until all were running at the same time."""

    def __init__(self, server: VllmServer, num: int, tokens: int, version: str) -> None:
        self.answers: list[tuple[str, list[float]]] = []
        seen = threading.Event()

        def ask() -> None:
            while True:
                last = answer(server, "tell me", tokens)
                if seen.is_set():
                    self.answers.append(last)
                    return

        self._threads = [threading.Thread(target=ask) for _ in range(num)]
        for thread in self._threads:
            thread.start()
        try:
            server.wait_until(lambda status: status["workers"][0]["loaded"].get(version) == num)
        finally:
            seen.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=120)


def test_requests_keep_their_version(scene, server):
    alone = answer(server, "tell me", 200)
    asking = Asking(server, 2, 200, alone[0])
    for _ in range(4):  # more than the two that the engine has room for
        server.wait_for(scene.step())
        assert answer(server)[0] == f"policy@{scene.version}"
    asking.join()
    assert [name for name, _ in asking.answers] == [alone[0]] * 2
    for _, logprobs in asking.answers:
        assert logprobs == pytest.approx(alone[1], abs=0.05)  # batches of another size round otherwise
    assert_served(server, scene.version)


def test_many_requests_through_many_versions(scene, server):
    stop, seen, wrong = threading.Event(), set(), []

    def ask() -> None:
        while not stop.is_set():
            try:
                seen.add(answer(server, "go on", 5)[0])
            except AssertionError as error:
                wrong.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    first = scene.version + 1
    for _ in range(12):
        scene.step()
        time.sleep(0.2)
    server.wait_for(scene.version)
    while f"policy@{scene.version}" not in seen:
        time.sleep(0.1)
    stop.set()
    for thread in asking:
        thread.join(timeout=60)
    assert not wrong
    assert len(seen & {f"policy@{version}" for version in range(first, scene.version + 1)}) > 1
    assert_served(server, scene.version)


@contextmanager
def nothing_changes(scene: Scene, server: VllmServer, words: str, *, restore: Callable[[], Any] = int) -> Iterator[None]:
    """The body causes a failure with these words, and the previous version is still served; then a good one is applied."""
    before, version = answer(server), server.status()["version"]
    yield
    status = server.wait_until(lambda status: status["error"] and words in status["error"])
    assert status["version"] == version
    assert answer(server) == before
    assert answer(server, LONG)[0] == before[0]
    assert server.call("GET", f"/deltawire/ready?version={version + 1}")[0] == 503
    restore()
    server.wait_for(scene.step())
    assert server.status()["error"] is None
    assert_served(server, scene.version)


def wide(seed: int = 0) -> dict[str, torch.Tensor]:
    return adapter(seed, sizes={module: (out, 2 * into) for module, (out, into) in SIZES.items()})


def narrow(seed: int = 0) -> dict[str, torch.Tensor]:
    """vLLM would load it silently."""
    return adapter(seed, sizes={module: (out // 2, into // 2) for module, (out, into) in SIZES.items()})


@pytest.mark.parametrize(
    ("tensors", "values", "words"),
    [
        pytest.param(adapter(1, rank=16), {"rank": 16}, "LoRA rank 16 is greater than max_lora_rank 8", id="rank"),
        pytest.param(adapter(1, sizes=SIZES | {"mlp.other_proj": (8, 8)}), {}, "other_proj", id="unknown-module"),
        pytest.param(wide(), {}, "does not fit the served model", id="wide"),
        pytest.param(narrow(), {}, "does not fit the served model", id="narrow"),
        pytest.param(adapter(1, layers=3), {}, "the model has no module model.layers.2.", id="another-model"),
        pytest.param(adapter(1), {"use_dora": True}, "DoRA", id="dora"),
        pytest.param(adapter(1), {"peft_type": "IA3"}, "peft_type is IA3", id="no-lora"),
        pytest.param(adapter(1), {"rank": 4}, "has rank 8, but r=4 in adapter_config.json", id="other-rank"),
        pytest.param({"w": torch.ones(4, 4)}, {}, "no LoRA tensors", id="no-adapter"),
    ],
)
def test_unfit_adapter_keeps_the_old_version(scene, server, tensors, values, words):
    with nothing_changes(scene, server, words):
        scene.publish(tensors, **values)


def test_damaged_version_keeps_the_old_one(scene, server):
    with nothing_changes(scene, server, "", restore=lambda: scene.point_at(scene.store)):
        scene.link.unlink()
        scene.step()
        broken = scene.folder / "broken"
        shutil.copytree(scene.store, broken)
        parts = [
            path for path in broken.rglob("*") if path.is_file() and f"{scene.version:010d}" in str(path.relative_to(broken))
        ]
        for part in parts:
            if ".safetensors" in part.name:
                os.truncate(part, part.stat().st_size - 100)
        scene.point_at(broken)


def test_truncated_local_file_keeps_the_old_version(scene, server):
    """The file is truncated after the server copied it: serving does not depend on the replica's files."""
    version = server.status()["version"]
    assert server.call("POST", "/deltawire/update")[1]["version"] == version
    # A replica keeps the first name of its file; a version that was no adapter had another name.
    (weights,) = (scene.local / f"v{version:010d}").glob("*.safetensors")
    os.truncate(weights, weights.stat().st_size - 8)
    assert answer(server)[0] == f"policy@{version}"  # it has a copy of its own
    assert_served(server, version)
    server.wait_for(scene.step())  # and the replica repairs what it holds
    assert_served(server, scene.version)


def test_reloads_an_unloaded_adapter(scene, server):
    server.wait_for(scene.step())
    before = answer(server)
    status, said = server.call("POST", "/v1/unload_lora_adapter", {"lora_name": "policy"})
    assert status == 200, said
    server.wait_until(lambda _: "policy" in [card["id"] for card in server.get("/v1/models")["data"]])
    assert answer(server) == before


def test_serves_on_during_a_store_outage(scene, server):
    with nothing_changes(scene, server, "", restore=lambda: scene.point_at(scene.store)):
        scene.link.unlink()
        scene.step()


def test_tokens_equal_those_of_a_fresh_server(scene, server):
    server.wait_for(scene.step())
    ours = [answer(server, prompt, 24)[1] for prompt in ("hello world", "tell me", LONG)]
    with scene.fresh() as fresh:
        assert ours == [answer(fresh, prompt, 24)[1] for prompt in ("hello world", "tell me", LONG)]


def test_restarted_server_catches_up(scene, server):
    server.stop(signal.SIGKILL)
    versions = [scene.step() for _ in range(3)]
    with scene.server("--max-cpu-loras", "2") as again:
        again.wait_for(versions[-1])
        assert_served(again, versions[-1])
        left = list((scene.local / ".deltawire" / "adapters").iterdir())
        assert len(left) == 1  # what the killed one had is gone


def test_two_workers_share_one_slot(scene):
    """Both load a version or none does. A running request gets its adapter back after another one used the slot."""
    with scene.server("--max-loras", "1", tp=2) as server:
        server.wait_for(scene.step())
        alone = answer(server, "tell me", 100)
        asking = Asking(server, 1, 100, alone[0])
        server.wait_for(scene.step())
        asking.join()
        assert asking.answers == [alone]
        assert_served(server, scene.version)
        with nothing_changes(scene, server, "does not fit"):
            scene.publish(wide())
        loaded = str(server.post("/collective_rpc", {"method": "list_loras"}))
        newest = max(int(number) for number in re.findall(r"\d+", loaded))
        server.post("/collective_rpc", {"method": "pin_lora", "args": [newest]})
        before = answer(server)
        scene.step()
        status = server.wait_until(lambda status: status["error"])
        assert "pinned" in status["error"]
        assert answer(server) == before


def test_reports_a_server_without_lora(scene):
    settings = json.dumps({"deltawire": scene.settings})
    server = VllmServer(scene.base, scene.folder / "without.log", "--additional-config", settings)
    try:
        server.process.wait(timeout=300)
        assert "--enable-lora" in server.tail(20000)
    finally:
        server.stop()
