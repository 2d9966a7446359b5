"""An existing quantised checkpoint as a template: its configuration, and the dtypes and shapes of its tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from deltawire.errors import Corruption, InvalidArgument, NotFound

INDEX = "model.safetensors.index.json"

# Scales measured with data; they cannot be computed from weights.
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
    """Safetensors dtype, shape and file of a tensor."""

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
    calibrated: Mapping[str, Any]
    """Scales of activations: small constants that are copied from the checkpoint."""
    stamps: Mapping[Path, tuple[int, ...]]
    """Inode, size and time of each file when it was opened."""

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Like:
        """`NotFound`: no quantization_config, or no weights."""
        path = Path(folder)
        tensors: dict[str, Spec] = {}
        calibrated: dict[str, Any] = {}
        stamps: dict[Path, tuple[int, ...]] = {}
        for file in weight_files(path):
            stamps[file] = _stamp(file)
            found = {name: Spec(dtype, shape, file) for name, dtype, shape in specs_of(file)}
            tensors |= found
            calibrated |= read_tensors(file, [name for name in found if name.endswith(_CALIBRATED)])
        return Like(path, quantization_config(path), tensors, dict(sorted(calibrated.items())), stamps)

    @property
    def is_head_tied(self) -> bool:
        """Whether engines use the embedding as the head."""
        config = read_json(self.folder / "config.json")
        inner = config.get("text_config")
        inner = inner if isinstance(inner, Mapping) else {}
        return bool(config.get("tie_word_embeddings", inner.get("tie_word_embeddings")))

    def read(self, name: str) -> Any:
        """A tensor, as torch has it; `InvalidArgument` if the file has changed since it was opened."""
        file = self.tensors[name].file
        if _stamp(file) != self.stamps[file]:
            raise InvalidArgument(f'tensor "{name}": {file} has changed since the publisher opened it; open a new publisher')
        return read_tensors(file, [name])[name]


def quantization_config(folder: Path) -> Mapping[str, Any]:
    """From config.json, or from ModelOpt's hf_quant_config.json."""
    config = read_json(folder / "config.json")
    inner = config.get("text_config") or {}
    if not isinstance(inner, Mapping):
        raise InvalidArgument(f"{folder / 'config.json'}: text_config is not an object")
    found = config.get("quantization_config") or inner.get("quantization_config")
    if found is None and (folder / "hf_quant_config.json").exists():
        found = {"quant_method": "modelopt", **read_json(folder / "hf_quant_config.json")}
    if not isinstance(found, Mapping):
        raise NotFound(f"{folder}: no quantization_config in config.json, and no hf_quant_config.json")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: a single file, those in the index, or all in the folder."""
    if folder.is_file():
        return [folder]
    files = _indexed(folder / INDEX) if (folder / INDEX).exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotFound(f"{folder}: no safetensors files")
    return files


def _indexed(index: Path) -> list[Path]:
    named = read_json(index).get("weight_map")
    if not isinstance(named, Mapping) or not all(isinstance(file, str) for file in named.values()):
        raise InvalidArgument(f"{index}: has no weight_map of tensor names to file names")
    return [index.parent / file for file in sorted(set(named.values()))]


def specs_of(file: Path) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Names, dtypes and shapes, from a file's header."""
    with opened(file) as header:
        for name in header.keys():  # noqa: SIM118
            part = header.get_slice(name)
            yield name, part.get_dtype(), tuple(part.get_shape())


def read_tensors(file: Path, names: Iterable[str]) -> dict[str, Any]:
    """Copies of a file's tensors: they stay the same when the file changes."""
    with opened(file) as tensors:
        return {name: tensors.get_tensor(name).clone() for name in names}


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """A safetensors file. `NotFound` or `Corruption` with the file's name."""
    try:
        with safe_open(file, framework="pt") as found:
            yield found
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file") from None
    except SafetensorError as error:
        raise Corruption(f"{file}: {error}") from None


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        known = file.stat()
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file") from None
    return known.st_ino, known.st_size, known.st_mtime_ns


def read_json(file: Path) -> Mapping[str, Any]:
    """A JSON object; `NotFound` or `InvalidArgument` with the file's name."""
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{file}: is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{file}: is not a JSON object")
    return value
