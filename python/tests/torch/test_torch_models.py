"""Torch modules, state dicts and pairs: which tensors are published, under which names and dtypes."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np
from torch import nn
from torch_states import bits, published, state_bits

import deltawire as dw


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("temporary", torch.zeros(3), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(tokens)))


def small() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def test_module_equals_its_state_dict(store: str) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dw.Publisher(store, model) as publisher:
        for step in range(3):
            assert publisher.publish().number == step
            wanted = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
            assert state_bits(published(store)) == state_bits(wanted)
            optimizer.zero_grad()
            model(torch.tensor([0, 1, 1, 5])).sum().backward()
            optimizer.step()


def test_accepts_state_dicts_and_pairs(store: str) -> None:
    model = Tied()
    state = model.state_dict()
    dw.Publisher(f"{store}-a", state).publish()
    dw.Publisher(f"{store}-b", lambda: model).publish()
    dw.Publisher(f"{store}-c", list(state.items())).publish()  # pairs are taken at their word
    assert published(f"{store}-a").keys() == published(f"{store}-b").keys() == state.keys() - {"head.weight"}
    assert published(f"{store}-c").keys() == state.keys()


def test_tied_weights_keep_the_hugging_face_name(store: str) -> None:
    model = Tied()
    model._tied_weights_keys = ["embed.weight"]
    dw.Publisher(store, model).publish()
    assert "head.weight" in published(store)
    assert "embed.weight" not in published(store)


def test_unwraps_names_of_wrapped_models(store: str) -> None:
    class Compiled(nn.Module):  # as torch.compile's, which takes seconds to import
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._orig_mod = inner

    model = small()
    model[0] = Compiled(model[0])
    dw.Publisher(store, Compiled(model)).publish()
    assert published(store).keys() == small().state_dict().keys()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_masters_round_like_torch(store: str, source: torch.dtype, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    whole = torch.randint(0, 256, (4000 * source.itemsize,), dtype=torch.uint8).view(source)  # any bits
    ties = torch.arange(0x3F000000, 0x3F000000 + (1 << 20), 1 << 10, dtype=torch.int32).view(torch.float32).to(source)
    inf, nan = float("inf"), float("nan")
    edges = torch.tensor([0.0, -0.0, inf, -inf, nan, 65504, 65519.9, 65520, 1e-7, 6e-8, 3e-8]).to(source)
    bounds = torch.tensor([0x7F800001, 0x7FFFFFFF, 1, 0x7F7FFFFF], dtype=torch.int32).view(torch.float32).to(source)
    masters, steps = torch.cat([whole, ties, edges, bounds, -bounds]), torch.tensor([3])
    with dw.Publisher(store, {"w": masters, "steps": steps}, dtype=dtype) as publisher:
        publisher.publish()
        masters[::7] = masters[::7].flip(0)
        publisher.publish()
    got, wanted = published(store)["w"], masters.to(dtype)
    assert torch.equal(published(store)["steps"], steps)
    assert got.dtype == dtype
    is_nan = wanted.isnan()
    assert torch.equal(got.isnan(), is_nan)  # of NaNs torch's own bits depend on the machine
    assert bits(got[~is_nan]) == bits(wanted[~is_nan])


def test_names_meta_tensors(store: str) -> None:
    with torch.device("meta"):
        model = small()
    with pytest.raises(dw.Unsupported, match='"0.weight", "0.bias", "2.weight" and 1 more') as raised:
        dw.Publisher(store, model).publish()
    assert raised.value.tensor == "0.weight"


def test_publishes_added_and_removed_parameters(store: str) -> None:
    model = small()
    with dw.Publisher(store, model, anchors=dw.Anchors(every=1), options=dw.PublishOptions(schema_change=True)) as publisher:
        publisher.publish()
        model.add_module("head", nn.Linear(3, 2))
        publisher.publish()
        del model[2]
        publisher.publish()
    assert state_bits(published(store, 1)).keys() == small().state_dict().keys() | {"head.weight", "head.bias"}
    assert state_bits(published(store)) == state_bits(model.state_dict())


def test_step_below_the_rounding_is_no_change(store: str) -> None:
    state = {"w": torch.ones(10)}
    with dw.Publisher(store, state, dtype="bfloat16") as publisher:
        publisher.publish()
        state["w"] += 1e-5
        assert not publisher.publish().committed


def test_rejects_unsupported_publish_dtypes() -> None:
    with pytest.raises(dw.InvalidArgument, match="not as int8"):
        dw.Publisher("memory:", {"w": torch.ones(1)}, dtype=torch.int8)


def test_selects_and_renames(store: str) -> None:
    model = small()
    dw.Publisher(f"{store}-a", model, select=dw.Select(include="0.*", rename=lambda name: f"model.{name}")).publish()
    assert published(f"{store}-a").keys() == {"model.0.weight", "model.0.bias"}
    dw.Publisher(f"{store}-b", model, select=dw.Select(exclude=["*.bias", "0.*"])).publish()
    assert published(f"{store}-b").keys() == {"2.weight"}
    dw.Publisher(
        f"{store}-c", {"a": np.ones(2), "b": np.ones(2)}, select=dw.Select(include=lambda name: name < "b"), dtype=np.float32
    ).publish()
    assert published(f"{store}-c")["a"].dtype == torch.float32
    with pytest.raises(dw.InvalidArgument, match='tensor "x": both "0.weight" and "0.bias" are renamed to it'):
        dw.Publisher(store, model, select=dw.Select(rename=lambda name: "x")).publish()
    with pytest.raises(dw.InvalidArgument, match="excludes all"):
        dw.Publisher(store, model, select=dw.Select(include="nothing")).publish()


def test_publishes_trainable_weights_only(store: str) -> None:
    model = small()
    model[0].requires_grad_(False)
    dw.Publisher(store, model, select=dw.Select(trainable_only=True)).publish()
    assert published(store).keys() == {"2.weight", "2.bias"}
    with pytest.raises(dw.InvalidArgument, match="trainable_only: needs a module"):
        dw.Publisher(store, model.state_dict(), select=dw.Select(trainable_only=True)).publish()


def test_rejects_values_that_are_not_tensors(store: str) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"steps": 3}

    with pytest.raises(dw.InvalidArgument, match='"_extra_state" is a dict, not a tensor; exclude it with dw.Select'):
        dw.Publisher(store, Extra(2, 2)).publish()
    dw.Publisher(store, Extra(2, 2), select=dw.Select(exclude="*_extra_state")).publish()


def test_patches_a_live_model(store: str) -> None:
    trainer, server = Tied(), Tied().requires_grad_(False)
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=0.1)
    versions = server.embed.weight._version
    with dw.Publisher(store, trainer) as publisher, dw.TensorReplica(store, server) as replica:
        for _ in range(3):
            trainer(torch.tensor([0, 3, 3])).sum().backward()
            optimizer.step()
            publisher.publish()
            replica.pull()
            assert state_bits(server.state_dict()) == state_bits(trainer.state_dict())
    assert server.embed.weight is not trainer.embed.weight
    assert server.head.weight is server.embed.weight
    assert server.embed.weight._version > versions  # autograd knows
    other = Tied()
    assert [pulled.version for pulled in dw.torch.follow(store, other, until=2)] == [2]
    assert state_bits(other.state_dict()) == state_bits(trainer.state_dict())


def test_patches_a_server_with_other_names(store: str) -> None:
    trainer, server = small(), small()
    dw.Publisher(store, trainer, select=dw.Select(rename=lambda name: f"model.{name}")).publish()
    dw.TensorReplica(store, server, select=dw.Select(rename=lambda name: f"model.{name}")).pull()
    assert state_bits(server.state_dict()) == state_bits(trainer.state_dict())
    with pytest.raises(dw.InvalidArgument, match='tensor "0.bias"'):
        dw.TensorReplica(store, server).pull()


def test_places_the_snapshot(store: str, tmp_path: Any) -> None:
    model = small()
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    for where in None, "memory", "pinned", "device":
        publisher = dw.Publisher(f"{store}-{where}", model, snapshot=where)
        publisher.publish()
        memory = publisher.memory()
        assert (memory.host + memory.pinned + memory.device, memory.disk) == (size, 0)  # no GPU: in the host's
    publisher = dw.Publisher(f"{store}-folder", model, snapshot=tmp_path / "snapshot")
    publisher.publish()
    assert publisher.memory().host == 0
    assert publisher.memory().disk >= size


class OnGpu(torch.Tensor):
    """Claims to be on a GPU, and counts how often it is fetched."""

    is_cuda = True
    gpu = 0
    fetched = 0

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.gpu)

    def cpu(self) -> torch.Tensor:
        self.fetched += 1
        return self.as_subclass(torch.Tensor)


def on_gpu(number: int) -> OnGpu:
    tensor = torch.ones(3).as_subclass(OnGpu)
    tensor.gpu = number
    return tensor


def test_fetches_tensors_without_a_gpu() -> None:
    from deltawire.torch.gpu import gpu_of, in_reach, stream_of, values_of

    tensor, there = torch.ones(3), on_gpu(0)
    assert in_reach(tensor, None, on_host=False, gpu=None) is tensor
    assert bits(in_reach(there, None, on_host=True, gpu=0)) == bits(tensor)
    assert there.fetched == 1
    assert gpu_of(values_of(small())) is None
    assert stream_of(None) == 0


def test_works_on_the_gpu_of_the_first_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    from deltawire.torch import gpu

    monkeypatch.setattr(gpu, "_has_cuda", lambda: True)
    first, other = on_gpu(1), on_gpu(0)  # whichever is current
    chosen = gpu.gpu_of(gpu.values_of({"a": torch.ones(3), "b": first, "c": other}))
    assert chosen == 1
    assert gpu.in_reach(first, None, on_host=False, gpu=chosen) is first
    assert bits(gpu.in_reach(other, None, on_host=False, gpu=chosen)) == bits(torch.ones(3))
    assert (first.fetched, other.fetched) == (0, 1)


def test_replica_writes_to_one_gpu() -> None:
    from deltawire.torch.gpu import refuse_several_gpus

    refuse_several_gpus([("host", torch.ones(3)), ("a", on_gpu(1)), ("b", on_gpu(1)), ("list", [1])])
    with pytest.raises(dw.InvalidArgument, match='"b" is on cuda:0 and "a" on cuda:1: a replica writes to one GPU'):
        refuse_several_gpus([("host", torch.ones(3)), ("a", on_gpu(1)), ("b", on_gpu(0))])


def test_accepts_a_copy_of_the_model(store: str) -> None:
    model = small()
    with dw.Publisher(store, model) as publisher:
        publisher.publish()
        assert not publisher.publish(copy.deepcopy(model)).committed
