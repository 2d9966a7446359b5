"""Tensors on a GPU: left there where the library has CUDA, fetched where it has not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from deltawire import _core


def in_reach(tensor: Any, cast: str | None, on_host: bool) -> Any:
    """The tensor where the library can read it; on the host, or if it must be, a copy."""
    if not tensor.is_cuda:
        return tensor
    if on_host or not _has_cuda() or tensor.device.index != torch.cuda.current_device():
        return tensor.cpu()
    if cast is None or not tensor.is_floating_point() or _rounds_there(tensor, cast):
        return tensor
    return tensor.to({"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}[cast])


@cache
def _has_cuda() -> bool:
    return _core.has_cuda()


def _rounds_there(tensor: Any, cast: str) -> bool:
    """What the library converts on its way."""
    return cast == "BF16" and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def stream_of(source: Any) -> int:
    """The stream that work on a model goes to now, as a number; 0 where nothing of it is on a GPU."""
    if isinstance(source, torch.nn.Module):
        values: Any = source.parameters()
    else:
        values = source.values() if isinstance(source, Mapping) else ()
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
        return int(torch.cuda.current_stream().cuda_stream)
    return 0


def wait_for_current_stream(stream: int) -> None:
    """Let what was asked for on another stream than the publisher's come to its end."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        current = torch.cuda.current_stream()
        if current.cuda_stream != stream:
            current.synchronize()
