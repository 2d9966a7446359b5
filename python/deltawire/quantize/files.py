"""Quantises checkpoints on disk."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from deltawire.errors import InvalidArgument, IoError, NotFound
from deltawire.quantize.like import INDEX, read_json, specs_of, weight_files
from deltawire.quantize.quantizer import Shard, quantizer_of


def quantize_checkpoint(
    checkpoint: str | os.PathLike[str],
    out: str | os.PathLike[str],
    spec: Any,
    *,
    rounded: str = "BF16",
    file_bytes: int = 5 << 30,
) -> dict[str, Any]:
    """Quantise `checkpoint` to the folder `out`, which appears when it is complete.

    config.json gets the `quantization_config`; other files beside the weights are copied. Memory: a tensor, its quantised form,
    and up to `file_bytes` of output.
    """
    source, target = Path(checkpoint), Path(out)
    if not source.exists():
        raise NotFound(f"{source}: no such file or folder")
    if target.exists():
        raise InvalidArgument(f"{target}: already exists")
    quantizer = quantizer_of(spec, rounded)
    config = dict(read_json(source / "config.json")) if (source / "config.json").exists() else {}
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}-") as scratch:
        folder = Path(scratch) / "made"
        folder.mkdir()
        writer = _Writer(folder, file_bytes)
        tensors = _Tensors(source)
        quantised: set[str] = set()
        for coded in quantizer.quantised(tensors):
            writer.put(coded.shard.name, coded.shard.tensor)
            if coded.sources and coded.shard.name not in tensors.files:
                quantised.update(coded.sources)
        files = writer.finish()
        _copy_beside(source, folder, {**config, "quantization_config": quantizer.config_for(tensors.files)})
        folder.rename(target)
    return {
        "tensors": len(tensors.files),
        "quantised": len(quantised),
        "from_bytes": tensors.num_bytes,
        "bytes": writer.num_bytes,
        "files": files,
    }


class _Tensors:
    """The tensors of a checkpoint, by name, from memory-mapped files."""

    def __init__(self, checkpoint: Path) -> None:
        self.files: dict[str, Path] = {}
        for file in weight_files(checkpoint):
            for name, _, _ in specs_of(file):
                if name in self.files:
                    raise InvalidArgument(f'tensor "{name}": is in both {self.files[name]} and {file}')
                self.files[name] = file
        self.num_bytes = 0

    def __iter__(self) -> Iterator[Shard]:
        for name in sorted(self.files):
            with safe_open(self.files[name], framework="pt") as file:
                tensor = file.get_tensor(name)
            self.num_bytes += tensor.nbytes
            yield Shard.whole(name, tensor)


class _Writer:
    """Safetensors files of about equal size, and their index."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder, self._file_bytes = folder, file_bytes
        self._held: dict[str, Any] = {}
        self._held_bytes = 0
        self._names: list[list[str]] = []
        self.num_bytes = 0

    def put(self, name: str, tensor: Any) -> None:
        if self._held and self._held_bytes + tensor.nbytes > self._file_bytes:
            self._write()
        self._held[name] = tensor.contiguous()
        self._held_bytes += tensor.nbytes
        self.num_bytes += tensor.nbytes

    def finish(self) -> int:
        """Write the rest and the index. Returns the number of files."""
        self._write()
        count = len(self._names)
        if count == 1:
            self._path(0).rename(self._folder / "model.safetensors")
            return 1
        weight_map: dict[str, str] = {}
        for number, names in enumerate(self._names):
            file = f"model-{number + 1:05}-of-{count:05}.safetensors"
            self._path(number).rename(self._folder / file)
            weight_map.update(dict.fromkeys(names, file))
        index = {"metadata": {"total_size": self.num_bytes}, "weight_map": dict(sorted(weight_map.items()))}
        (self._folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
        return count

    def _write(self) -> None:
        path = self._path(len(self._names))
        try:
            save_file(self._held, path, metadata={"format": "pt"})
        except (SafetensorError, OSError) as error:  # a full disk
            raise IoError(f"{self._folder.parent.parent}: cannot be written: {error}") from None
        self._names.append(list(self._held))
        self._held, self._held_bytes = {}, 0

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number}"


def _copy_beside(source: Path, folder: Path, config: Mapping[str, Any]) -> None:
    if source.is_file():
        return
    for file in sorted(source.iterdir()):
        if file.is_file() and file.suffix != ".safetensors" and file.name not in (INDEX, "config.json"):
            shutil.copyfile(file, folder / file.name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
