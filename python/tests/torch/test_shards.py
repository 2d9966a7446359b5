"""Layouts of ranks, and plans between two of them."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import deltawire as dw
from deltawire.shards import ShardBox, layout_of_spec, plan_shards

WHOLE = ShardBox("w", "BF16", (8, 6), (0, 0), (8, 6))
SPECS = ("tp=1", "fsdp=3", "fsdp=4", "tp=2", "tp=4", "tp=8", "tp=2,fsdp=3", "ep=2", "ep=4", "pp=2", "pp=3,tp=2,ep=2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers, 12 rows of 8 key-value heads shared by up to 8 ranks, four experts, and a head."""
    folder = tmp_path_factory.mktemp("model")
    names = {"model.embed_tokens.weight": (37, 16), "lm_head.weight": (37, 16), "model.norm.weight": (16,), "scalar": ()}
    for layer in range(3):
        prefix = f"model.layers.{layer}"
        names |= {f"{prefix}.self_attn.{name}_proj.weight": (32 if name == "q" else 8, 16) for name in "qkv"}
        names |= {f"{prefix}.self_attn.o_proj.weight": (16, 32), f"{prefix}.input_layernorm.weight": (16,)}
        names |= {f"{prefix}.mlp.experts.{expert}.up_proj.weight": (24, 16) for expert in range(4)}
        names |= {f"{prefix}.mlp.experts.{expert}.down_proj.weight": (16, 24) for expert in range(4)}
    from safetensors.numpy import save_file

    save_file({name: np.zeros(shape, np.float16) for name, shape in names.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_key_value_heads": 2}))
    return folder


def mask_of(layout, name, shape):
    """The number of ranks that hold each element."""
    held = np.zeros(shape, int)
    for box in itertools.chain(*layout):
        if box.name == name:
            held[tuple(slice(at, at + count) for at, count in zip(box.offset, box.extent, strict=True))] += 1
    return held


@pytest.mark.parametrize("spec", SPECS)
def test_layouts_cover_every_element(model, spec):
    layout = layout_of_spec(spec, model)
    for box in layout_of_spec("tp=1", model)[0]:
        assert mask_of(layout, box.name, box.shape).min() >= 1, box.name
    rows = mask_of(layout, "model.layers.0.self_attn.q_proj.weight", (32, 16))
    assert rows.max() == (4 if spec == "ep=4" else 2 if "ep=2" in spec else 1)


@pytest.mark.parametrize(("trainer", "engine"), [*itertools.product(SPECS, SPECS)])
def test_plans_deliver_each_engine_ranks_shard(model, trainer, engine):
    sources, targets = layout_of_spec(trainer, model), layout_of_spec(engine, model)
    plan = plan_shards(sources, targets)
    plan.check()
    for rank, boxes in enumerate(targets):
        assert sum(size for (_, to), size in plan.edges.items() if to == rank) == sum(box.num_bytes for box in boxes)
    if trainer == engine:
        assert all(source == target for source, target in plan.edges)


def test_ranks_share_heads_when_there_are_few(model):
    keys = [next(box for box in rank if box.name.endswith("0.self_attn.k_proj.weight")) for rank in layout_of_spec("tp=4", model)]
    assert [(box.offset[0], box.extent[0]) for box in keys] == [(0, 4), (0, 4), (4, 4), (4, 4)]


def test_plan_names_obstacles():
    halves = [[WHOLE.cut(0, 0, 4)], [WHOLE.cut(0, 4, 8)]]
    assert plan_shards(halves, [[WHOLE]]).edges == {(0, 0): 48, (1, 0): 48}
    assert not plan_shards(halves, [[WHOLE.cut(0, 4, 4)]]).refusals, "a rank may hold nothing"
    for trainer, why in (
        ([], "no trainer rank holds it"),
        (halves[:1], r"no trainer rank holds its box at \(4, 0\) of \(4, 6\)"),
        ([[ShardBox("w", "F32", (8, 6), (0, 0), (8, 6))]], "it is F32 .* in the trainer and BF16"),
    ):
        with pytest.raises(dw.errors.Unsupported, match=f'tensor "w": {why}'):
            plan_shards(trainer, [[WHOLE]]).check()


@pytest.mark.parametrize("spec", ["", "tp", "tp=0", "tp=-1", "xp=2", "tp=2;ep=2", "tp=99999999"])
def test_rejects_invalid_layouts(model, spec):
    with pytest.raises(dw.InvalidArgument, match="is not one of tp=N"):
        layout_of_spec(spec, model)


def test_refuses_indivisible_checkpoints(model, tmp_path):
    with pytest.raises(dw.InvalidArgument, match="cannot be divided by 5 ranks"):
        layout_of_spec("tp=5", model)
    with pytest.raises(dw.InvalidArgument, match="no safetensors files"):
        layout_of_spec("tp=2", tmp_path)
    (tmp_path / "cut.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:100])
    with pytest.raises(dw.InvalidArgument, match="cut.safetensors: not a safetensors file"):
        layout_of_spec("tp=2", tmp_path)


def test_plans_torch_modules():
    torch = pytest.importorskip("torch")
    from deltawire.torch import layout_of

    assert layout_of(torch.nn.Linear(6, 4).to(torch.bfloat16)) == [
        ShardBox("weight", "BF16", (4, 6), (0, 0), (4, 6)),
        ShardBox("bias", "BF16", (4,), (0,), (4,)),
    ]
    half = dw.Tensor(torch.zeros(2, 6), shape=(4, 6), offset=(2, 0))
    assert layout_of({"w": half}) == [ShardBox("w", "F32", (4, 6), (2, 0), (2, 6))]
