"""Copies of weights that an engine keeps outside its parameters follow and are proven; nothing else is written."""

from contextlib import closing
from pathlib import Path

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")

from engine_models import Engine
from test_engine_shards import World
from test_engines import Chain, loaded_ranks, ranks, together
from torch import nn

from deltawire.engines import worker as worker_module
from deltawire.engines.map import bits
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Worker


class Backend:
    """An attention backend: keeps a parameter in float32 beside it, from the first forward pass on."""

    def __init__(self, sinks: torch.Tensor, *, lazily: bool = False) -> None:
        self.source, self.sinks = sinks, None
        if not lazily:
            self.forward()

    def forward(self) -> torch.Tensor:
        if self.sinks is None:
            self.sinks = self.source.detach().to(torch.float32)
        return self.sinks


class Sinks(nn.Module):
    """A layer whose backend is a plain object."""

    def __init__(self, tensors: dict[str, torch.Tensor], *, lazily: bool = False) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
        self.other = nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
        self.load_weights(tensors.items())
        self.impl = Backend(self.sinks, lazily=lazily)
        self.constant = torch.arange(5.0)  # nobody's copy

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data.copy_(tensor)


class Scene(Chain):
    """A chain of two tensors, and a host's copy of it."""

    def __init__(self, folder: Path, **tensors: torch.Tensor) -> None:
        super().__init__(folder, {name: torch.randn(8).to(torch.bfloat16) for name in ("sinks", "other")} | tensors)

    def step(self) -> None:
        self.publish({name: tensor + 1 for name, tensor in self.tensors.items()})

    def assert_copied(self, copy: torch.Tensor, name: str = "sinks") -> None:
        assert torch.equal(copy, self.tensors[name].float())


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


@pytest.mark.parametrize("made", ["with the model", "after attaching", "after staging"])
def test_copies_follow_their_parameters(scene, made):
    model = Sinks(scene.tensors, lazily=made != "with the model")
    worker = scene.attached(model)
    if made == "after attaching":
        model.impl.forward()
    scene.step()
    if made == "after staging":  # by the first request: a trainer may ask for an update much later
        worker.stage()
        model.impl.forward()
    worker.update()
    scene.assert_copied(model.impl.sinks)
    proven = worker.prove()
    assert (proven.wrong, proven.unproven) == ((), ("constant",))
    model.impl.sinks[3] += 1  # somebody else writes there
    assert worker.prove().wrong == ("impl.sinks",)
    worker.update()
    scene.assert_copied(model.impl.sinks)


def test_copies_are_rolled_back_with_a_failed_update(scene):
    model = Sinks(scene.tensors)
    worker, before = scene.attached(model), scene.tensors
    scene.step()
    worker.stage()
    worker._digests = worker.staged, worker._digests_of(worker.served)  # of the version before
    with pytest.raises(dw.errors.BaseMismatch):
        worker.update()
    assert torch.equal(bits(model.sinks), bits(before["sinks"]))
    assert torch.equal(model.impl.sinks, before["sinks"].float())


# ---- finding copies


def test_finds_copies_under_other_names_and_in_lists(scene):
    model = Sinks(scene.tensors)
    model.sinks_cached = model.sinks.detach().float()
    model.impls = [Backend(model.sinks)]
    worker = scene.attached(model)
    scene.step()
    worker.update()
    scene.assert_copied(model.sinks_cached)
    scene.assert_copied(model.impls[0].sinks)
    assert worker.prove().unproven == ("constant",)


def test_copies_in_shared_memory_keep_their_own_values(scene):
    model = Sinks(scene.tensors)
    both = torch.stack([model.sinks.detach(), model.other.detach()]).float()
    model.impl.sinks, model.impl.other = both
    worker = scene.attached(model)
    scene.assert_copied(model.impl.sinks)
    scene.assert_copied(model.impl.other, "other")
    scene.step()
    worker.update()
    scene.assert_copied(model.impl.sinks)
    scene.assert_copied(model.impl.other, "other")
    assert worker.prove().unproven == ("constant",)


def test_finds_copies_in_engine_layers_of_custom_models(scene, monkeypatch):
    class Layer(Sinks):
        pass

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer(scene.tensors)
            self.load_weights = self.layer.load_weights

    monkeypatch.setattr(Backend, "__module__", "vllm.backends")
    Layer.__module__, Model.__module__ = "vllm.attention", "my_models.llama"
    model = Model()
    worker = scene.attached(model)
    scene.step()
    worker.update()
    scene.assert_copied(model.layer.impl.sinks)
    assert worker.prove().unproven == ("layer.constant",)


def test_copies_follow_with_shards(tmp_path):
    class Copied(Engine):
        def load_weights(self, weights) -> None:
            super().load_weights(weights)
            if not hasattr(self, "impl"):
                self.impl = Backend(self.norm)

    with closing(World(tmp_path, Copied)) as world:
        world.served.attach()
        before = world.tensors["model.norm.weight"]
        for _ in range(2):
            world.go_on()
        assert not torch.equal(world.tensors["model.norm.weight"], before)
        for engine, said in zip(world.served.models, world.served.call("prove"), strict=True):
            assert torch.equal(engine.impl.sinks, world.tensors["model.norm.weight"].float())
            assert (said["ok"]["wrong"], said["ok"]["unproven"]) == ((), ())


def test_workspace_memory_is_not_a_copy(tmp_path):
    """Even if it equals a weight at first: both are zeros."""
    scene = Scene(tmp_path, other=torch.zeros(8, dtype=torch.bfloat16))
    model = Sinks(scene.tensors)
    model.workspace = torch.zeros(8)
    worker = scene.attached(model)
    model.workspace.fill_(7)  # by a forward pass
    assert worker.prove().wrong == ()
    scene.step()
    worker.update()
    assert torch.equal(model.workspace, torch.full((8,), 7.0))


# ---- attaching that fails


def test_finds_copies_when_attaching_is_retried(scene, monkeypatch):
    """The server started from an older checkpoint, which the first attempt has already updated to the version."""
    scene.replica.close()
    model = Sinks({name: tensor - 1 for name, tensor in scene.tensors.items()})
    begin_worker, errors = Worker._begin, [dw.errors.IoError("disk full")]

    def fail_once(self, version):
        if errors:
            raise errors.pop()
        begin_worker(self, version)

    monkeypatch.setattr(Worker, "_begin", fail_once)
    settings = Settings(store=scene.store, local=scene.local, interval=0.05)
    member = Member(settings, model, engine="test", reload=model.load_weights)
    try:
        assert "disk full" in member.call("attach")["error"]
        assert "ok" in member.call("attach")
        scene.assert_copied(model.impl.sinks)
    finally:
        member.close()


def test_failed_search_for_copies_fails_all_ranks(tmp_path, monkeypatch):
    chain = Chain(tmp_path)
    engines = loaded_ranks(chain)
    workers = ranks(chain, engines)
    copies = worker_module.Copies

    def on_one(models):
        if models[0] is engines[1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return copies(models)

    monkeypatch.setattr(worker_module, "Copies", on_one)
    first, second = together(workers, lambda worker: worker.attach())
    assert isinstance(first, dw.errors.Cancelled), first
    assert "CUDA out of memory" in str(second)
    monkeypatch.undo()
    assert [one.version for one in together(workers, lambda worker: worker.attach())] == [0, 0]
