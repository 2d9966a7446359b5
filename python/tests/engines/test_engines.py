"""A worker without an engine: a model that stores its weights like an engine."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")

from engine_models import Engine, changed, checkpoint

from deltawire import _core
from deltawire._internal.identity import ANY, Wanted
from deltawire._internal.stores import store_handle
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.host import Host, local_identity, look_now
from deltawire.engines.loads import record_loads
from deltawire.engines.map import EngineMap, bits, boxes_of
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Worker
from deltawire.engines.workers import WorkerFile, oldest_served, read_workers


def identity(chain: Chain, number: int) -> dw.Identity:
    """The identity of a version of a trainer's chain."""
    return dw.Chain(chain.store)[number].identity


class Chain:
    """A trainer's chain, a host's copy of it, and the newest version."""

    def __init__(self, folder: Path, tensors: dict[str, torch.Tensor] | None = None, **form) -> None:
        self.store, self.local = str(folder / "store"), str(folder / "local")
        self._publisher = dw.Publisher(self.store, options=dw.PublishOptions(schema_change=True))
        self.replica = dw.Replica(self.store, self.local)
        self._spool: _core.Spool | None = None
        self.publish(checkpoint(**form) if tensors is None else tensors)

    def publish(self, tensors: dict[str, torch.Tensor], pull: bool = True) -> int:
        self.tensors = tensors
        number = self._publisher.publish(self.tensors).number
        if pull:
            self.fetch()
            self.replica.pull()
        return number

    def fetch(self) -> None:
        """Fetch new versions for the host's workers."""
        self._spool = self._spool or _core.Spool(store_handle(self.store), Path(self.local), accept=dw.Accept())
        held = local_identity(self.local)
        self._spool.fetch_new(held and held.version, oldest_served(self.local))

    def step(self, seed: int, share: float = 0.02, pull: bool = True) -> int:
        return self.publish(changed(self.tensors, seed, share), pull)

    def attached(self, model: torch.nn.Module, **options) -> Worker:
        """A worker of a model, attached to the host's version."""
        worker = Worker(model, self.local, name="w", **options)
        worker.attach()
        return worker


@pytest.fixture
def chain(tmp_path):
    return Chain(tmp_path)


def loaded(tensors, **form) -> Engine:
    engine = Engine(**form)
    engine.load_weights(tensors.items())
    return engine


def attached_to(chain: Chain, load=loaded):
    """An engine with the chain's weights, and its worker."""
    engine = load(chain.tensors)
    return engine, chain.attached(engine, reload=getattr(engine, "reload", None))


def attached(folder: Path, load=loaded):
    """With a new chain."""
    chain = Chain(folder)
    return chain, *attached_to(chain, load)


def assert_same(engine: Engine, expected: Engine) -> None:
    for (name, own), other in zip(engine.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(bits(own), bits(other)), name


class Rank:
    """A rank among threads, with an all-gather."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, words: list) -> None:
        self.rank, self.size, self._barrier, self._words = rank, size, barrier, words

    def all_gather(self, data):
        self._words[self.rank] = data
        self._barrier.wait(60)
        gathered = list(self._words)
        self._barrier.wait(60)
        return gathered


def together(workers, call):
    """Run `call(worker)` in a thread for each worker; return results or exceptions."""
    results: list = [None] * len(workers)

    def one(number, worker):
        try:
            results[number] = call(worker)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=one, args=item) for item in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return results


def ranks(chain: Chain, engines):
    """Workers of the ranks of an engine."""
    world = len(engines)
    barrier, words = threading.Barrier(world), [None] * world
    return [Worker(engine, chain.local, name=f"w{n}", group=Rank(n, world, barrier, words)) for n, engine in enumerate(engines)]


def loaded_ranks(chain: Chain, world: int = 2):
    return [loaded(chain.tensors, rank=rank, world=world) for rank in range(world)]


@pytest.mark.parametrize("form", [{}, {"tied": True}, {"transposed": True}, {"dtype": torch.float32}], ids=str)
def test_worker_follows_versions(tmp_path, form):
    chain = Chain(tmp_path, **{key: value for key, value in form.items() if key != "transposed"})
    engine = loaded(chain.tensors, **form)
    worker = Worker(engine, chain.local, name="w")
    assert worker.attach().version == 0
    assert worker.report.reloaded == []
    for seed in range(1, 4):
        version = chain.step(seed)
        assert worker.stage()
        assert not worker.stage(), "twice"
        assert worker.update().version == version
        assert_same(engine, loaded(chain.tensors, **form))
        assert worker.report.last_pause["staged_before"]
        proven = worker.prove()
        assert proven.wrong == ()
        assert proven.num_tensors == len(chain.tensors)


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_update_together(tmp_path, world):
    chain = Chain(tmp_path)
    engines = loaded_ranks(chain, world)
    workers = ranks(chain, engines)
    assert together(workers, lambda w: w.attach().version) == [0] * world
    version = chain.step(1)
    assert together(workers, lambda w: w.update().version) == [version] * world
    before = loaded_ranks(chain, world)
    for engine, expected in zip(engines, before, strict=True):
        assert_same(engine, expected)
    proofs = together(workers, lambda w: w.prove())
    assert all(proof.wrong == () and proof.num_tensors == len(chain.tensors) for proof in proofs), proofs
    # If one of them fails, all stay at their version.
    chain.step(2)
    workers[1]._stage = lambda goal: (_ for _ in ()).throw(dw.errors.OutOfMemory("no room"))
    results = together(workers, lambda w: w.update().version)
    assert isinstance(results[1], dw.errors.OutOfMemory)
    assert all(isinstance(result, dw.errors.Cancelled) and "no room" in str(result) for result in [results[0], *results[2:]])
    for engine, expected in zip(engines, before, strict=True):
        assert_same(engine, expected)
    assert {worker.version for worker in workers} == {version}


def test_rolls_back_on_a_wrong_weight(chain):
    engine, worker = attached_to(chain)
    with torch.no_grad():
        bits(engine.layers[1].qkv)[3, 3] ^= 4  # a cosmic ray
    damaged = {name: bits(value).clone() for name, value in engine.named_parameters()}
    chain.step(1)
    with pytest.raises(dw.errors.BaseMismatch, match=r"q_proj"):
        worker.update()
    assert worker.version == 0
    assert "q_proj" in worker.report.error
    assert "q_proj" in worker.report.suspect
    for name, value in engine.named_parameters():
        assert torch.equal(bits(value), damaged[name]), name


@pytest.mark.parametrize("verify", ["all", "sample", "behind", "off"])
def test_failed_proof_compares_and_proves_all_weights(chain, verify):
    engine, worker = attached_to(chain)
    chain.step(1)
    worker.stage()
    with torch.no_grad():
        bits(engine.layers[1].qkv)[3, 3] ^= 4
    assert worker.prove().wrong == ("model.layers.1.self_attn.q_proj.weight",)
    worker.prove("sample")  # which may not look there: it makes nothing right
    assert "q_proj" in worker.report.suspect
    assert worker.update(verify=verify).version == 1
    assert worker.report.suspect is None
    assert worker.report.proof["mode"] == "all"
    assert_same(engine, loaded(chain.tensors))
    # Also without a newer version.
    with torch.no_grad():
        bits(engine.norm)[3] ^= 4
    worker.prove()
    assert worker.update(verify=verify).version == 1
    assert_same(engine, loaded(chain.tensors))


def test_merges_missed_versions(chain):
    engine, worker = attached_to(chain)
    for seed in range(1, 9):  # more than are kept for those that have not joined
        version = chain.step(seed, 0.3)
    assert worker.update().version == version
    assert worker._pause.changed > 0
    assert_same(engine, loaded(chain.tensors))


def test_worker_without_a_delta_path_compares(chain):
    engine, worker = attached_to(chain)
    worker.close()  # nothing is kept for it
    for seed in range(1, 12):
        version = chain.step(seed)
    with pytest.raises(dw.errors.NotFound):
        _core.spooled_deltas(chain.local, identity(chain, 0), identity(chain, version))
    worker.stage()
    assert not worker._staged.from_deltas
    assert worker.update().version == version
    assert_same(engine, loaded(chain.tensors))


def test_updates_before_the_checkpoint_follows(chain):
    engine, worker = attached_to(chain)
    for seed in range(1, 4):
        version = chain.step(seed, pull=False)
        chain.fetch()
    assert local_identity(chain.local) == identity(chain, 0)
    assert worker.update().version == version
    assert worker._proven.mode == "all"
    assert not worker._proven.wrong
    assert_same(engine, loaded(chain.tensors))
    chain.replica.pull()  # it comes to what is served, and the worker stays there
    assert not worker.stage()
    assert worker.update().version == version


def test_attaching_reloads_weights_of_another_version(chain):
    engine = loaded(checkpoint(seed=7))
    worker = Worker(engine, chain.local, name="w")
    with pytest.raises(dw.errors.BaseMismatch, match="cannot reload"):
        worker.attach()
    worker = Worker(engine, chain.local, name="w", reload=engine.load_weights)
    assert worker.attach().version == 0
    assert worker.report.reloaded == []
    assert_same(engine, loaded(chain.tensors))


class Repacked(Engine):
    """Keeps experts in another order than it loads them."""

    def pack(self) -> None:
        for layer in self.layers:
            layer.w2.data = layer.w2.data.flip(0).contiguous()

    def reload(self, weights) -> None:
        """Reload complete modules only, and process them as at the start, like engines."""
        weights = dict(weights)
        for number, layer in enumerate(self.layers):
            of_layer = [name for name in weights if f".layers.{number}." in name]
            if not of_layer:
                continue
            assert len(of_layer) == 5 + 9, "some of a module would make zeros of the rest"
            for name in of_layer:
                layer.load(name.split(".", 3)[3], weights[name])
            layer.w2.data.copy_(layer.w2.data.flip(0).clone())
        for name in weights:
            if ".layers." not in name:
                self.load_weights([(name, weights[name])])


def packed(tensors) -> Repacked:
    engine = Repacked()
    engine.load_weights(tensors.items())
    engine.pack()
    return engine


def test_repacked_weights_use_the_engines_loader(chain):
    engine, worker = attached_to(chain, packed)
    reloaded = worker.report.reloaded
    assert reloaded
    assert all(".layers." in name for name in reloaded)
    version = chain.step(1)
    assert worker.update().version == version
    expected = packed(chain.tensors)
    assert_same(engine, expected)
    proven = worker.prove()
    assert proven.wrong == ()
    assert set(proven.unproven) == set(reloaded)


def test_recording_writes_nothing(chain):
    engine = loaded(chain.tensors)
    before = {name: bits(value).clone() for name, value in engine.named_parameters()}
    forms = LocalCheckpoint(Path(chain.local)).forms
    loads = record_loads(engine, forms)
    for name, value in engine.named_parameters():
        assert torch.equal(bits(value), before[name]), name
    the_map = EngineMap(loads, forms)
    assert the_map.reloaded == set()
    assert the_map.unseen == []
    covered = [torch.zeros(array.numel(), dtype=torch.int32) for array in the_map.arrays]
    for windows in the_map.windows.values():
        for window in windows:
            window.of_array(covered[window.array]).add_(1)
    assert all(int(array.max()) == 1 for array in covered), "nothing is written twice"


@pytest.mark.parametrize("shared", [True, False])
def test_draft_model_of_the_same_checkpoint_follows(chain, shared):
    """It loads some tensors of the checkpoint again, into its own memory or the model's."""

    class Draft(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            own = torch.nn.Parameter(engine.norm.detach().clone())
            self.norm = engine.norm if shared else own

        def load_weights(self, weights) -> None:
            for name, tensor in weights:
                if name == "model.norm.weight":
                    self.norm.data.copy_(tensor)

    engine = loaded(chain.tensors)
    draft = Draft()
    worker = Worker(engine, chain.local, name="w", drafts=[draft])
    worker.attach()
    version = chain.step(1, share=0.5)
    assert worker.update().version == version
    assert_same(engine, loaded(chain.tensors))
    assert torch.equal(bits(draft.norm), bits(chain.tensors["model.norm.weight"]))
    assert worker.prove().num_tensors == len(chain.tensors)
    if not shared:
        draft.norm.data.fill_(3)
        assert worker.prove().wrong == ("model.norm.weight",)


class Viewed(Engine):
    """Writes its norm through a view of another dtype, and converts another tensor."""

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            if name == "model.norm.weight":
                self.norm.data.view(torch.uint8).copy_(tensor.view(torch.uint8))
            elif name.endswith("input_layernorm.weight"):
                self.layers[int(name.split(".")[2])].norm.data.copy_(tensor.float() + 1)
            else:
                super().load_weights([(name, tensor)])


def test_recording_converting_loaders_writes_nothing(chain):
    engine = Viewed()
    engine.load_weights(chain.tensors.items())
    before = {name: bits(value).clone() for name, value in engine.named_parameters()}
    loads = record_loads(engine, LocalCheckpoint(Path(chain.local)).forms)
    for name, value in engine.named_parameters():
        assert torch.equal(bits(value), before[name]), name
    reloaded = {name for param in loads.reloaded_params for name in loads.names[param]}
    assert reloaded == {"norm", "layers.0.norm", "layers.1.norm"}


@pytest.mark.parametrize(
    "form", [{"rank": 1, "world": 2}, {"transposed": True}, {"rank": 3, "world": 4, "transposed": True}], ids=str
)
def test_windows_are_boxes(chain, form):
    engine = loaded(chain.tensors, **form)
    forms = LocalCheckpoint(Path(chain.local)).forms
    the_map = EngineMap(record_loads(engine, forms), forms)
    for name, windows in the_map.windows.items():
        for window in windows:
            (box,) = boxes_of(window, forms[name].shape)
            part = chain.tensors[name]
            for dimension, (first, extent) in enumerate(zip(box.offset, box.extent, strict=True)):
                part = part.narrow(dimension, first, extent)
            assert torch.equal(bits(box.of_array(the_map.arrays[box.array]).contiguous()), bits(part.contiguous())), name


def test_rank_decodes_small_tensors_by_itself(tmp_path):
    """Small tensors are one block: after the first version that it cannot decode, a rank also keeps the rest of them."""
    chain = Chain(tmp_path)
    engines = loaded_ranks(chain)
    workers = ranks(chain, engines)
    together(workers, lambda w: w.attach())
    chain.step(1)
    assert together(workers, lambda w: w.update().version) == [1, 1]
    assert all(worker._margins for worker in workers)
    for seed in range(2, 5):
        version = chain.step(seed, pull=False)  # the checkpoint stays where it is
        chain.fetch()
        assert together(workers, lambda w: w.update().version) == [version, version]
        for rank, engine in enumerate(engines):
            assert_same(engine, loaded(chain.tensors, rank=rank, world=2))
    chain.step(5, pull=False)
    chain.fetch()
    together(workers, lambda w: w.update(keep=True))
    assert together(workers, lambda w: w.revert().version) == [version, version]
    assert together(workers, lambda w: w.update().version) == [version + 1, version + 1], "margins were taken back too"


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_detects_and_bypasses_a_damaged_delta(chain, damage):
    engine, worker = attached_to(chain)
    version = chain.step(1)
    (part,) = Path(chain.local, ".deltawire/spool/parts").glob("0000000001-*/*")
    contents = bytearray(part.read_bytes())
    part.unlink()  # it may be a link to the store's own
    if damage != "gone":
        contents[-1] ^= 1
        part.write_bytes(contents[: None if damage == "flipped" else -7])
    assert worker._from_deltas(identity(chain, version)) is None
    assert worker.update().version == version, "by a look at the checkpoint"
    assert_same(engine, loaded(chain.tensors))


def wait_until(said, seconds=30):
    end = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_host_pulls_and_others_wait(tmp_path):
    chain = Chain(tmp_path)
    chain.replica.close()
    settings = Settings(store=chain.store, local=chain.local, interval=0.2)
    first, second = Host(settings), Host(settings)  # one of them has the folder
    try:
        version = chain.step(1, pull=False)
        held = identity(chain, version)
        assert first.wait_for(Wanted(version), 30) == second.wait_for(ANY, 30) == held
        worker = WorkerFile(chain.local, "engine", served=held, reads_local=True, pause=0.0125)
        look_now(chain.local)
        wait_until(lambda: dw.read_replica_state(chain.local).serving == held)
        beats = Path(chain.store) / "replicas"
        wait_until(lambda: [json.loads(beat.read_text()).get("pause_microseconds") for beat in beats.iterdir()] == [12500])
        with pytest.raises(dw.errors.Conflict, match="'engine' already exists"):
            WorkerFile(chain.local, "engine")
        worker.close()
        assert read_workers(chain.local) == {}
        with pytest.raises(dw.errors.Unavailable, match=r"version 99 did not arrive within 0\.2 s; it holds version 1"):
            second.wait_for(Wanted(99), 0.2)
    finally:
        first.close()
        second.close()
    assert local_identity(chain.local) == held
    assert local_identity(str(tmp_path / "nothing")) is None


def test_rejects_invalid_settings(monkeypatch):
    with pytest.raises(dw.errors.InvalidArgument, match="verify='some'"):
        Settings(store="a", local="b", verify="some")
    with pytest.raises(dw.errors.InvalidArgument, match="unknown setting stroe"):
        Settings.of({"stroe": "a", "local": "b"})
    with pytest.raises(dw.errors.InvalidArgument, match="store"):
        Settings.of({"local": "b"})
    assert Settings.from_environment() is None
    monkeypatch.setenv("DELTAWIRE_STORE", "s3://bucket")
    monkeypatch.setenv("DELTAWIRE_LOCAL", "/model")
    monkeypatch.setenv("DELTAWIRE_KEEP_CACHE", "no")
    monkeypatch.setenv("DELTAWIRE_INTERVAL", "0.5")
    found = Settings.from_environment()
    assert (found.store, found.local, found.keep_cache, found.interval) == ("s3://bucket", "/model", False, 0.5)
