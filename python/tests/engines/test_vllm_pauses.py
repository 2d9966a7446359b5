"""`deltawire.engines.vllm` beside other callers that pause, update and label the same engine, without vLLM."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")
pytest.importorskip("fastapi")

from engine_models import checkpoint
from test_engines import assert_same, loaded, wait_until

from deltawire.engines.member import Member
from deltawire.engines.vllm import core
from deltawire.engines.vllm.pauses import Pauses
from deltawire.engines.vllm.server import update_weights


class Core:
    """The pauses and worker calls of vLLM's engine core."""

    def __init__(self, members: list[Member]) -> None:
        self.core_engines = members
        self.is_paused = False
        self.num_failures = 0  # of resumes, that are to come
        self.paused_in_writes: list[bool] = []
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def pause_scheduler_async(self, mode: str = "abort", clear_cache: bool = True) -> None:
        self.is_paused = True

    async def resume_scheduler_async(self) -> None:
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("the engine core does not answer")
        self.is_paused = False

    async def is_scheduler_paused_async(self) -> bool:
        known = self.is_paused
        self.is_asked.set()
        await self.may_answer.wait()
        return known

    async def _call_utility_async(
        self, utility: str, method: str, timeout: None, args: Any, options: Any, *, engine: Member
    ) -> list[Any]:
        assert (utility, method) == ("collective_rpc", "deltawire")
        if args[0] in ("update", "revert"):
            self.paused_in_writes.append(self.is_paused)
        return [engine.call(*args, **options)]


class Client:
    """vLLM's AsyncLLM."""

    def __init__(self, members: list[Member] | None = None) -> None:
        self.engine_core = Core(members or [])

    async def pause_generation(self) -> None:
        await self.engine_core.pause_scheduler_async()

    async def resume_generation(self) -> None:
        await self.engine_core.resume_scheduler_async()

    async def is_paused(self) -> bool:
        return await self.engine_core.is_scheduler_paused_async()

    async def sleep(self) -> None:
        await self.engine_core.pause_scheduler_async()


# ---- pauses


async def test_next_update_repeats_a_failed_resume():
    client = Client()
    pauses = Pauses.of(client)
    await pauses.begin(keep_cache=True)
    client.engine_core.num_failures = 1
    with pytest.raises(RuntimeError, match="does not answer"):
        await pauses.end()
    assert client.engine_core.is_paused
    await pauses.begin(keep_cache=True)
    await pauses.end()
    assert not client.engine_core.is_paused, "nobody else has paused the engine"


def test_ready_again_when_the_engine_resumes(world, monkeypatch):
    client, server = Client(), world.server
    pauses = Pauses.of(client)
    monkeypatch.setattr(server, "pause", pauses.begin)
    monkeypatch.setattr(server, "resume", pauses.end)
    world.step(1)
    client.engine_core.num_failures = 1
    wait_until(lambda: server.go_on() or client.engine_core.is_paused)
    status, words = server.ready()
    assert (status, "cannot resume the paused engine" in words["error"]) == (503, True)
    world.step(2)
    wait_until(lambda: server.members[0].worker.staged is not None)
    assert server.http.post("/deltawire/update", params={"version": 2}).status_code == 200  # before the follower tries again
    assert not client.engine_core.is_paused
    assert server.ready(version=2)[0] == 200


async def test_keeps_a_foreign_pause_that_starts_with_ours():
    client = Client()
    pauses = Pauses.of(client)
    client.engine_core.may_answer.clear()
    ours = asyncio.create_task(pauses.begin(keep_cache=True))
    await client.engine_core.is_asked.wait()
    await client.pause_generation()
    client.engine_core.may_answer.set()
    await ours
    await pauses.end()
    assert client.engine_core.is_paused


@pytest.mark.parametrize("call", ["pause_generation", "sleep"])
async def test_asks_again_only_after_a_foreign_pause(call):
    client = Client()
    pauses = Pauses.of(client)
    await pauses.begin(keep_cache=True)
    await pauses.end()
    client.engine_core.is_asked.clear()
    await pauses.begin(keep_cache=True)
    await pauses.end()
    assert not client.engine_core.is_asked.is_set(), "it answers between two steps"
    await getattr(client, call)()
    await pauses.begin(keep_cache=True)
    await pauses.end()
    assert client.engine_core.is_asked.is_set()
    assert client.engine_core.is_paused
    client.engine_core.is_paused = False  # by a way that is not watched
    await pauses.begin(keep_cache=True)
    await pauses.end()
    assert not client.engine_core.is_paused


@pytest.mark.parametrize("call", ["pause_generation", "sleep"])
async def test_keeps_a_foreign_pause_during_ours(call):
    client = Client()
    pauses = Pauses.of(client)
    await pauses.begin(keep_cache=True)
    await getattr(client, call)()
    await pauses.end()
    assert client.engine_core.is_paused
    await client.resume_generation()
    assert not client.engine_core.is_paused


# ---- updates requested by a trainer


@pytest.fixture
def told(make_world):
    """Two engines side by side that update to an available version on request: a world and a client."""
    world = make_world(engines=2, follow=False)
    world.step(1)
    return world, Client(world.server.members)


def update(client: Client) -> None:
    asyncio.run(update_weights(client, asyncio.Lock(), SimpleNamespace(update_info={"version": 1, "timeout": 30})))


@pytest.mark.parametrize("is_paused", [False, True])
def test_trainer_updates_engines_side_by_side(told, is_paused):
    world, client = told
    client.engine_core.is_paused = is_paused
    update(client)
    assert [member.served.version for member in world.server.members] == [1, 1]
    for engine in world.engines:
        assert_same(engine, loaded(world.chain.tensors))
    assert set(client.engine_core.paused_in_writes) == {True}
    assert client.engine_core.is_paused == is_paused, "as its caller left it"
    wanted = world.step(2)
    wait_until(lambda: all(member.worker.staged == wanted for member in world.server.members))


def test_engines_side_by_side_stay_together_on_failure(told, monkeypatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("no room")

    world, client = told
    with monkeypatch.context() as broken:
        broken.setattr(world.server.members[1].worker, "_write", fail)
        with pytest.raises(RuntimeError, match="worker 1: .*no room"):
            update(client)
    assert [member.served.version for member in world.server.members] == [0, 0]
    for engine in world.engines:
        assert_same(engine, loaded(checkpoint()))
    assert client.engine_core.paused_in_writes == [True] * 4
    assert not client.engine_core.is_paused
    update(client)
    assert [member.served.version for member in world.server.members] == [1, 1]


# ---- labels


class EngineCore:
    """The part of vLLM's EngineCore that `deltawire.engines.vllm.core` hooks into. Its workers serve version 13."""

    def __init__(self) -> None:
        self.weight_version = "default"
        self.vllm_config = SimpleNamespace(weight_transfer_config=SimpleNamespace(backend="deltawire"))
        self.scheduler = SimpleNamespace(waiting=[])

    def collective_rpc(self, method: str, timeout: float | None = None, args: Any = (), kwargs: Any = None) -> list[Any]:
        return [{"ok": dw.Identity("a" * 32, 13, "b" * 64)}] if method == "deltawire" else [None]

    def set_weight_version(self, weight_version: str) -> None:
        self.weight_version = weight_version

    def preprocess_add_request(self, request: Any) -> Any:
        return request

    def add_request(self, request: Any) -> Any:
        return request


def test_labels_ignore_versions_named_by_callers(monkeypatch):
    module = ModuleType("vllm.v1.engine.core")
    module.EngineCore = EngineCore
    for name in ("vllm", "vllm.v1", "vllm.v1.engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    core.install()
    engine = EngineCore()
    engine.collective_rpc("update_weights", None, (), {"update_info": {"version": 12}})  # at least
    assert engine.weight_version == "13"
    engine.collective_rpc("finish_weight_update")
    engine.set_weight_version("12")  # which a trainer tells vLLM then
    assert engine.weight_version == "13"
    engine.collective_rpc("deltawire", None, ("update",), {})
    assert engine.weight_version == "13"
