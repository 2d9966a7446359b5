"""An existing quantised checkpoint, as the model for others: its configuration and what its tensors are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltawire.errors import Corruption, InvalidArgument, NotFound

# Measured with data when the checkpoint was made; no weight says anything of them.
_CALIBRATED = (
    ".input_scale",
    ".input_global_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".k_proj.output_scale",
    ".v_proj.output_scale",
)


@dataclass(frozen=True)
class Spec:
    """Dtype, a name of the safetensors format, and shape of a tensor, and the file that has it."""

    dtype: str
    shape: tuple[int, ...]
    file: Path


@dataclass(frozen=True)
class Like:
    """A checkpoint's folder."""

    folder: Path
    config: Mapping[str, Any]
    """Its `quantization_config`."""
    tensors: Mapping[str, Spec]

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Like:
        """`NotFound` where there is no configuration of a quantised checkpoint, or no weights."""
        path = Path(folder)
        tensors: dict[str, Spec] = {}
        for file in weight_files(path):
            tensors.update((name, Spec(dtype, shape, file)) for name, dtype, shape in specs_of(file))
        return Like(path, quantization_config(path), tensors)

    def calibrated(self) -> Iterator[tuple[str, Any]]:
        """Scales of activations: constants that a checkpoint brings along."""
        for name in sorted(self.tensors):
            if name.endswith(_CALIBRATED):
                yield name, self.read(name)

    def read(self, name: str) -> Any:
        """A tensor's bytes, as torch has them."""
        from safetensors import safe_open

        with safe_open(self.tensors[name].file, framework="pt") as file:
            return file.get_tensor(name)


def quantization_config(folder: Path) -> Mapping[str, Any]:
    """As config.json has it, or ModelOpt's own file."""
    config = read_json(folder / "config.json")
    inner = config.get("text_config")
    found = config.get("quantization_config") or (inner or {}).get("quantization_config")
    if found is None and (folder / "hf_quant_config.json").exists():
        found = {"quant_method": "modelopt", **read_json(folder / "hf_quant_config.json")}
    if not isinstance(found, Mapping):
        raise NotFound(f"{folder}: config.json has no quantization_config, nor is there a hf_quant_config.json")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: a folder, or one file."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotFound(f"{folder}: holds no safetensors files")
    return files


def specs_of(file: Path) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Names, dtypes and shapes, from a file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118, it is no dict
                part = opened.get_slice(name)
                yield name, part.get_dtype(), tuple(part.get_shape())
    except SafetensorError as error:
        raise Corruption(f"{file}: {error}") from None


def read_json(file: Path) -> Mapping[str, Any]:
    """An object; `NotFound` or `InvalidArgument` with the file's name."""
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file") from None
    except ValueError as error:
        raise InvalidArgument(f"{file}: is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{file}: is no JSON object")
    return value
