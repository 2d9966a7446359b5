"""A trainer whose engines serve quantised checkpoints, and the checkpoint of each version for fresh servers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from trainers import make_model

import deltawire as dw
from deltawire.quantize.files import quantize_checkpoint

INT8 = "int8, made elsewhere"
"""Not written by deltawire's quantiser: `publish_checkpoint` accepts the output of any tool."""

# CPU kernels need multiples of 64 or 128 rows and columns, also after q, k and v are split.
SHAPE = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64)
EXPERTS = dict(moe_intermediate_size=256)


class QuantisedTrainer:
    """Trains in BF16, and publishes the contents of a checkpoint in the format."""

    def __init__(self, folder: Path, format: str, kind: str = "qwen3") -> None:
        self.folder, self.format, self.store, self.version = folder, format, str(folder / "store"), 0
        self._own = make_model(folder / "bf16", kind, dtype=torch.bfloat16, **SHAPE, **(EXPERTS if "moe" in kind else {}))
        self.weights = load_file(self._own / "model.safetensors")
        options = {} if format == INT8 else {"quantize": format}
        self._publisher = dw.Publisher(self.store, self.weights, **options)
        self._publisher.publish_checkpoint(self.checkpoint())
        with dw.Replica(self.store, folder / "local") as replica:
            replica.pull()

    def step(self, names: str = "") -> int:
        """Change weights so much that many codes and a scale of each module change."""
        generator = torch.Generator().manual_seed(1000 + self.version)
        for name, tensor in self.weights.items():
            if names in name:
                tensor += (torch.randn(tensor.shape, generator=generator) * 0.004).to(tensor.dtype)
                tensor.flatten()[:: tensor.numel() // 7] *= 1.25
        save_file(self.weights, self._own / "model.safetensors", metadata={"format": "pt"})
        if self.format == INT8:
            self.version += 1
            return self._publisher.publish_checkpoint(self.checkpoint()).number
        self.version = self._publisher.publish(self.weights).number
        return self.version

    def publish_damaged(self, scale: str) -> int:
        """A version written by a broken tool: one scale is NaN."""
        damaged = self.folder / "damaged"
        shutil.copytree(self.checkpoint(), damaged)
        tensors = load_file(damaged / "model.safetensors")
        (name,) = [name for name in tensors if scale in name]
        tensors[name].view(-1)[0] = float("nan")
        save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
        self.version = self._publisher.publish_checkpoint(damaged).number
        return self.version

    def checkpoint(self) -> Path:
        """The checkpoint for a server that starts at this version."""
        folder = self.folder / f"checkpoint-{self.version}"
        if not folder.exists() and self.format == INT8:
            _write_int8(self._own, folder)
        elif not folder.exists():
            quantize_checkpoint(self._own, folder, self.format)
        return folder

    def close(self) -> None:
        self._publisher.close()


def _write_int8(source: Path, folder: Path) -> None:
    """INT8 weights by channel, activations by token: compressed-tensors' `int-quantized`."""
    shutil.copytree(source, folder)
    made: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            scale = tensor.float().abs().amax(1, keepdim=True) / 127
            made |= {name: torch.round(tensor.float() / scale).to(torch.int8), f"{name}_scale": scale}
        else:
            made[name] = tensor
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    eight = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": eight | {"strategy": "channel", "dynamic": False},
        "input_activations": eight | {"strategy": "token", "dynamic": True},
    }
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"], "config_groups": {"group_0": group},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
