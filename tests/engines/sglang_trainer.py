"""A model and its chain for tests of SGLang, and the outputs of a server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import deltawire as dw

sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "tests" / "engines"))
from engine_models import changed
from servers import SglangServer
from trainers import make_model

PROGRAM = Path(dw.__file__).parent / "bin" / "deltawire"
NUM_TENSORS = 3 + 2 * 11  # of the model that make_model() makes


class Trainer:
    """Publishes a tiny model, and keeps the checkpoint of each version for servers that start from it.

    Servers see another folder: what is published gets there by `deliver`, damaged if a test wants it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._own, self.store = folder, folder / "trainer", folder / "store"
        model = make_model(folder / "model", dtype=torch.bfloat16)
        self.tensors = _read(model / "model.safetensors")
        for name in ("key", "other"):
            subprocess.run([PROGRAM, "keygen", "-o", folder / name], check=True, capture_output=True)
        self._publisher: dw.Publisher | None = None
        self._extra = [path for path in model.iterdir() if path.suffix == ".json"]
        self.version = -1
        self.publish()

    def publish(self, *, share: float = 0.02, damaged: bool = False) -> int:
        """Publish a step of training."""
        if self._publisher is None:
            self._publisher = dw.Publisher(str(self._own), self.tensors, keys=dw.Keys(sign=self.folder / "key"))
            self.version = self._publisher.publish(extra_files=self._extra).number
        else:
            self.tensors |= changed(self.tensors, seed=self.version + 1, share=share)
            self.version = self._publisher.publish(self.tensors).number
        self.deliver(damaged=damaged)
        return self.version

    def forge(self) -> int:
        """Add a next version signed with another key. The trainer's own next version replaces it."""
        forged = self.folder / "forged"
        shutil.copytree(self._own, forged)
        with dw.Publisher(str(forged), self.tensors, keys=dw.Keys(sign=self.folder / "other", change=True)) as publisher:
            version = publisher.publish(changed(self.tensors, seed=99)).number
        self.deliver(forged)
        return version

    def deliver(self, source: Path | None = None, *, damaged: bool = False) -> None:
        """Copy all new or changed objects, HEAD last, in the order of a publisher."""
        source = source or self._own
        files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        order = {"manifests": 1, "HEAD": 2}
        for path in sorted(files, key=lambda path: order.get(path.parts[0], 0)):
            body, target = (source / path).read_bytes(), self.store / path
            if damaged and path.parts[0] == "parts" and path.parts[1].startswith(f"{self.version:010}"):
                body = body[:-64] + bytes(byte ^ 255 for byte in body[-64:])
            if target.exists() and target.read_bytes() == body:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            whole = target.with_name(target.name + ".new")
            whole.write_bytes(body)
            whole.replace(target)

    def checkpoint(self) -> Path:
        """The checkpoint that the trainer would save now."""
        folder = self.folder / f"checkpoint-{self.version}"
        if not folder.exists():
            folder.mkdir()
            for path in self._extra:
                shutil.copy(path, folder)
            _write(folder / "model.safetensors", self.tensors)
        return folder


def outputs(server: SglangServer) -> list[Any]:
    """Outputs that differ between versions: tokens and logprobs, without cached prefixes."""
    server.post("/flush_cache")
    answers = [server.generate([10 + prompt * 7 + step for step in range(9)], 10) for prompt in range(4)]
    return [(answer["output_ids"], [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]) for answer in answers]


def _read(path: Path) -> dict[str, torch.Tensor]:
    from deltawire.engines.checkpoint import LocalCheckpoint

    return dict(LocalCheckpoint(path.parent).items())


def _write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    header, offset, bodies = {}, 0, []
    for name, tensor in tensors.items():
        body = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        assert tensor.dtype == torch.bfloat16
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(body)]}
        offset += len(body)
        bodies.append(body)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(bodies))
