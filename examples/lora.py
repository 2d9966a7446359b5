#!/usr/bin/env python3
"""Adapters (LoRA) can be published in two ways, shown side by side.

On their own: a run whose tensors are the adapters, under the names that PEFT gives them, for engines that load adapters. It is
small, and every weight of it changes in every step. Or merged: a callable adds them to the frozen weights each time, and
replicas hold a plain checkpoint that every engine serves; of a frozen weight only what the adapter changed in bfloat16 travels.

    lora.py [--short]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

import deltawire as dw


class LoraLinear(nn.Module):
    """A frozen matrix, and a trained low-rank one."""

    def __init__(self, width: int, rank: int = 8, scale: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) * width**-0.5, requires_grad=False)
        self.lora_A = nn.Parameter(torch.randn(rank, width) * width**-0.5)
        self.lora_B = nn.Parameter(torch.zeros(width, rank))
        self.scale = scale

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """As if merged."""
        return inputs @ self.weight.T + self.scale * (inputs @ self.lora_A.T) @ self.lora_B.T

    def merged(self) -> torch.Tensor:
        """The weight for an engine without adapters."""
        return self.weight + self.scale * self.lora_B @ self.lora_A


def adapters(model: nn.Sequential) -> dict[str, torch.Tensor]:
    """The trained tensors, under PEFT's names."""
    return {
        f"base_model.model.model.layers.{index}.mlp.up_proj.{half}.weight": getattr(layer, half)
        for index, layer in enumerate(model)
        for half in ("lora_A", "lora_B")
    }


@torch.no_grad()
def merged(model: nn.Sequential) -> dict[str, torch.Tensor]:
    """A plain checkpoint, in bfloat16."""
    return {f"model.layers.{index}.mlp.up_proj.weight": layer.merged().bfloat16() for index, layer in enumerate(model)}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, for comparisons that distinguish both zeros and every NaN."""
    return tensor.detach().contiguous().view(torch.uint8)


def main() -> None:
    """Train a little, publish both ways, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a smaller model")
    width = 64 if parser.parse_args().short else 512
    torch.manual_seed(1)
    model = nn.Sequential(*(LoraLinear(width) for _ in range(4)))
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-4)
    with tempfile.TemporaryDirectory() as work:
        store = Path(work)
        with (
            dw.Publisher(store / "adapters", lambda: adapters(model)) as alone,
            dw.Publisher(store / "merged", lambda: merged(model)) as whole,
        ):
            for step in range(5):
                print(f"step {step}\n  adapters  {alone.publish()}\n  merged    {whole.publish()}")
                inputs = torch.randn(32, width)
                loss = (model(inputs) - inputs.roll(1, dims=1)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            alone.publish(), whole.publish()

        for name, wanted in ("adapters", adapters(model)), ("merged", merged(model)):
            held = {key: torch.empty_like(tensor) for key, tensor in wanted.items()}
            pulled = dw.TensorReplica(store / name, held).pull()
            assert all(torch.equal(bits(held[key]), bits(tensor)) for key, tensor in wanted.items())
            print(f"{name}: {pulled}, equal bit for bit")


if __name__ == "__main__":
    main()
