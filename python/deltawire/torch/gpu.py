"""Tensors on a GPU: used there if the library has CUDA, otherwise copied to the host.

A publisher or replica uses one GPU: that of the first GPU tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch

from deltawire import _core
from deltawire._internal.tensors import TORCH_NAMES
from deltawire.errors import InvalidArgument


def in_reach(tensor: Any, cast: str | None, on_host: bool, gpu: int | None) -> Any:
    """The tensor, or a copy that the library can read."""
    if not tensor.is_cuda:
        return tensor
    if not stays_there(tensor.device, on_host, gpu):
        return tensor.cpu()
    if cast is None or not tensor.is_floating_point() or _rounds_there(tensor, cast):
        return tensor
    return tensor.to(getattr(torch, TORCH_NAMES[cast]))


def stays_there(device: Any, on_host: bool, gpu: int | None) -> bool:
    """Whether the library reads tensors of this device in place, on the GPU."""
    return device.type == "cuda" and not on_host and _has_cuda() and device.index == gpu


@cache
def _has_cuda() -> bool:
    return _core.has_cuda()


def _rounds_there(tensor: Any, cast: str) -> bool:
    """Whether the library itself casts the tensor."""
    return cast == "BF16" and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def gpu_of(values: Iterable[Any]) -> int | None:
    """The GPU of the first GPU tensor, if any."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return int(value.device.index)
    return None


def values_of(source: Any) -> Iterable[Any]:
    """The tensors of a module or mapping; empty for pairs and callables, which are read later."""
    if isinstance(source, torch.nn.Module):
        parameters: Iterable[Any] = source.parameters()
        return parameters
    return source.values() if isinstance(source, Mapping) else ()


def stream_of(gpu: int | None) -> int:
    """The current CUDA stream of a GPU, as a number; 0 without a GPU."""
    return 0 if gpu is None else int(torch.cuda.current_stream(gpu).cuda_stream)


def count_write(values: Iterable[Any]) -> None:
    """Tell autograd that the tensors were modified in place."""
    tensors = [value for value in values if isinstance(value, torch.Tensor) and not value.is_inference()]
    torch.autograd.graph.increment_version(tensors)


def wait_for_current_stream(gpu: int | None, stream: int) -> None:
    """Wait for pending work on the current stream, unless it is the publisher's."""
    if gpu is None:
        return
    current = torch.cuda.current_stream(gpu)
    if current.cuda_stream != stream:
        current.synchronize()


def refuse_several_gpus(pairs: Iterable[tuple[str, Any]]) -> None:
    """A replica writes to a single GPU."""
    first = None
    for name, value in pairs:
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            continue
        if first is None:
            first = name, value.device
        elif value.device != first[1]:
            raise InvalidArgument(
                f'tensor "{name}" is on {value.device} and "{first[0]}" on {first[1]}: a replica writes to one GPU; '
                "use a separate replica for each GPU"
            )
