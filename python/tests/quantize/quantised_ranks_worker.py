"""One rank of the sharded trainers of test_quantize_ranks.py: FOLDER CASE..."""

import json
import os

import torch
import torch.distributed as dist
from ranks_worker import FOLDER, LAST, QUICK, RANK, WORLD, failure_of, main, same, whole
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import deltawire as dw
from deltawire.quantize import FORMATS, quantize


def attention(step: int) -> dict[str, torch.Tensor]:
    """Modules that share a scale: q in rows of all ranks, k, the largest, whole on the last rank alone, v in columns."""
    torch.manual_seed(step)
    mesh = init_device_mesh("cpu", (WORLD,))
    full = {part: (torch.randn(16, 64) * size).bfloat16() for part, size in (("q", 1), ("k", 3), ("v", 2), ("o", 1))}
    names = {part: f"layers.0.self_attn.{part}_proj.weight" for part in full}
    held = {
        names["q"]: distribute_tensor(full["q"], mesh, [Shard(0)]),
        names["v"]: distribute_tensor(full["v"], mesh, [Shard(1)]),
    }
    held[names["o"]] = distribute_tensor(full["o"], mesh, [Shard(1)])
    if LAST:
        held[names["k"]] = full["k"]
    return held


def all_of(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gather all tensors, including those of the last rank only."""
    full, told = whole(held), [None] * WORLD
    dist.all_gather_object(told, {name: tensor for name, tensor in full.items() if ".k_proj" in name})
    return full | told[-1]


def quantised_together() -> None:
    """Scales of sharded tensors are those of the whole tensors, and of fused modules on any rank."""
    for format in "nvfp4", "compressed-nvfp4", "fp8-tensor", "compressed-fp8-tensor", "fp8-channel", "int8-channel":
        store = FOLDER / f"together-{format}"
        publisher = dw.Publisher(str(store), attention(0), quantize=format, **QUICK)
        for step in range(2):
            held = attention(step)
            assert publisher.publish(held).number == step
            full = all_of(held)
            if RANK == 0:
                same(store, dict(quantize(full, format)), step)
        publisher.close()


def what_no_rank_has_is_carried_along() -> None:
    """Carry what the checkpoint has and the model lacks, but not what another rank holds."""
    held = attention(0)
    full = all_of(held)
    state = dict(quantize(full | {"mtp.0.up_proj.weight": torch.ones(16, 64).bfloat16()}, "nvfp4"))
    engine, store = FOLDER / "like", FOLDER / "carried"
    if RANK == 0:
        engine.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, engine / "model.safetensors")
        (engine / "config.json").write_text(json.dumps({"quantization_config": FORMATS["nvfp4"]}))
    dist.barrier()
    with dw.Publisher(str(store), held, quantize=engine, **QUICK) as publisher:
        version = publisher.publish()
        assert [("3 tensors that the model lacks" in said) for said in version.warnings] == [True] * (RANK == 0)
        for step in range(1, 3):
            assert publisher.publish(attention(step)).number == step
    if RANK == 0:
        assert {tensor.name for tensor in dw.Chain(str(store)).tensors(2)} == state.keys()
    with dw.Publisher(str(FOLDER / "seeded"), held, quantize=engine, **QUICK) as publisher:
        assert publisher.publish().number == 0
    if RANK == 0:
        same(FOLDER / "seeded", state, 0)


def a_rank_with_nan_is_named() -> None:
    held = attention(0)
    if LAST:
        held["layers.0.self_attn.k_proj.weight"][3, 3] = float("nan")
    publisher = dw.Publisher(str(FOLDER / "nan"), held, quantize="nvfp4", **QUICK)
    failure = str(failure_of(publisher.publish))
    assert "k_proj.weight" in failure, failure
    assert "contains NaN" in failure, failure
    assert LAST or f"rank {WORLD - 1}" in failure, failure
    assert publisher.publish(attention(0)).number == 0


def a_rank_that_died_is_told() -> None:
    """The last rank exits silently while the others agree: a clear failure, long before the timeout."""
    publisher = dw.Publisher(str(FOLDER / "died"), attention(0), quantize="nvfp4", **QUICK)
    publisher.publish()
    held = attention(1)
    if LAST:
        os._exit(0)
    failure = failure_of(lambda: publisher.publish(held))
    assert isinstance(failure, dw.Unavailable), failure
    assert "another rank does not answer" in str(failure)
    assert dw.Chain(str(FOLDER / "died")).head == 0
    if RANK == 0:
        print("passed: a_rank_that_died_is_told ", flush=True)
    os._exit(0)  # the group is gone


if __name__ == "__main__":
    main(globals())
