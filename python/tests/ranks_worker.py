"""One rank of the sharded trainers of test_torch_ranks.py: FOLDER CASE..."""

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_states import published, state_bits
from watched_store import Watched

import deltawire as dw
from deltawire.quantize import quantize

FOLDER = Path(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
QUICK: dict[str, Any] = {"options": dw.PublishOptions(limits=dw.Limits(threads=1))}


class Net(nn.Module):
    """A number of rows that no number of ranks divides, fewer rows than ranks, and a buffer."""

    def __init__(self, inner: int = 13) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.up, self.down, self.out = nn.Linear(8, inner), nn.Linear(inner, 8), nn.Linear(8, 3)
        self.register_buffer("steps", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.steps += 1
        return self.out(torch.relu(self.down(torch.relu(self.up(x)))))


def whole(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gather a whole state, which only tests do."""
    return {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone() for name, tensor in state.items()
    }


def same(store: Path, state: dict[str, torch.Tensor], version: int | None = None) -> None:
    assert state_bits(published(str(store), version)) == state_bits(state), (
        f"{store.name}: version {version} is not the trainer's"
    )


def train_and_compare(case: str, model: nn.Module, **options: Any) -> dw.Publisher:
    """Every version equals one published by a single process from the gathered model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    alone = (
        dw.Publisher(str(FOLDER / f"{case}-alone"), options=dw.PublishOptions(limits=dw.Limits(threads=1))) if RANK == 0 else None
    )
    publisher = dw.Publisher(str(FOLDER / case), model, **QUICK, **options)
    cast = options.get("dtype", torch.float32)
    for step in range(3):
        version = publisher.publish(wait=True) if step < 2 else publisher.publish(wait=False).result()
        assert (version.number, version.full) == (step, step == 0), version
        state = {name: tensor.to(cast) for name, tensor in whole(model.state_dict()).items()}
        if alone is not None:
            alone.publish(state)
            same(FOLDER / case, state, step)
            assert dw.Chain(str(FOLDER / case)).tensors(step) == dw.Chain(str(FOLDER / f"{case}-alone")).tensors(step)
        dist.barrier()
        optimizer.zero_grad()
        torch.manual_seed(step)
        model(torch.rand(4, 8)).square().sum().backward()
        optimizer.step()
    return publisher


def fsdp_net(inner: int = 13) -> nn.Module:
    model = Net(inner)
    for layer in model.up, model.down:
        fully_shard(layer)
    return fully_shard(model)


def parallel_net(mesh: Any = None) -> nn.Module:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(Net(12), mesh or init_device_mesh("cpu", (WORLD,)), plan)


def net_of_meshes() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(parallel_net(mesh["tp"]), mesh=mesh["dp"])


def fsdp() -> None:
    total = sum(tensor.nbytes for tensor in Net().state_dict().values())
    model = fsdp_net()
    publisher = train_and_compare("fsdp", model)
    mine = sum(parameter.to_local().nbytes for parameter in model.parameters())
    assert publisher.memory().host <= mine + model.steps.nbytes < total  # nobody holds more than its shard


def fsdp_as_bfloat16() -> None:
    train_and_compare("fsdp_as_bfloat16", fsdp_net(), dtype=torch.bfloat16)


def fsdp_by_columns() -> None:
    model = fully_shard(Net(), shard_placement_fn=lambda p: Shard(1) if p.shape[1:] == (8,) else None)
    assert model.up.weight.placements == (Shard(1),)
    train_and_compare("fsdp_by_columns", model)


def tensor_parallel() -> None:
    train_and_compare("tensor_parallel", parallel_net())


def hsdp() -> None:
    mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))
    publisher = train_and_compare("hsdp", fully_shard(Net(), mesh=mesh))
    if RANK >= WORLD // 2:
        assert publisher.memory().host == 0  # a replica publishes nothing


def fsdp_and_tensor_parallel() -> None:
    train_and_compare("fsdp_and_tensor_parallel", net_of_meshes())


def follow_and_compare(case: str, server: nn.Module) -> None:
    """A sharded server follows an unsharded trainer: each rank patches its own shards, and all update together."""
    store, trainer = FOLDER / f"{case}-trainer", Net(12)
    publisher = dw.Publisher(str(store), trainer, options=dw.PublishOptions(limits=dw.Limits(threads=1))) if RANK == 0 else None
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=0.01)
    x = torch.rand(4, 8, generator=torch.Generator().manual_seed(5))
    replica = dw.TensorReplica(str(store), server, limits=dw.Limits(threads=1))
    for step in range(4):
        if publisher is not None:
            publisher.publish()
        dist.barrier()
        with torch.no_grad():
            steps = server.steps.clone()
            server(x)  # what it gathers for this must not be used again
            server.steps.copy_(steps)  # forward counts, and a server's tensors are the replica's
        versions = [parameter._version for parameter in server.parameters()]
        assert replica.prepare(step).changed
        dist.barrier()
        pulled = replica.commit()
        assert (pulled.version, pulled.repaired) == (step, False), pulled.repair_reason
        assert all(new > old for new, old in zip([p._version for p in server.parameters()], versions, strict=True))
        assert state_bits(whole(server.state_dict())) == state_bits(whole(trainer.state_dict()))
        steps = trainer.steps.clone()
        with torch.no_grad():
            out = server(x)
            assert torch.allclose(out, trainer(x), atol=1e-5)
            server.steps.copy_(steps)
            trainer.steps.copy_(steps)
        optimizer.zero_grad()
        torch.manual_seed(step)
        trainer(torch.rand(4, 8)).square().sum().backward()
        optimizer.step()
        dist.barrier()


def replicas_of_shards() -> None:
    for case, server in {"fsdp": fsdp_net(12), "parallel": parallel_net(), "meshes": net_of_meshes()}.items():
        follow_and_compare(f"replica_of_{case}", server)


def proof_of_any_placement() -> None:
    """A version that one process published, held in shards of any kind, and then with one bit changed on one rank."""
    store, mesh = str(FOLDER / "proof_of_any_placement"), init_device_mesh("cpu", (WORLD,))
    full = whole(shards_of(0))
    if RANK == 0:
        dw.Publisher(store, full, **QUICK).publish()
    dist.barrier()
    for placement in (Shard(0), Shard(1), Replicate()):
        mine = {
            name: distribute_tensor(tensor, mesh, [placement if tensor.dim() > getattr(placement, "dim", 0) else Shard(0)])
            for name, tensor in full.items()
        }
        assert dw.torch.prove(mine, store) == 0
        if RANK == 0:  # which has some of everything
            mine["rows"].to_local().view(-1)[0] += 1
        found = ""
        try:
            dw.torch.prove(mine, store)
        except dw.BaseMismatch as error:
            found = str(error)
        assert '"rows"' in found, (placement, found)


def proof_of_what_ranks_published() -> None:
    """Published in boxes, held in others: the digests are those of whole tensors."""
    store, mesh = str(FOLDER / "proof_of_what_ranks_published"), init_device_mesh("cpu", (WORLD,))
    publisher = dw.Publisher(store, shards_of(0), **QUICK)
    for step in range(3):
        state = shards_of(step)
        publisher.publish(state)
        assert dw.torch.prove(state, store) == step
        full = whole(state)
        mine = {name: distribute_tensor(tensor, mesh, [Shard(tensor.dim() - 1)]) for name, tensor in full.items()}
        assert dw.torch.prove(mine, store) == step


def replica_of_any_placement() -> None:
    """From shards to other shards: ranks publish boxes of rows, replicas hold columns."""
    store = FOLDER / "replica_of_any_placement"
    publisher = dw.Publisher(str(store), shards_of(0), **QUICK)
    mesh = init_device_mesh("cpu", (WORLD,))
    others = {"rows": Shard(1), "columns": Shard(0), "depth": Shard(0), "replicated": Shard(0), "few": Shard(0)}
    mine = {name: distribute_tensor(torch.zeros(tensor.shape), mesh, [others[name]]) for name, tensor in shards_of(0).items()}
    replica = dw.TensorReplica(str(store), mine, limits=dw.Limits(threads=1))
    for step in range(3):
        state = shards_of(step)
        publisher.publish(state)
        assert not replica.pull().repaired
        assert state_bits(whole(mine)) == state_bits(whole(state))


def shards_of(step: int) -> dict[str, torch.Tensor]:
    """A state in all placements, the same whatever the number of ranks."""
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (WORLD,))
    placements = {"rows": Shard(0), "columns": Shard(1), "depth": Shard(2), "replicated": Replicate(), "few": Shard(0)}
    shapes = {"rows": (7, 3), "columns": (3, 11), "depth": (2, 3, 5), "replicated": (4,), "few": (1, 6)}
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    for _ in range(step):
        for tensor in state.values():
            tensor[torch.rand(tensor.shape) < 0.3] += 1
    return {name: distribute_tensor(tensor, mesh, [placements[name]]) for name, tensor in state.items()}


def any_placement() -> None:
    store = FOLDER / "any_placement"
    publisher = dw.Publisher(str(store), shards_of(0), **QUICK)
    for step in range(3):
        state = shards_of(step)
        publisher.publish(state)
        full = whole(state)
        if RANK == 0:
            same(store, full, step)


def resume() -> None:
    """Run with two ranks, then with four, which share only the chain."""
    store = FOLDER / "resume"
    chain = dw.Chain(str(store)) if store.exists() else None
    first = 0 if chain is None or chain.head is None else chain.head + 1
    dist.barrier()
    publisher = dw.Publisher(str(store), shards_of(first), **QUICK)
    for step in range(first, first + 2):
        state = shards_of(step)
        version = publisher.publish(state)
        assert (version.number, version.full) == (step, step == 0), version
        full = whole(state)
        if RANK == 0:
            same(store, full, step)


def failure_of(call: Callable[[], object]) -> Exception:
    try:
        result = call()
    except (dw.Error, RuntimeError) as error:
        return error
    raise AssertionError(f"no failure, but {result}")


LAST = RANK == WORLD - 1  # the one that fails


def failure_in_the_store() -> None:
    """One rank's upload fails: all ranks name it, and the next version is complete."""

    def fail(name: str) -> None:
        if name.startswith("parts/"):
            raise OSError("disk full")

    store = Watched(FOLDER / "disk")
    publisher = dw.Publisher(store, shards_of(0), **QUICK)
    publisher.publish()
    healthy = store.before
    store.before = fail if LAST else healthy
    failure = str(failure_of(lambda: publisher.publish(shards_of(1))))
    assert "disk full" in failure, failure
    assert LAST or f"rank {WORLD - 1}" in failure, failure
    store.before = healthy
    state = shards_of(2)
    assert publisher.publish(state).number == 1
    full = whole(state)
    if RANK == 0:
        same(FOLDER / "disk", full, 1)


def partial_sums_are_refused() -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    state = {"w": DTensor.from_local(torch.ones(3), mesh, [Partial()])}
    publisher = dw.Publisher(str(FOLDER / "partial"), state, **QUICK)
    assert 'tensor "w": is a partial sum' in str(failure_of(publisher.publish))


def shards_need_all_ranks() -> None:
    alone = dw.Publisher("memory:one")
    failure = failure_of(lambda: alone.publish({"w": shards_of(0)["rows"]}))
    assert 'tensor "w": is sharded, but this publisher has no group' in str(failure)


def quantised() -> None:
    """Shards of whole groups are quantised on their ranks."""
    torch.manual_seed(0)
    model = fully_shard(nn.Sequential(nn.Linear(64, 32, bias=False), nn.Linear(32, 16, bias=False)))
    publisher = dw.Publisher(str(FOLDER / "quantised"), model, quantize="int4-g32-asymmetric", **QUICK)
    assert publisher.publish().number == 0
    made = dict(quantize(whole(model.state_dict()), "int4-g32-asymmetric"))
    if RANK == 0:
        same(FOLDER / "quantised", made, 0)


def guide() -> None:
    """The code of docs/trainers.md for several ranks."""
    (FOLDER / "guide").mkdir(exist_ok=True)
    os.chdir(FOLDER / "guide")
    text = (Path(__file__).parents[2] / "docs/trainers.md").read_text()
    blocks = re.findall(r"^```python\n(# every rank\n.*?)^```", text, re.M | re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, {})


def main(cases: dict[str, Callable[[], None]]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in sys.argv[2:]:
        run = cases[case]
        started = time.monotonic()
        run()
        dist.barrier()
        if RANK == 0:
            print(f"passed: {case} {time.monotonic() - started:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(globals())
