"""Tensors on a GPU: left there where the library has CUDA, fetched where it has not.

A publisher and a replica work on one GPU each: that of the first tensor that is on one.
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
    """The tensor where the library can read it; on the host, or if it must be, a copy there."""
    if not tensor.is_cuda:
        return tensor
    if not stays_there(tensor.device, on_host, gpu):
        return tensor.cpu()
    if cast is None or not tensor.is_floating_point() or _rounds_there(tensor, cast):
        return tensor
    return tensor.to(getattr(torch, TORCH_NAMES[cast]))


def stays_there(device: Any, on_host: bool, gpu: int | None) -> bool:
    """Whether tensors of this device are on a GPU that the library reads them from."""
    return device.type == "cuda" and not on_host and _has_cuda() and device.index == gpu


@cache
def _has_cuda() -> bool:
    return _core.has_cuda()


def _rounds_there(tensor: Any, cast: str) -> bool:
    """What the library converts on its way."""
    return cast == "BF16" and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def gpu_of(values: Iterable[Any]) -> int | None:
    """The GPU of the first tensor that is on one, whatever GPU is current."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return int(value.device.index)
    return None


def values_of(source: Any) -> Iterable[Any]:
    """The tensors of a model that has them at hand: none of pairs and of callables, which are asked later."""
    if isinstance(source, torch.nn.Module):
        parameters: Iterable[Any] = source.parameters()
        return parameters
    return source.values() if isinstance(source, Mapping) else ()


def stream_of(gpu: int | None) -> int:
    """The stream that work on a GPU goes to now, as a number; 0 where there is none."""
    return 0 if gpu is None else int(torch.cuda.current_stream(gpu).cuda_stream)


def count_write(values: Iterable[Any]) -> None:
    """Count one write in place, for autograd."""
    tensors = [value for value in values if isinstance(value, torch.Tensor) and not value.is_inference()]
    torch.autograd.graph.increment_version(tensors)


def wait_for_current_stream(gpu: int | None, stream: int) -> None:
    """Let what was asked for on another stream than the publisher's come to its end."""
    if gpu is None:
        return
    current = torch.cuda.current_stream(gpu)
    if current.cuda_stream != stream:
        current.synchronize()


def refuse_several_gpus(pairs: Iterable[tuple[str, Any]]) -> None:
    """A replica writes to the memory of one."""
    first = None
    for name, value in pairs:
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            continue
        if first is None:
            first = name, value.device
        elif value.device != first[1]:
            raise InvalidArgument(
                f'tensor "{name}" is on {value.device} and "{first[0]}" on {first[1]}: a replica writes to one GPU; '
                "give the tensors of each GPU to a replica of its own"
            )
