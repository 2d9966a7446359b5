"""Stands in for sgl_kernel, whose build for the CPU is published for no architecture that tests run on.

SGLang falls back to plain torch for all that a Qwen3 needs but the binding of threads and the collectives in shared memory.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.distributed as dist


def _group() -> Any:
    from sglang.srt.distributed.parallel_state import get_tp_group

    return get_tp_group().cpu_group


def init_cpu_threads_env(cpu_ids: str) -> str:
    return ""


def initialize(size: int, rank: int) -> None:
    pass


def shm_allreduce(tensor: torch.Tensor, op: Any) -> None:
    dist.all_reduce(tensor, group=_group())


def shm_allgather(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    group, own = _group(), tensor.contiguous()
    parts = [torch.empty_like(own) for _ in range(group.size())]
    dist.all_gather(parts, own, group=group)
    return torch.cat(parts, dim)


for _function in (init_cpu_threads_env, initialize, shm_allreduce, shm_allgather):
    setattr(torch.ops.sgl_kernel, _function.__name__, _function)


def __getattr__(name: str) -> Any:
    """Others are imported by name and not called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"the stand-in for sgl_kernel has no {name}")

    return missing
