"""Arrays of any framework as tensors of the library, without a copy.

Supported: numpy arrays (with `ml_dtypes` for bfloat16 and float8), torch tensors, anything with DLPack or the buffer protocol,
and `Tensor` for bytes whose dtype the array cannot express.
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
    """An array with a description.

    `dtype`: read its bytes as this safetensors dtype. `shape`, `offset`: it is the part at `offset` of a tensor of `shape`.
    `cast`: publish it in this dtype.

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
    cast: str | None = None


Named = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Names and arrays."""

Source = Named | Callable[[], Named]
"""Names and arrays, or a function that returns them."""

# Dtypes that DLPack or the buffer protocol may not support, by their names in numpy (with ml_dtypes) and torch.
_BYTE_DTYPES = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}

TORCH_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
"""Dtypes of torch by their safetensors names."""


def named_tensors(source: Source) -> Iterable[tuple[str, Any]]:
    """The names and arrays of a model in any form."""
    if callable(source):
        source = source()
    if isinstance(source, Mapping):
        return source.items()
    if hasattr(source, "dtype") or isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
        raise InvalidArgument(f"a model must be a dict of arrays, or (name, array) pairs, not {kind_of(source)}")
    return map(check_pair, source)


def check_pair(item: Any) -> tuple[str, Any]:
    """Check that the item is a (name, array) pair."""
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    raise InvalidArgument(
        f"a model must be a dict of arrays, or (name, array) pairs; it contains a {kind_of(item)}; "
        "pass the model itself, or dict(model.named_parameters())"
    )


def readable(source: Source) -> list[_core.Tensor]:
    """For publishing; copies non-contiguous arrays."""
    return [_readable(name, _declared(value)) for name, value in named_tensors(source)]


def writable(source: Source) -> list[_core.Tensor]:
    """For patching in place; refuses non-contiguous arrays."""
    return [_writable(name, _declared(value)) for name, value in named_tensors(source)]


def kind_of(value: Any) -> str:
    """The type of a value, for messages."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _declared(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(value)


def _readable(name: str, tensor: Tensor) -> _core.Tensor:
    array, dtype = _bytes_of(name, tensor.array, copy=True)
    try:
        return _core.readable(name, array, tensor.dtype or dtype, _list(tensor.shape), _list(tensor.offset), tensor.cast)
    except TypeError:
        raise _no_array(name, tensor) from None


def _writable(name: str, tensor: Tensor) -> _core.Tensor:
    if tensor.cast is not None:
        raise InvalidArgument(f"{_place(name, tensor)} is patched in place and cannot be cast")
    array, dtype = _bytes_of(name, tensor.array, copy=False)
    try:
        return _core.writable(name, array, tensor.dtype or dtype, _list(tensor.shape), _list(tensor.offset))
    except TypeError:
        _readable(name, tensor)  # raises if it is not an array
        raise InvalidArgument(f"{_place(name, tensor)} is not writable") from None


def _place(name: str, tensor: Tensor) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"names of tensors must be str, not {kind_of(name)}: {name!r}") from None
    return f'tensor "{name}": {kind_of(tensor.array)}'


def _no_array(name: str, tensor: Tensor) -> InvalidArgument:
    place, dtype = _place(name, tensor), getattr(tensor.array, "dtype", None)
    if dtype is not None:
        return InvalidArgument(f"{place} has dtype {dtype}, which safetensors does not support")
    return InvalidArgument(f"{place} is not an array: it supports neither DLPack nor the buffer protocol")


def _list(numbers: Sequence[int] | None) -> list[int] | None:
    return None if numbers is None else list(numbers)


def _bytes_of(name: str, array: Any, copy: bool) -> tuple[Any, str | None]:
    """The array in a form that the extension accepts, and its dtype if the array cannot express it."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_bytes(torch, name, array, copy)
    if numpy is not None and isinstance(array, numpy.ndarray | numpy.generic):
        return _numpy_bytes(numpy, array, copy)
    return array, None


def _numpy_bytes(numpy: Any, array: Any, copy: bool) -> tuple[Any, str | None]:
    # Not ascontiguousarray, which turns a scalar into a vector.
    array = numpy.asarray(array, order="C" if copy else None)
    dtype = _BYTE_DTYPES.get(array.dtype.name)
    if dtype is None or not array.flags.c_contiguous:
        return array, dtype
    return array.view(f"u{array.dtype.itemsize}"), dtype


def _torch_bytes(torch: Any, name: str, tensor: Any, copy: bool) -> tuple[Any, str | None]:
    tensor = tensor.detach()
    if tensor.device.type not in ("cpu", "cuda"):
        raise Unsupported(f'tensor "{name}": is on {tensor.device}, not in host memory or on a CUDA device')
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
