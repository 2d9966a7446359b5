"""verl's own manager, worker groups and rollout workers over a local Ray, on the CPU: verl_cluster.py FOLDER.

The trainer's worker has a few tensors in place of a model, and the rollout's adapter keeps what an engine would load. Everything
between them is verl's.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import ray
import torch
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.import_utils import import_external_libs
from verl.workers.config import CheckpointEngineConfig, RolloutConfig
from verl.workers.rollout import BaseRollout


def digest(state: dict[str, torch.Tensor]) -> str:
    out = hashlib.sha256()
    for name in sorted(state):
        out.update(name.encode() + str(state[name].dtype).encode() + state[name].contiguous().view(torch.uint8).numpy().tobytes())
    return out.hexdigest()


class Actor(Worker):
    """The part of `ActorRolloutRefWorker` around its checkpoint engine."""

    def __init__(self, config: CheckpointEngineConfig) -> None:
        super().__init__()
        import_external_libs(config.custom_backend_module or None)
        self.checkpoint_engine = CheckpointEngineRegistry.new(
            config.backend, is_master=self.rank == 0, bucket_size=1 << 20, **config.engine_kwargs[config.backend]
        )
        generator = torch.Generator().manual_seed(1)
        self.state = {f"layers.{n}.weight": torch.randn(64, 32, generator=generator).bfloat16() for n in range(4)}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        return await self.checkpoint_engine.send_weights(iter(self.state.items()), global_steps=global_steps) or {}

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def step(self, number: int) -> str:
        self.state["layers.1.weight"][number, :7] += 1
        self.state["layers.2.weight"][0, number] = float("nan")
        return digest(self.state)


class Adapter(BaseRollout):
    """In place of an engine."""

    def __init__(self) -> None:
        self.state: dict[str, torch.Tensor] = {}

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    def generate_sequences(self, prompts: Any) -> Any:
        raise NotImplementedError

    async def update_weights(self, weights: Any, global_steps: int | None = None, **kwargs: Any) -> None:
        async for name, tensor in weights:
            self.state[name] = tensor.clone()


class Rollout(CheckpointEngineWorker):
    """verl's own worker, with that adapter."""

    def __init__(self, rollout_config: RolloutConfig) -> None:
        super().__init__(rollout_config, None, Adapter())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def held(self) -> str:
        return digest(self.server_adapter.state)


class Replica:
    """A server with nothing to abort."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers

    def __getattr__(self, name: str) -> Any:
        async def nothing(**kwargs: Any) -> None:
            pass

        return nothing


def group(kind: Any, count: int, **arguments: Any) -> RayWorkerGroup:
    pool = RayResourcePool(process_on_nodes=[count], use_gpu=False)
    made = RayClassWithInitArgs(cls=ray.remote(kind), **arguments)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu")


def main(folder: str) -> None:
    ray.init(num_cpus=64, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    config = CheckpointEngineConfig(
        backend="deltawire",
        custom_backend_module="deltawire.trainers.verl",
        engine_kwargs={"deltawire": {"store": f"{folder}/store", "local": f"{folder}/local", "yields": "changed", "timeout": 60}},
    )
    actors = group(Actor, 2, config=config)
    rollout = group(Rollout, 2, rollout_config=RolloutConfig(name="vllm", checkpoint_engine=config))
    manager = CheckpointEngineManager(config=config, actor_wg=actors, replicas=[Replica([worker]) for worker in rollout.workers])
    for step in range(3):
        sent = actors.step(step)[0]
        metrics = manager.update_weights(global_steps=step)  # it awaits itself
        equal = rollout.held() == [sent, sent]
        changed, size = metrics["checkpoint_engine/changed_ratio"], metrics["checkpoint_engine/payload_mbytes"]
        version = metrics["checkpoint_engine/version"]
        print(f"step {step}: version {version}, changed {changed:.4%}, {size:.6f} MB, both workers equal: {equal}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
