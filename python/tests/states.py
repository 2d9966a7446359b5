"""States of models in numpy, with one array of each dtype."""

import ml_dtypes
import numpy as np

import deltawire as dw

# The safetensors name and the array type of numpy or ml_dtypes.
ARRAY_DTYPES = {"BOOL": np.bool_, "F16": np.float16, "F32": np.float32, "F64": np.float64, "C64": np.complex64}
ARRAY_DTYPES |= {f"I{bits}": getattr(np, f"int{bits}") for bits in (8, 16, 32, 64)}
ARRAY_DTYPES |= {f"U{bits}": getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)}
ARRAY_DTYPES |= {"BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn}
ARRAY_DTYPES |= {"F8_E8M0": ml_dtypes.float8_e8m0fnu}

# Types without an array type: given as bytes.
BYTE_DTYPES = ("F4", "F6_E2M3", "F6_E3M2")


def random_array(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Arbitrary bits: NaNs with payloads, infinities, both zeros."""
    kind = np.dtype(ARRAY_DTYPES[dtype])
    if dtype == "BOOL":
        return random.integers(0, 2, shape).astype(np.bool_)
    count = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(bytearray(random.bytes(count)), kind).reshape(shape)


def bits(state: dict[str, object]) -> dict[str, bytes]:
    """The bytes of a state."""
    arrays = {name: value.array if isinstance(value, dw.Tensor) else value for name, value in state.items()}
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}


def blank(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Empty arrays for a replica of a state."""
    return {name: np.zeros_like(array) for name, array in state.items()}
