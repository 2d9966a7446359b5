"""Regression tests of engine workers."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")

from engine_models import Engine
from test_engines import Chain, assert_same, attached, identity, loaded, loaded_ranks, packed, ranks, together
from torch import nn

from deltawire._internal.identity import ANY, Wanted
from deltawire.engines import map as map_module
from deltawire.engines import worker as worker_module
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.follower import Follower
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Worker
from deltawire.engines.workers import WorkerFile


class Threaded(Engine):
    """Like SGLang's DeepSeek, whose tensors are loaded by a thread pool."""

    def load_weights(self, weights) -> None:
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(super(Threaded, self).load_weights, [item]) for item in weights]:
                future.result()


def test_recording_a_threaded_loader_writes_nothing(tmp_path):
    chain, engine = Chain(tmp_path), Threaded()
    engine.load_weights(chain.tensors.items())
    worker = chain.attached(engine)
    assert_same(engine, loaded(chain.tensors))
    assert worker.report.tensors == len(chain.tensors)
    version = chain.step(1)
    assert worker.update().version == version
    assert_same(engine, loaded(chain.tensors))


class Scalar(nn.Module):
    """Loads parameters of one element like vLLM and SGLang."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))
        self.weight = nn.Parameter(torch.zeros(4))

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            parameter = dict(self.named_parameters())[name]
            if parameter.numel() == 1 and tensor.numel() == 1:
                parameter.data.fill_(tensor.item())
            else:
                parameter.data.copy_(tensor)


class Given(Scalar):
    """Keeps the checkpoint's memory instead of copying it."""

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data = tensor.reshape(-1).clone()

    def reload(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data.copy_(tensor.reshape(-1))


@pytest.mark.parametrize("kind", [Scalar, Given])
def test_updates_parameters_loaded_without_copies(tmp_path, kind):
    tensors = {"scale": torch.tensor(0.5), "weight": torch.arange(4.0)}
    chain, model = Chain(tmp_path, tensors), kind()
    model.load_weights(tensors.items())
    worker = chain.attached(model, reload=getattr(model, "reload", model.load_weights))
    chain.publish({"scale": torch.tensor(0.75), "weight": torch.arange(4.0) + 1})
    assert worker.update().version == 1
    assert model.scale.item() == 0.75
    assert torch.equal(model.weight.data, torch.arange(4.0) + 1)


def two_ranks(folder):
    """A chain, and the two ranks of an engine."""
    chain = Chain(folder)
    engines = loaded_ranks(chain)
    return chain, engines, ranks(chain, engines)


def test_ranks_attach_to_one_version(tmp_path):
    chain, engines, workers = two_ranks(tmp_path)
    for worker, engine in zip(workers, engines, strict=True):
        worker._reload = engine.load_weights
    attach, first = workers[1]._attach, threading.Event()

    def later():
        if not first.is_set():
            first.set()
            workers[0]._done.wait(10)
            chain.step(1)
        return attach()

    attach_first = workers[0]._attach

    def early():
        result = attach_first()
        workers[0]._done.set()
        return result

    workers[0]._done = threading.Event()
    workers[0]._attach, workers[1]._attach = early, later
    assert together(workers, lambda w: w.attach().version) == [1, 1]
    for rank, engine in enumerate(engines):
        assert_same(engine, loaded(chain.tensors, rank=rank, world=2))


def test_failed_proof_on_one_rank_fails_on_all(tmp_path):
    chain, engines, workers = two_ranks(tmp_path)
    before = loaded_ranks(chain)
    together(workers, lambda w: w.attach().version)
    chain.step(1)
    of = workers[1]._pieces.of
    workers[1]._pieces.of = lambda name: (_ for _ in ()).throw(RuntimeError("CUDA out of memory"))
    results = together(workers, lambda w: w.update().version)
    assert isinstance(results[0], dw.errors.Cancelled), results
    assert "out of memory" in str(results[0])
    assert "out of memory" in str(results[1])
    for engine, expected in zip(engines, before, strict=True):
        assert_same(engine, expected)
    results = together(workers, lambda w: w.prove())
    assert isinstance(results[0], dw.errors.Cancelled), results
    workers[1]._pieces.of = of
    assert together(workers, lambda w: w.update().version) == [1, 1]


def test_failed_attach_on_one_rank_fails_on_all(tmp_path, monkeypatch):
    chain, _, workers = two_ranks(tmp_path)
    held = WorkerFile(chain.local, "w1")  # somebody else's
    results = together(workers, lambda w: w.attach().version)
    assert [type(result) for result in results] == [dw.errors.Cancelled, dw.errors.Conflict], results
    assert [worker.version for worker in workers] == [None, None]
    held.close()
    assert together(workers, lambda w: w.attach().version) == [0, 0]


def test_failed_reload_on_one_rank_mixes_no_versions(tmp_path):
    chain = Chain(tmp_path)
    engines = [packed(chain.tensors), loaded(chain.tensors)]
    workers = ranks(chain, engines)
    workers[0]._reload, workers[1]._reload = engines[0].reload, engines[1].load_weights
    assert together(workers, lambda w: w.attach().version) == [0, 0]
    before = chain.tensors
    chain.step(1)
    write = workers[1]._write

    def fails(staged, pause):
        write(staged, pause)
        raise RuntimeError("broken")

    workers[1]._write = fails
    results = together(workers, lambda w: w.update().version)
    assert all("broken" in str(result) for result in results), results
    assert_same(engines[0], packed(before))
    assert_same(engines[1], loaded(before))
    assert [worker.version for worker in workers] == [0, 0]
    workers[1]._write = write
    assert together(workers, lambda w: w.update().version) == [1, 1]
    assert_same(engines[0], packed(chain.tensors))
    assert_same(engines[1], loaded(chain.tensors))


def test_reload_uses_the_version_being_written(tmp_path, monkeypatch):
    chain, engine, worker = attached(tmp_path, packed)
    chain.step(1)
    first = chain.tensors
    worker.stage()
    chain.step(2)  # the local checkpoint goes on before the pause
    assert worker.update(1).version == 1
    assert_same(engine, packed(first))
    assert worker.update().version == 2
    assert_same(engine, packed(chain.tensors))
    # While it is read for the reload.
    chain.step(3)
    read = LocalCheckpoint.items

    def slow(checkpoint, names):
        yield from read(checkpoint, names)
        if chain.replica.version == 3:
            chain.step(4)

    monkeypatch.setattr(LocalCheckpoint, "items", slow)
    with pytest.raises(dw.errors.Unavailable, match="was expected"):
        worker.update(3)
    assert worker.version == 2
    assert worker.update().version == 4
    assert_same(engine, packed(chain.tensors))


def test_loader_of_all_tensors_mixes_no_versions(tmp_path):
    """Quantised SGLang reads what it loads during the pause, while the host's replica may advance."""
    chain = Chain(tmp_path)
    engine, given, between = packed(chain.tensors), [], []

    def watched(weights):
        for name, tensor in weights:
            yield name, tensor
            given.append(name)
            if len(given) == 3 and between:
                between.pop()()

    worker = Worker(engine, chain.local, name="w", reload=lambda weights: engine.reload(watched(weights)))
    worker.reloads_all = True
    worker.attach()
    before = chain.tensors
    chain.step(1)
    worker.stage()
    assert worker._staged.reload == [], "no copy of the model in host memory"
    between.append(lambda: chain.step(2))
    given.clear()
    with pytest.raises(dw.errors.Unavailable, match="was expected"):
        worker.update()
    assert set(given) == set(before)
    assert_same(engine, packed(before))
    assert worker.version == 0
    # The replica advanced before the pause: nothing is started.
    given.clear()
    with pytest.raises(dw.errors.Unavailable, match="was expected"):
        worker._update(Wanted.of(identity(chain, 1)), "all", 0.0) if worker.stage(identity(chain, 1)) else None
    assert given == []
    assert worker.update().version == 2
    assert_same(engine, packed(chain.tensors))


def member_of(chain, engine, **options):
    chain.replica.close()
    settings = Settings(store=chain.store, local=chain.local, interval=0.05, timeout=30)
    return closing(Member(settings, engine, engine="test", **options))


def test_member_can_request_reloads_of_all_tensors(tmp_path):
    chain = Chain(tmp_path)
    engine, given = packed(chain.tensors), []

    def reload(weights):
        weights = list(weights)
        given.append({name for name, _ in weights})
        engine.reload(weights)

    with member_of(chain, engine, reload=reload, reloads_all=True) as member:
        assert member.call("attach") == {"ok": identity(chain, 0)}
        chain.step(1, pull=False)
        assert member.call("update", wanted=[1]) == {"ok": identity(chain, 1)}
        assert_same(engine, packed(chain.tensors))
        assert all(names == set(chain.tensors) for names in given)


def test_does_not_write_what_is_staged_for_another_version(tmp_path):
    chain, engines, workers = two_ranks(tmp_path)
    together(workers, lambda w: w.attach().version)
    chain.step(1)
    one = chain.tensors
    workers[1]._group, group = worker_module.Alone(), workers[1]._group
    workers[1].update(1, "off")
    workers[1]._group = group
    workers[0].stage()
    chain.step(2)
    workers[1].stage()
    assert together(workers, lambda w: w.update(1, "off").version) == [1, 1]
    for rank, engine in enumerate(engines):
        assert_same(engine, loaded(one, rank=rank, world=2))


def test_worker_of_unknown_version_does_not_update(tmp_path):
    chain, _, worker = attached(tmp_path)
    chain.step(1)
    worker.served = None
    with pytest.raises(dw.errors.Unavailable, match="attach"):
        worker.update(verify="off")


def test_member_serves_on_after_a_failed_reload(tmp_path):
    chain = Chain(tmp_path)
    engine, before = packed(chain.tensors), packed(chain.tensors)
    calls = []

    def reload(weights):
        calls.append(len(calls))
        engine.reload(weights)
        if len(calls) == 2:  # in the update
            raise RuntimeError("no room")

    with member_of(chain, engine, reload=reload) as member:
        assert member.call("attach") == {"ok": identity(chain, 0)}
        chain.step(1, pull=False)
        assert "no room" in member.call("update", wanted=[1])["error"]
        assert member.served == identity(chain, 0)
        assert_same(engine, before)
        assert member.call("update", wanted=[1]) == {"ok": identity(chain, 1)}
        assert_same(engine, packed(chain.tensors))


def test_refuses_a_version_of_other_dtypes(tmp_path):
    tensors = {"weight": torch.arange(64, dtype=torch.float16), "scale": torch.ones(1)}
    chain, model = Chain(tmp_path, tensors), Scalar()
    model.weight = nn.Parameter(torch.zeros(64, dtype=torch.float16))
    model.load_weights(tensors.items())
    worker = chain.attached(model)
    chain.publish({"weight": torch.arange(64, dtype=torch.bfloat16) + 1, "scale": torch.ones(1)})
    with pytest.raises(dw.errors.BaseMismatch):
        worker.update()
    assert torch.equal(model.weight.data, tensors["weight"])


def test_reloads_arrays_that_are_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(map_module, "_MAX_ELEMENTS", 8)  # a reload copies what it may have to put back: 2**32 elements are 16 GiB
    tensors = {"weight": torch.arange(4.0), "scale": torch.ones(1)}
    chain, model = Chain(tmp_path, tensors), Scalar()
    model.weight = nn.Parameter(torch.empty(9)[-4:])
    model.load_weights(tensors.items())
    reloads = []

    def reload(weights):
        reloads.append(dict(weights))
        model.load_weights(reloads[-1].items())

    worker = chain.attached(model, reload=reload)
    chain.publish({"weight": torch.arange(4.0) + 1, "scale": torch.ones(1)})
    assert worker.update().version == 1
    assert "weight" in reloads[-1]
    assert torch.equal(model.weight.data, torch.arange(4.0) + 1)


class Lost:
    """An engine that lost its weights."""

    num_engines = 1

    def __init__(self, chain) -> None:
        self.chain, self.served, self.calls = chain, identity(chain, 0), []

    async def call(self, call, **options):
        self.calls.append(call)
        if call == "status":
            served = None if self.served is None else self.served._asdict()
            return [{"ok": {"served": served, "staged": identity(self.chain, 1)._asdict()}}]
        if call == "update":
            self.served = None
            return [{"error": "no room"}]
        self.served = identity(self.chain, 1)
        return [{"ok": list(self.served)}]

    async def pause(self, keep_cache):
        self.calls.append("pause")

    async def resume(self):
        self.calls.append("resume")

    async def set_version(self, version):
        self.calls.append(f"version {version}")


def test_engine_without_weights_is_not_ready_and_reattaches(tmp_path):
    chain = Chain(tmp_path)
    chain.step(1)
    follower = Follower(Settings(store=chain.store, local=chain.local, interval=0.01), Lost(chain))
    follower.seen.served = identity(chain, 0)
    with pytest.raises(RuntimeError, match="no room"):
        asyncio.run(follower.update())
    assert follower.seen.why_not_ready(ANY)
    asyncio.run(follower._attach())
    assert follower.seen.why_not_ready(Wanted.of(identity(chain, 1))) is None


class Latent(nn.Module):
    """Like SGLang's DeepSeek: attention uses copies of `kv_b_proj` that are made during loading."""

    def __init__(self) -> None:
        super().__init__()
        self.kv_b_proj = nn.Linear(4, 6, bias=False)
        self.o_proj = nn.Linear(4, 4, bias=False)
        self.w_kc = None

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data.copy_(tensor)
        made = self.kv_b_proj.weight.data[:3].t().contiguous()
        self.w_kc = made if self.w_kc is None else self.w_kc.copy_(made)


def test_values_computed_from_weights_follow(tmp_path):
    tensors = {"kv_b_proj.weight": torch.arange(24.0).reshape(6, 4), "o_proj.weight": torch.ones(4, 4)}
    chain, model = Chain(tmp_path, tensors), Latent()
    model.load_weights(tensors.items())
    worker = chain.attached(model, reload=model.load_weights)
    assert worker.report.reloaded == ["kv_b_proj.weight"]
    newer = {name: tensor + 1 for name, tensor in tensors.items()}
    chain.publish(newer)
    assert worker.update().version == 1
    assert torch.equal(model.w_kc, newer["kv_b_proj.weight"][:3].t())
    assert torch.equal(model.o_proj.weight.data, newer["o_proj.weight"])


class Half(Scalar):
    """Holds only some rows of a tensor, or some of them twice."""

    def __init__(self, *rows: slice) -> None:
        super().__init__()
        self.rows = rows
        self.parts = nn.ParameterList(torch.zeros(len(range(*part.indices(6))), 4) for part in rows)

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            if name == "rows":
                for part, parameter in zip(self.rows, self.parts, strict=True):
                    parameter.data.copy_(tensor[part])
            else:
                super().load_weights([(name, tensor)])


@pytest.mark.parametrize("rows", [(slice(0, 4),), (slice(0, 4), slice(2, 6))], ids=str)
def test_partly_or_doubly_held_tensors_are_not_proven(tmp_path, rows):
    tensors = {"scale": torch.tensor(0.5), "weight": torch.arange(4.0), "rows": torch.arange(24.0).reshape(6, 4)}
    chain, model = Chain(tmp_path, tensors), Half(*rows)
    model.load_weights(tensors.items())
    worker = chain.attached(model)
    newer = {name: tensor + 1 for name, tensor in tensors.items()}
    chain.publish(newer)
    assert worker.update().version == 1
    for part, parameter in zip(rows, model.parts, strict=True):
        assert torch.equal(parameter.data, newer["rows"][part])
    proven = worker.prove()
    assert (proven.num_tensors, proven.unproven) == (2, ("rows",))
