"""Arrays of any framework as tensors of the library, without a copy.

What may be handed over: numpy arrays (with `ml_dtypes` for bfloat16 and float8), torch tensors in host memory, anything with
DLPack or the buffer protocol, and `Tensor` for bytes whose dtype their array does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltawire import _core
from deltawire.errors import InvalidArgument, Unsupported


@dataclass(frozen=True)
class Tensor:
    """An array whose bytes are to be read as another dtype, or which is a box of a larger tensor.

    `dtype` is a name of the safetensors format. `offset` places the array inside a tensor of `shape`: what one rank of a
    sharded trainer holds.

    >>> import numpy as np, deltawire as dw
    >>> bits = np.array([[0x3F80, 0x4000]], np.uint16)            # 1.0 and 2.0 in bfloat16
    >>> dw.diff({"w": dw.Tensor(bits, "BF16")}, {"w": dw.Tensor(bits + 1, "BF16")})
    Delta(1 tensor, 2 of 2 elements changed (100.000 %), 4 B)
      w  BF16 [1, 2]  2 changed (100.000 %)  4 B  raw
    """

    array: Any
    dtype: str | None = None
    shape: Sequence[int] | None = None
    offset: Sequence[int] | None = None


Named = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""A model: names and arrays."""

Source = Named | Callable[[], Named]
"""A model, or what gives one whenever it is called."""

# Names that numpy (with ml_dtypes) and torch have for dtypes which DLPack or the buffer protocol may not carry.
_BYTE_DTYPES = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}


def named_tensors(source: Source) -> Iterable[tuple[str, Any]]:
    """The pairs of a model, whatever form it has."""
    if callable(source):
        source = source()
    return source.items() if isinstance(source, Mapping) else source


def readable(source: Source) -> list[_core.Tensor]:
    """For publishing: an array whose elements are apart is copied."""
    return [_wrap(name, value, _core.readable, copy=True) for name, value in named_tensors(source)]


def writable(source: Source) -> list[_core.Tensor]:
    """For patching in place: an array whose elements are apart is refused."""
    return [_wrap(name, value, _core.writable, copy=False) for name, value in named_tensors(source)]


def _wrap(name: str, value: Any, make: Callable[..., _core.Tensor], copy: bool) -> _core.Tensor:
    declared = value if isinstance(value, Tensor) else Tensor(value)
    array, dtype = _bytes_of(name, declared.array, copy)
    shape = None if declared.shape is None else list(declared.shape)
    offset = None if declared.offset is None else list(declared.offset)
    try:
        return make(name, array, declared.dtype or dtype, shape, offset)
    except TypeError:
        what = f'tensor "{name}": {type(value).__module__}.{type(value).__qualname__}'
        if make is _core.writable and _is_readable(name, array, declared.dtype or dtype):
            raise InvalidArgument(f"{what} cannot be written") from None
        raise InvalidArgument(f"{what} is no array: it has neither DLPack nor the buffer protocol") from None


def _is_readable(name: str, array: Any, dtype: str | None) -> bool:
    try:
        _core.readable(name, array, dtype)
    except TypeError:
        return False
    return True


def _bytes_of(name: str, array: Any, copy: bool) -> tuple[Any, str | None]:
    """The array in a form that the extension takes, and the dtype of its bytes where it does not say."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_bytes(torch, name, array, copy)
    if numpy is not None and isinstance(array, numpy.ndarray | numpy.generic):
        return _numpy_bytes(numpy, array, copy)
    return array, None


def _numpy_bytes(numpy: Any, array: Any, copy: bool) -> tuple[Any, str | None]:
    # Not ascontiguousarray, which makes a vector of a scalar.
    array = numpy.asarray(array, order="C" if copy else None)
    dtype = _BYTE_DTYPES.get(array.dtype.name)
    if dtype is None or not array.flags.c_contiguous:
        return array, dtype
    return array.view(f"u{array.dtype.itemsize}"), dtype


def _torch_bytes(torch: Any, name: str, tensor: Any, copy: bool) -> tuple[Any, str | None]:
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise Unsupported(f'tensor "{name}": is on {tensor.device}, not in host memory')
    if tensor.layout != torch.strided:
        raise Unsupported(f'tensor "{name}": is {str(tensor.layout).removeprefix("torch.")}, not strided')
    if copy:
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
    elif tensor.is_conj() or tensor.is_neg():
        raise InvalidArgument(f'tensor "{name}": is a lazily negated or conjugated view')
    dtype = _BYTE_DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None or dtype == "BF16" or not tensor.is_contiguous():
        return tensor, None
    return tensor.view(torch.uint8), dtype
