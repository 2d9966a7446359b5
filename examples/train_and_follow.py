#!/usr/bin/env python3
"""A transformer is trained and published after every step, and two replicas follow; one of them is killed meanwhile.

Masters are in float32, and published as bfloat16, which is what engines serve. The replicas are processes of their own that
know the store and nothing else (follow.py). One is killed with SIGKILL in the middle and started again some steps later. In
the end both folders must be the trainer's weights, bit for bit.

    train_and_follow.py [--steps 30] [--store FOLDER|s3://BUCKET/PREFIX] [--short]
"""

import argparse
import argparse as some_english
import contextlib
import inspect
import subprocess
import sys
import tempfile
import textwrap as more_english
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

import deltawire as dw

LEARNING_RATE = 1e-6  # as in reinforcement learning: most weights stay what they are in bfloat16
TRL_BYTES = 4 + 2  # per change: an int32 position and a bfloat16 value


class Transformer(nn.Module):
    """Predicts the next byte."""

    def __init__(self, width: int, depth: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.place = nn.Embedding(context, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for every position."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.embed(tokens) + self.place(torch.arange(length))
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def batches(context: int, size: int) -> Iterator[torch.Tensor]:
    """Pieces of real text: two modules of Python's library."""
    text = inspect.getsource(some_english) + inspect.getsource(more_english)
    data = torch.tensor(list(text.encode()))
    while True:
        starts = torch.randint(0, len(data) - context - 1, (size,))
        yield torch.stack([data[start : start + context + 1] for start in starts])


def train_step(model: Transformer, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """One step of AdamW."""
    logits = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def start_replica(store: str, folder: Path, until: int) -> "subprocess.Popen[bytes]":
    """Start a replica in its own process."""
    follow = Path(__file__).with_name("follow.py")
    return subprocess.Popen([sys.executable, follow, store, folder, "--until", str(until)])


def train(store: str, folders: list[Path], steps: int, short: bool) -> tuple[Transformer, list[dw.reports.PublishReport]]:
    """Publish the seed and every step; kill a replica at a third, start it again at two thirds."""
    torch.manual_seed(1)
    width, depth, context = (64, 2, 32) if short else (256, 4, 128)
    model = Transformer(width, depth, context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    text = batches(context, size=4)
    with contextlib.ExitStack() as stack:
        replicas = [stack.enter_context(start_replica(store, folder, steps)) for folder in folders]
        publisher = stack.enter_context(dw.Publisher(store, model, dtype=torch.bfloat16))
        versions = [publisher.publish()]
        wait_for(folders[1], 0)
        for step in range(1, steps + 1):
            loss = train_step(model, optimizer, next(text))
            versions.append(publisher.publish())
            print(f"step {step:>3}  loss {loss:.3f}  {versions[-1]!r}", flush=True)
            if step == steps // 3:
                replicas[1].kill()
                replicas[1].wait()
                print(f"step {step:>3}  {folders[1].name} is killed")
            if step == steps * 2 // 3:
                replicas[1] = stack.enter_context(start_replica(store, folders[1], steps))
                print(f"step {step:>3}  {folders[1].name} is back")
        assert [replica.wait() for replica in replicas] == [0, 0]
    return model, versions


def wait_for(folder: Path, version: int) -> None:
    """Wait until a replica holds a version."""
    while True:
        with contextlib.suppress(dw.NotFound):
            if dw.read_replica_state(folder).version >= version:
                return
        time.sleep(0.05)


def assert_equal(model: Transformer, folder: Path) -> None:
    """The folder is the model, bit for bit."""
    held = load_file(folder / "model.safetensors")
    assert held.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(held[name].view(torch.int16), tensor.bfloat16().view(torch.int16)), name


def print_bytes(versions: list[dw.reports.PublishReport]) -> None:
    """The bytes of the steps, and of alternatives."""
    steps = versions[1:]
    ours = sum(version.bytes for version in steps)
    changed = sum(version.num_changed for version in steps)
    density = changed / sum(version.num_elements for version in steps)
    rows = {
        "full copies": sum(version.weights_bytes for version in steps),
        "TRL: int32 + bf16 per change": TRL_BYTES * changed,
        "deltawire": ours,
    }
    print(f"\n{len(steps)} steps, {steps[-1].num_elements:,} weights, {density:.2%} changed per step")
    for name, size in rows.items():
        print(f"  {name:<30} {size:>14,} bytes  {size / ours:>7.1f} x")


def main() -> None:
    """Train, compare, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--store", help="a folder or s3://BUCKET/PREFIX; must be new")
    parser.add_argument("--short", action="store_true", help="a smaller model, six steps")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folders = [Path(work) / "replica-a", Path(work) / "replica-b"]
        model, versions = train(args.store or f"{work}/run", folders, args.steps or (6 if args.short else 30), args.short)
        for folder in folders:
            assert_equal(model, folder)
            print(f"{folder.name} equals the trainer, bit for bit")
    print_bytes(versions)


if __name__ == "__main__":
    main()
