"""What peers send for the same step, written plainly in torch: TRL's sparse patches, slime's XOR with zstd.

Both go to bytes in memory, as deltawire does here. Neither proves what it applied; slime checks the tensors that it changed.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import safetensors.torch
import torch

State = dict[str, torch.Tensor]


class Trl:
    """`NAME.indices` (int32) and `NAME.values` in one safetensors file; change is float inequality, as TRL has it."""

    label = "TRL's format: torch, int32 + bf16"

    def __init__(self, state: State) -> None:
        self.snapshot = {name: tensor.clone() for name, tensor in state.items()}

    def send(self, state: State) -> bytes:
        """What changed since the last time."""
        out: State = {}
        for name, tensor in state.items():
            new, old = tensor.view(-1), self.snapshot[name].view(-1)
            indices = (new != old).nonzero().view(-1)
            if len(indices):
                out[f"{name}.indices"], out[f"{name}.values"] = indices.int(), new[indices]
                old.copy_(new)
        return safetensors.torch.save(out, {"format": "sparse_weight_patch", "version": "1", "sparse": "True"})

    def receive(self, sent: bytes, state: State) -> None:
        """Patch in place."""
        patch = safetensors.torch.load(sent)
        for key, indices in patch.items():
            if key.endswith(".indices"):
                name = key.removesuffix(".indices")
                state[name].view(-1)[indices.long()] = patch[f"{name}.values"]


class Slime:
    """The XOR of old and new bytes of each tensor, one zstd-1 frame each, and xxh3-128 of the new tensor; a thread per core."""

    label = "slime's format: torch, XOR + zstd-1 + xxh3-128"

    def __init__(self, state: State) -> None:
        self.snapshot = {name: tensor.clone() for name, tensor in state.items()}
        self.pool = ThreadPoolExecutor(os.cpu_count())

    def send(self, state: State) -> bytes:
        """What changed since the last time."""
        done = [one for one in self.pool.map(self._encode, state.items()) if one is not None]
        frames = {name: torch.frombuffer(bytearray(frame), dtype=torch.uint8) for name, frame, _ in done}
        return safetensors.torch.save(frames, {name: digest for name, _, digest in done})

    def _encode(self, item: tuple[str, torch.Tensor]) -> tuple[str, bytes, str] | None:
        import xxhash
        import zstandard

        name, tensor = item
        new, old = _bytes(tensor), _bytes(self.snapshot[name])
        change = new ^ old
        if not change.any():
            return None
        old.copy_(new)
        return name, zstandard.ZstdCompressor(1).compress(change.numpy()), xxhash.xxh3_128_hexdigest(new.numpy())

    def receive(self, sent: bytes, state: State) -> None:
        """Patch in place, and check."""
        import json

        header = json.loads(sent[8 : 8 + int.from_bytes(sent[:8], "little")])
        frames = safetensors.torch.load(sent)
        list(self.pool.map(lambda name: self._decode(state[name], frames[name], header["__metadata__"][name]), frames))

    @staticmethod
    def _decode(tensor: torch.Tensor, frame: torch.Tensor, digest: str) -> None:
        import xxhash
        import zstandard

        held = _bytes(tensor)
        change = bytearray(zstandard.ZstdDecompressor().decompress(frame.numpy()))
        held ^= torch.frombuffer(change, dtype=torch.uint8)
        if xxhash.xxh3_128_hexdigest(held.numpy()) != digest:
            raise RuntimeError("checksum")


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
