"""Atomic groups: a quantised module is reloaded as a whole, and rolled back as a whole."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")

from test_engines import Chain
from torch import nn

from deltawire.engines.atomic import atomic_group, check_scales
from deltawire.engines.undo import Undo

SIZE, LAYERS = 128, 2


def checkpoint() -> dict[str, torch.Tensor]:
    """Quantised by block: weights of one byte, and a scale for each."""
    torch.manual_seed(3)
    tensors = {"model.norm.weight": torch.randn(SIZE)}
    for layer in range(LAYERS):
        for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"):
            module = f"model.layers.{layer}.{part}"
            tensors[f"{module}.weight"] = torch.randint(-100, 100, (SIZE, SIZE), dtype=torch.int8)
            tensors[f"{module}.weight_scale"] = torch.rand(SIZE, 1) + 0.5
    return tensors


class Method:
    """Like an engine's quantisation method: processes a module, and keeps a handle of its kernel."""

    def __init__(self) -> None:
        self.handle: torch.Tensor | None = None

    def process(self, layer: Linear) -> None:
        """Pack the weight into another shape, free the original, and use one scale for all."""
        largest = layer.weight_scale.data.max()
        codes = torch.round(layer.weight.data.float() * layer.weight_scale.data / largest).to(torch.int8)
        self.handle = codes.t().contiguous()
        layer.weight = None
        layer.packed = nn.Parameter(codes.reshape(-1, 4, SIZE // 2), requires_grad=False)
        layer.weight_scale = nn.Parameter(largest.reshape(1), requires_grad=False)


class Linear(nn.Module):
    """Several modules of a checkpoint, fused."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts, self.quant_method = parts, Method()
        self.create()

    def create(self) -> None:
        """The state before loading."""
        rows = SIZE * self.parts
        self.weight: Any = nn.Parameter(torch.full((rows, SIZE), 77, dtype=torch.int8), requires_grad=False)
        self.weight_scale = nn.Parameter(torch.full((rows, 1), 1e6), requires_grad=False)

    def output(self) -> torch.Tensor:
        """The values that requests use: memory of the module and of its kernel."""
        assert self.quant_method.handle is not None
        return torch.cat([self.packed.flatten(), self.quant_method.handle.flatten()]).float() * self.weight_scale


class Model(nn.Module):
    """A quantised model of an engine."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.zeros(SIZE), requires_grad=False)
        self.layers = nn.ModuleList(nn.ModuleDict({"qk": Linear(2), "down": Linear(1)}) for _ in range(LAYERS))
        self.reloads: list[set[str]] = []  # groups of each
        self.breaks_at = ""
        self.load_weights(tensors.items())
        for layer in self.linears():
            layer.quant_method.process(layer)

    def linears(self) -> list[Linear]:
        return [module for module in self.modules() if isinstance(module, Linear)]

    def _gpu(self, name: str) -> tuple[Linear, int]:
        _, _, layer, _, part, _ = name.split(".")
        return self.layers[int(layer)]["down" if part == "down_proj" else "qk"], int(part == "k_proj")

    def load_weights(self, weights: Any) -> None:
        for name, tensor in weights:
            if name == "model.norm.weight":
                self.norm.data.copy_(tensor)
                continue
            linear, row = self._gpu(name)
            getattr(linear, name.rpartition(".")[2]).data.narrow(0, row * SIZE, SIZE).copy_(tensor)

    def reload(self, weights: Any) -> None:
        """Recreate the modules that receive weights, and process each once."""
        touched: dict[Linear, Any] = {}
        self.reloads.append(set())
        for name, tensor in weights:
            self.reloads[-1].add(atomic_group(name))
            if name != "model.norm.weight" and self._gpu(name)[0] not in touched:
                linear = self._gpu(name)[0]
                touched[linear] = linear.packed
                linear.create()
            self.load_weights([(name, tensor)])
            if self.breaks_at and self.breaks_at in name:
                raise RuntimeError("out of memory")
        for linear, packed in touched.items():
            assert not (linear.weight.data == 77).all(1).any(), "some of a module was not loaded"
            linear.quant_method.process(linear)
            packed.data.copy_(linear.packed.data)  # in its old place, as engines do
            linear.packed = packed

    def outputs(self) -> list[torch.Tensor]:
        return [self.norm.data.clone(), *(linear.output() for linear in self.linears())]


class Scene(Chain):
    """A chain, a host's copy, a model that follows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, checkpoint())
        self.model = Model(self.tensors)
        self.worker = self.attached(self.model, reload=self.model.reload)

    def step(self, *names: str) -> int:
        """Change some elements of these tensors."""
        for name in names:
            self.tensors[name] = self.tensors[name].clone()
            if self.tensors[name].dtype == torch.int8:
                self.tensors[name].flatten()[::3] += 1
            else:
                self.tensors[name] *= 1.5
        return self.publish(self.tensors)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def assert_serves(scene: Scene, tensors: dict[str, torch.Tensor]) -> None:
    for own, fresh in zip(scene.model.outputs(), Model(tensors).outputs(), strict=True):
        assert torch.equal(own, fresh)


def test_reloads_whole_modules_and_no_others(scene):
    assert "model.norm.weight" not in scene.worker.report.reloaded, (
        "what is not packed is found though other modules bear no load"
    )
    first = "model.layers.1.self_attn"
    for name, groups in {
        f"{first}.k_proj.weight_scale": {first},
        f"{first}.q_proj.weight": {first},
        "model.layers.0.mlp.down_proj.weight": {"model.layers.0.mlp"},
        "model.norm.weight": None,
    }.items():
        before, others = len(scene.model.reloads), {id(linear): linear.packed for linear in scene.model.linears()}
        assert scene.worker.update(verify="all").version is not None
        version = scene.step(name)
        assert scene.worker.update().version == version
        assert scene.model.reloads[before:] == ([] if groups is None else [groups])
        assert all(linear.packed is others[id(linear)] for linear in scene.model.linears())
        assert_serves(scene, scene.tensors)


@pytest.mark.parametrize("where", ["layers.0.mlp.down_proj.weight", "layers.1.self_attn.q_proj.weight_scale"])
def test_failing_loader_keeps_the_old_version(scene, where):
    before, objects = dict(scene.tensors), [dict(vars(linear)["_parameters"]) for linear in scene.model.linears()]
    for _ in range(2):  # and again
        version = scene.step("model.norm.weight", *(name for name in scene.tensors if "layers" in name))
        scene.model.breaks_at = where
        with pytest.raises(dw.errors.Error, match="out of memory"):
            scene.worker.update()
        assert scene.worker.version == 0
        assert_serves(scene, before)
        for linear, known in zip(scene.model.linears(), objects, strict=True):
            assert linear._parameters.keys() == known.keys()
            assert all(linear._parameters[name] is value for name, value in known.items())
    scene.model.breaks_at = ""
    assert scene.worker.update().version == version
    assert_serves(scene, scene.tensors)


def test_failed_proof_restores_reloaded_modules(scene):
    before = dict(scene.tensors)
    scene.step("model.norm.weight", "model.layers.0.mlp.down_proj.weight")
    scene.worker.stage()
    scene.worker._digests = scene.worker.staged, scene.worker._digests_of(scene.worker.served)  # of the version before
    with pytest.raises(dw.errors.BaseMismatch, match="after the update"):
        scene.worker.update()
    assert_serves(scene, before)
    scene.worker._digests = None
    assert scene.worker.update().version == 1
    assert_serves(scene, scene.tensors)


def test_nan_scale_is_not_served(scene):
    name, before = "model.layers.1.mlp.down_proj.weight_scale", dict(scene.tensors)
    scene.tensors[name] = scene.tensors[name].clone()
    scene.tensors[name][5] = float("nan")
    scene.step("model.norm.weight")
    with pytest.raises(dw.errors.BaseMismatch, match=r"down_proj.weight_scale\": scale 5 is nan"):
        scene.worker.update()
    assert_serves(scene, before)
    scene.tensors[name] = before[name]
    assert scene.worker.update(scene.step("model.norm.weight")).version == 2
    assert_serves(scene, scene.tensors)


@pytest.mark.parametrize(
    ("scale", "good"),
    [
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), True),
        (torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn), True),
        (torch.tensor([0, 254], dtype=torch.uint8), True),
        (torch.tensor([0, 255], dtype=torch.uint8), False),
        (torch.tensor([1.0, float("nan")]).to(torch.float8_e4m3fn), False),
        (torch.tensor([1.0, float("-inf")]), False),
    ],
)
def test_checks_scales_of_all_dtypes(scale, good):
    if good:
        check_scales([("a.weight_scale", scale)], 1)
    else:
        with pytest.raises(dw.errors.BaseMismatch, match="scale 1 is"):
            check_scales([("a.weight_scale", scale)], 1)


def test_refuses_a_version_without_a_scale(scene):
    before = dict(scene.tensors)
    del scene.tensors["model.layers.0.self_attn.k_proj.weight_scale"]
    scene.step("model.layers.0.self_attn.k_proj.weight")
    with pytest.raises(dw.errors.BaseMismatch, match="other tensors than the served model"):
        scene.worker.update()
    assert_serves(scene, before)


def test_undo_reverts_every_kind_of_change():
    model = nn.Linear(8, 8).requires_grad_(False)
    model.register_buffer("table", torch.arange(8.0))
    model.note = torch.ones(4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weight, place = model.weight, model.weight.data_ptr()
    undo = Undo([model])

    def num_bytes() -> int:
        return sum(copy.numel() for copy in undo._copies.values())

    assert num_bytes() == 0
    with undo, torch.no_grad():
        assert num_bytes() == 0
        model.weight[2:4].add_(1)  # through a view
        torch._foreach_mul_([model.bias], 3)
        torch.add(model.table, 1, out=model.table)
        model.note.zero_()
    assert num_bytes() == (64 + 8 + 8 + 4) * 4
    model.weight.data = torch.zeros(3, dtype=torch.int8)
    model.weight.loader = "wrapped"
    model.bias = None
    model.extra = nn.Parameter(torch.ones(1))
    del model.table
    undo.put_back()
    assert model.weight is weight
    assert model.weight.data_ptr() == place
    assert not hasattr(weight, "loader")
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(model.note, torch.ones(4))
    assert not hasattr(model, "extra")


def test_undo_restores_dtypes_and_sizes():
    model = nn.Linear(8, 8).requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    undo = Undo([model])
    with undo, torch.no_grad():
        model.weight.data = model.weight.data.view(torch.int32)  # the same memory, shape and strides
        model.weight.zero_()
        model.bias.resize_(100).zero_()
    undo.put_back()
    assert model.weight.dtype == torch.float32
    assert model.bias.untyped_storage().nbytes() == 8 * 4
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_undo_searches_nested_containers():
    model = nn.Module()
    model.tables = {"deep": [{"er": (torch.ones(2), [torch.ones(3)])}], "other": OrderedDict(a=torch.ones(4))}
    model.tables["itself"] = model.tables
    tables, inner = model.tables, model.tables["deep"][0]["er"]
    undo = Undo([model])
    with undo:
        inner[0].zero_()
        inner[1][0].zero_()
        tables["other"]["a"].zero_()
    inner[1].append("more")
    tables["deep"].clear()
    tables["other"] = None
    undo.put_back()
    assert model.tables is tables
    assert tables["deep"][0]["er"] is inner
    assert len(inner[1]) == 1
    assert all(bool((tensor == 1).all()) for tensor in (inner[0], inner[1][0], tables["other"]["a"]))


# ---- versions


def trained() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    return {name: torch.randn(SIZE, SIZE).bfloat16() for name in names} | {"model.norm.weight": torch.ones(SIZE).bfloat16()}


@pytest.mark.parametrize("format", ["fp8-block", "int4-g32-asymmetric"])
def test_version_has_a_weight_with_its_scales_or_neither(format):
    weights, gone = trained(), "model.layers.0.self_attn.k_proj."
    url = f"memory:whole-{format}"
    with dw.Publisher(url, quantize=format, options=dw.PublishOptions(schema_change=True)) as publisher:
        publisher.publish(weights)
        whole = {tensor.name for tensor in dw.Chain(url).tensors(0)}
        publisher.publish({name: tensor for name, tensor in weights.items() if not name.startswith(gone)})
        assert {tensor.name for tensor in dw.Chain(url).tensors(1)} == {name for name in whole if not name.startswith(gone)}


class Head(nn.Module):
    """Like vLLM's head on a CPU: the weight stays, and a closure computes with a packed copy."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.pack()

    def pack(self) -> None:
        packed = self.weight.data.t().contiguous()
        self.cpu_linear = lambda x: x @ packed

    def load_weights(self, weights: Any) -> None:
        for _, tensor in weights:
            self.weight.data.copy_(tensor)

    def reload(self, weights: Any) -> None:
        self.load_weights(weights)
        self.pack()


def test_updates_copies_known_only_to_a_kernel(tmp_path):
    weight = torch.randn(16, 16)
    chain, head = Chain(tmp_path, {"weight": weight}), Head(weight)
    worker = chain.attached(head, reload=head.reload)
    chain.publish({"weight": weight + 1})
    assert worker.update().version == 1
    x = torch.randn(3, 16)
    assert torch.equal(head.cpu_linear(x), Head(weight + 1).cpu_linear(x))


class Experts(nn.Module):
    """A module that keeps its weights unchanged and converts its scales while loading."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * SIZE, SIZE, dtype=torch.int8), requires_grad=False)
        self.weight_scale = nn.Parameter(torch.zeros(2 * SIZE, 1), requires_grad=False)
        self.load_weights(tensors.items())

    def load_weights(self, weights: Any) -> None:
        for name, tensor in weights:
            _, expert, _, kind = name.split(".")
            getattr(self, kind).data.narrow(0, int(expert) * SIZE, SIZE).copy_(tensor)

    def reload(self, weights: Any) -> None:
        """Load into new memory, then copy to the old place, like engines."""
        fresh = {"weight": torch.full_like(self.weight, 77), "weight_scale": torch.full_like(self.weight_scale, 1e6)}
        served = {name: getattr(self, name).data for name in fresh}
        for name, tensor in fresh.items():
            getattr(self, name).data = tensor
        self.load_weights(weights)
        for name, tensor in served.items():
            tensor.copy_(getattr(self, name).data)
            getattr(self, name).data = tensor


def test_weights_are_reloaded_with_converted_scales(tmp_path):
    """With only one of them, an engine would serve uninitialised memory for the other."""
    torch.manual_seed(4)
    tensors = {}
    for expert in range(2):
        tensors[f"experts.{expert}.up_proj.weight"] = torch.randint(-100, 100, (SIZE, SIZE), dtype=torch.int8)
        tensors[f"experts.{expert}.up_proj.weight_scale"] = torch.rand(SIZE, 1).bfloat16() + 0.5
    chain, model = Chain(tmp_path, tensors), Experts(tensors)
    worker = chain.attached(model, reload=model.reload)
    for name in list(tensors):
        tensors[name] = tensors[name] + (torch.ones((), dtype=torch.int8) if tensors[name].dtype == torch.int8 else 0.25)
        version = chain.publish(tensors)
        worker.stage()
        assert worker.update().version == version
        fresh = Experts(tensors)
        assert torch.equal(model.weight, fresh.weight), name
        assert torch.equal(model.weight_scale, fresh.weight_scale), name
