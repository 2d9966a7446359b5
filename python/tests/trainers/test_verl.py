"""`deltawire.trainers.verl` under verl's own base class, registry and worker; skipped without verl (`scripts/venv DIR verl`)."""

import asyncio
import importlib
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
base = pytest.importorskip("verl.checkpoint_engine.base", reason="verl is not installed: scripts/venv DIR verl")

import deltawire as dw

pytestmark = pytest.mark.filterwarnings("default")  # theirs, of each other

State = dict[str, Any]


def weights(seed: int = 1) -> State:
    generator = torch.Generator().manual_seed(seed)
    state = {f"layers.{n}.weight": torch.randn(8, 16, generator=generator).to(torch.bfloat16) for n in range(4)}
    state["scale"] = torch.tensor(1.5)  # of no dimension
    return state


def new(store: str, local: Path, *, master: bool | None = None, **options: Any) -> Any:
    """Created as verl does: the rollout side does not pass `is_master`."""
    importlib.import_module("deltawire.trainers.verl")  # verl: import_external_libs(custom_backend_module)
    side = {} if master is None else {"is_master": master}
    return base.CheckpointEngineRegistry.new(
        "deltawire", **side, bucket_size=2048 << 20, store=store, local=str(local), **options
    )


class Fleet:
    """The calls of `CheckpointEngineManager.update_weights`, in order: a group of two actors, some rollout workers."""

    def __init__(self, store: str, locals_: list[Path], **options: Any) -> None:
        self.actors = [new(store, locals_[0], master=rank == 0, **options) for rank in range(2)]
        self.rollout = [new(store, local, **options) for local in locals_]

    def prepare(self) -> None:
        metadata = [engine.prepare() for engine in self.actors + self.rollout]
        kind = type(self.actors[0])
        actors, rollout = kind.build_topology(len(self.actors), len(self.rollout), metadata)
        for engines, arguments in (self.actors, actors), (self.rollout, rollout):
            for values in arguments.values():
                assert len(values) == len(engines)
            for number, engine in enumerate(engines):
                engine.init_process_group(**{name: values[number] for name, values in arguments.items()})

    async def receive(self) -> None:
        """On the first rollout worker."""
        async for _ in self.rollout[0].receive_weights():
            pass

    def update(self, state: State, step: int | None = None) -> tuple[dict[str, float], list[State]]:
        self.prepare()

        async def receive(engine: Any) -> State:
            return {name: tensor async for name, tensor in engine.receive_weights(global_steps=step)}

        async def both() -> Any:
            sent = [engine.send_weights(iter(state.items()), global_steps=step) for engine in self.actors]
            return await asyncio.gather(*(receive(engine) for engine in self.rollout), *sent)

        results = asyncio.run(both())
        for engine in self.actors + self.rollout:
            engine.finalize()
        return results[len(self.rollout)], results[: len(self.rollout)]

    def close(self) -> None:
        """Close all, like processes that end."""
        for engine in self.actors + self.rollout:
            if engine._publisher is not None:
                engine._publisher.close()
            if engine._server is not None:
                engine._server.close()


def bits(state: State) -> dict[str, tuple[Any, ...]]:
    return {name: (t.dtype, tuple(t.shape), t.reshape(-1).view(torch.uint8).tolist()) for name, t in sorted(state.items())}


def test_implements_verls_interface() -> None:
    kind = type(new("memory:verl-contract", Path("/nowhere")))
    assert issubclass(kind, base.CheckpointEngine)
    assert not inspect.isabstract(kind)
    assert kind.wire_format == "named_tensors"
    for name in "prepare", "build_topology", "finalize", "send_weights", "receive_weights":
        theirs, ours = inspect.signature(getattr(base.CheckpointEngine, name)), inspect.signature(getattr(kind, name))
        assert list(theirs.parameters) == list(ours.parameters), name
    assert inspect.iscoroutinefunction(kind.send_weights)
    assert inspect.isasyncgenfunction(kind.receive_weights)


def test_every_worker_gets_every_version(store: str, tmp_path: Path) -> None:
    fleet, state = Fleet(store, [tmp_path / "a", tmp_path / "a", tmp_path / "b"]), weights()
    for step in range(4):
        metrics, received = fleet.update(state, step)
        assert metrics["checkpoint_engine/version"] == step
        for held in received:
            assert bits(held) == bits(state)
        state["layers.1.weight"][step, 3] = float("nan")  # and -0, infinity: ordinary values
        state["layers.2.weight"][0, step] = -0.0 if step % 2 else float("inf")
    assert dw.Chain(store).head == 3
    assert not [info.name for info in dw.open_store(store).list("verl/")]


def test_yields_only_changed_tensors_on_request(store: str, tmp_path: Path) -> None:
    fleet, state = Fleet(store, [tmp_path], yields="changed"), weights()
    _, [first] = fleet.update(state)
    assert first.keys() == state.keys()
    state["layers.2.weight"][1, 1] += 1
    metrics, [second] = fleet.update(state)
    assert bits(second) == bits({"layers.2.weight": state["layers.2.weight"]})
    assert 0 < metrics["checkpoint_engine/changed_ratio"] < 0.01
    late = Fleet(store, [tmp_path / "late"], yields="changed")  # an engine that begins later gets all
    late.actors = fleet.actors
    _, [all_of_it] = late.update(state)
    assert bits(all_of_it) == bits(state)


def test_sync_without_changes_publishes_nothing(store: str, tmp_path: Path) -> None:
    fleet, state = Fleet(store, [tmp_path], yields="changed"), weights()
    fleet.update(state)
    metrics, [again] = fleet.update(state)
    assert again == {}
    assert metrics["checkpoint_engine/changed_ratio"] == 0
    assert dw.Chain(store).head == 0


def test_publishes_float32_masters_in_the_engines_dtype(store: str, tmp_path: Path) -> None:
    state = {"w": torch.randn(64, generator=torch.Generator().manual_seed(3))}
    _, [held] = Fleet(store, [tmp_path], dtype="bfloat16").update(state)
    assert bits(held) == bits({"w": state["w"].to(torch.bfloat16)})


def test_all_ranks_iterate_their_weights(store: str, tmp_path: Path) -> None:
    """Producing a weight is a collective operation: a rank that skips it blocks the others."""
    fleet, state, seen = Fleet(store, [tmp_path]), weights(), []

    def counted() -> Iterator[tuple[str, Any]]:
        for name, tensor in state.items():
            seen.append(name)
            yield name, tensor

    assert asyncio.run(fleet.actors[1].send_weights(counted())) == {}
    assert seen == list(state)


def test_failed_publish_raises_on_both_sides(store: str, tmp_path: Path) -> None:
    fleet, state = Fleet(store, [tmp_path], yields="changed", timeout=20), weights()
    fleet.update(state)

    def failing() -> Iterator[tuple[str, Any]]:
        yield "layers.0.weight", state["layers.0.weight"]
        raise RuntimeError("a GPU fell off the bus")

    fleet.prepare()

    async def both() -> Any:
        return await asyncio.gather(fleet.actors[0].send_weights(failing()), fleet.receive(), return_exceptions=True)

    sent, received = asyncio.run(both())
    assert isinstance(sent, RuntimeError)
    assert isinstance(received, dw.Unavailable)
    assert "fell off the bus" in str(received)
    state["layers.3.weight"][0, 0] += 1
    _, [held] = fleet.update(state)  # nobody knows what the engine has: all of it again
    assert bits(held) == bits(state)


def test_receive_times_out(store: str, tmp_path: Path) -> None:
    fleet = Fleet(store, [tmp_path], timeout=0.2)
    fleet.prepare()
    with pytest.raises(dw.Unavailable, match="did not publish a version for this sync within 0.2 s"):
        asyncio.run(fleet.receive())


def test_detects_an_edited_local_checkpoint(store: str, tmp_path: Path) -> None:
    fleet, state = Fleet(store, [tmp_path]), weights()
    fleet.update(state)
    file = tmp_path / "model.safetensors"
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)
    with pytest.raises(dw.BaseMismatch):
        fleet.update(state)
    _, (received,) = fleet.update(state)  # the same version: it is repaired
    assert all(torch.equal(received[name], tensor) for name, tensor in state.items())


def test_refuses_a_folder_of_an_earlier_run(store: str, tmp_path: Path) -> None:
    Fleet(store, [tmp_path / "local"]).update(weights(1))
    fleet = Fleet(str(tmp_path / "another"), [tmp_path / "local"])
    fleet.prepare()
    asyncio.run(fleet.actors[0].send_weights(iter(weights(2).items())))

    async def receive() -> None:
        async for name, _ in fleet.rollout[0].receive_weights():
            pytest.fail(f"{name} is of another run")

    with pytest.raises(dw.BaseMismatch, match="belongs to run"):
        asyncio.run(receive())


def test_workers_of_a_host_share_a_folder(tmp_path: Path) -> None:
    """Threads stand in for processes: the folder's lock is per file, and does not distinguish them."""
    fleet, state = Fleet(str(tmp_path / "store"), [tmp_path / "local"] * 6), weights()
    for step in range(3):
        state["layers.0.weight"][0, step] += 1
        _, received = fleet.update(state)
        assert all(bits(held) == bits(state) for held in received)
    assert threading.active_count() < 40


@pytest.mark.parametrize(
    ("options", "words"),
    [({"yields": "some"}, "must be one of all, changed"), ({"timeout": 0}, "more than 0"), ({"local": ""}, "needs `local`")],
)
def test_rejects_invalid_options(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    importlib.import_module("deltawire.trainers.verl")
    with pytest.raises(dw.InvalidArgument, match=words):
        base.CheckpointEngineRegistry.new("deltawire", **{"store": "memory:verl", "local": str(tmp_path), **options})


def test_manager_finds_it_by_its_config(tmp_path: Path) -> None:
    from verl.workers.config import CheckpointEngineConfig

    config = CheckpointEngineConfig(backend="deltawire", custom_backend_module="deltawire.trainers.verl")
    manager = base.CheckpointEngineManager(config=config, actor_wg=None, replicas=[])
    assert manager.backend_cls.__module__ == "deltawire.trainers.verl"


@pytest.mark.parametrize("store", ["", "of its own"])
def test_trainer_serves_and_each_host_fetches_once(store: str, tmp_path: Path) -> None:
    chain = str(tmp_path / store) if store else ""
    fleet = Fleet(chain, [tmp_path / "a", tmp_path / "a", tmp_path / "b"], serve="127.0.0.1:0", token="between us")
    state = weights()
    try:
        for step in range(4):
            metrics, received = fleet.update(state, step)
            assert metrics["checkpoint_engine/version"] == step
            for held in received:
                assert bits(held) == bits(state)
            state["layers.1.weight"][step, 3] = float("nan")
        replicas = dw.Chain(fleet.actors[0]._store).replicas
        assert [one.held and one.held.version for one in replicas] == [3, 3]  # hosts, not workers
    finally:
        fleet.close()


def test_restarted_trainer_is_another_run(tmp_path: Path) -> None:
    first = Fleet("", [tmp_path], serve="127.0.0.1:0")
    first.update(weights())
    second = Fleet("", [tmp_path], serve="127.0.0.1:0")
    second.rollout = first.rollout
    try:
        with pytest.raises(dw.BaseMismatch, match="run"):
            second.update(weights(2))
    finally:
        first.close()
        second.close()


def test_refuses_another_token(tmp_path: Path) -> None:
    fleet = Fleet("", [tmp_path], serve="127.0.0.1:0", token="ours")
    fleet.rollout = [new("", tmp_path, serve="127.0.0.1:0", token="theirs")]
    try:
        with pytest.raises(dw.Error, match="401|403|token"):
            fleet.update(weights())
    finally:
        fleet.close()


def test_needs_a_store_or_an_address(tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match="`store` or `serve`"):
        new("", tmp_path)
