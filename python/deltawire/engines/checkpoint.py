"""Reads the host's local checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deltawire._internal.tensors import TORCH_NAMES
from deltawire.errors import Corruption, InvalidArgument, NotFound

_DTYPES = {name: getattr(torch, own) for name, own in TORCH_NAMES.items()}
DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True)
class Form:
    """A tensor's entry in a checkpoint."""

    dtype: torch.dtype
    dtype_name: str
    shape: tuple[int, ...]
    file: str
    begin: int  # byte in the file
    end: int


class LocalCheckpoint:
    """Reads a folder that a replica may be patching, so the caller must verify what it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.forms: dict[str, Form] = {}
        for file in _weights_files(folder):
            self.forms.update(_read_forms(folder, file))
        self.forms = dict(sorted(self.forms.items()))

    def read(self, name: str) -> torch.Tensor:
        """A tensor, copied."""
        form = self.forms[name]
        if form.begin == form.end:
            return torch.empty(form.shape, dtype=form.dtype)
        with (self.folder / form.file).open("rb") as file:
            file.seek(form.begin)
            contents = bytearray(form.end - form.begin)
            if file.readinto(contents) != len(contents):
                raise Corruption(f'{self.folder / form.file}, tensor "{name}": the file is truncated')
        return torch.frombuffer(contents, dtype=form.dtype).reshape(form.shape)

    def items(self, names: Any = None) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors (None: all), sorted by name, for `load_weights`."""
        for name in self.forms:
            if names is None or name in names:
                yield name, self.read(name)


def _weights_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            return sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"{index}: not the index of a checkpoint") from error
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    if not files:
        raise NotFound(f"{folder}: no weights; the host's replica has not pulled a version yet")
    if len(files) > 1:
        raise InvalidArgument(f"{folder}: several safetensors files and no index")
    return files


def _read_forms(folder: Path, name: str) -> Iterator[tuple[str, Form]]:
    path = folder / name
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _MAX_HEADER_BYTES:
            raise Corruption(f"{path}: not a safetensors file")
        try:
            header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            for tensor, entry in header.items():
                begin, end = entry["data_offsets"]
                dtype = _DTYPES.get(entry["dtype"])
                if dtype is None:
                    raise InvalidArgument(f'{path}, tensor "{tensor}": torch has no dtype {entry["dtype"]}')
                yield tensor, Form(dtype, entry["dtype"], tuple(entry["shape"]), name, 8 + size + begin, 8 + size + end)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"{path}: its header is damaged") from error
