"""How much of a quantised checkpoint changes at a training step, and what a delta of it takes.

usage: PYTHONPATH=build/python quantised.py CHECKPOINT... [--format NAME]... [--from BF16|F32]...

CHECKPOINTs are safetensors files of one run, step by step: `deltawire simulate --masters` (F32: quantised from what BF16 rounds
them to, and as they are), or a recorded run in BF16. Matrices alone whose columns are a multiple of 128, all of them
quantised. For each format, over all steps: elements that changed (of packed formats: codes of four bits), scales that
changed, and bits of delta (elements and scales together) per element that changed, for `tight` and `auto`. Bytes are of a delta with `auto`, per step.
"""

import argparse
import torch
from safetensors import safe_open

import deltawire as dw
from deltawire.quantize import FORMATS, quantize

CODECS = ("tight", "auto")
SHOWN = ["fp8-block", "fp8-block-ue8m0", "fp8-tensor", "fp8-channel", "compressed-fp8-channel", "mxfp8", "nvfp4", "int4-g32"]
SHOWN += ["int4-g32-asymmetric", "int4-g128", "int8-channel", "int8-packed-g128", "compressed-nvfp4", "mxfp4"]


def matrices(path):
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    fit = {name: tensor for name, tensor in tensors.items() if tensor.dim() == 2 and tensor.shape[1] % 128 == 0}
    return {name.replace("embed_tokens", "embedded"): tensor for name, tensor in fit.items()}  # which would be left alone


def codes(tensor, bits=4):
    """An element each: bytes of FP8, four bits of what is packed."""
    if tensor.dtype in (torch.float8_e4m3fn, torch.int8) or (tensor.dtype == torch.int32 and bits == 8):
        return tensor.view(torch.uint8)
    if tensor.dtype == torch.int32 or tensor.dtype == torch.uint8:
        packed = tensor.contiguous().view(torch.uint8)
        return torch.stack((packed & 15, packed >> 4))
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def is_element(name, tensor):
    packed = name.endswith((".weight", "_packed"))
    return packed and tensor.dim() == 2


def bits_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).view(-1, tensor.element_size())


class Counts:
    def __init__(self, bits=4, codecs=CODECS):
        self.bits = bits  # of a code that is packed
        self.elements = self.changed = self.scales = self.changed_scales = self.steps = 0
        self.bytes = dict.fromkeys(codecs, 0)

    def add(self, old, new):
        self.steps += 1
        for name, tensor in new.items():
            if is_element(name, tensor):
                a, b = codes(old[name], self.bits), codes(tensor, self.bits)
                self.elements += b.numel()
                self.changed += int((a != b).sum())
            elif not name.endswith("_shape"):
                self.scales += tensor.numel()
                self.changed_scales += int((bits_of(old[name]) != bits_of(tensor)).any(dim=1).sum())
        for codec in self.bytes:
            self.bytes[codec] += sum(entry.bytes for entry in dw.diff(old, new, codec=codec).entries)

    def row(self):
        each = {codec: 8 * count / max(self.changed, 1) for codec, count in self.bytes.items()}
        return {
            "steps": self.steps,
            "changed_percent": 100 * self.changed / self.elements,
            "scales_percent": 100 * self.changed_scales / max(self.scales, 1),
            "bits_per_changed": each,
            "bytes_per_step": {codec: count // self.steps for codec, count in self.bytes.items()},
        }


def states(path, formats, origin):
    tensors = matrices(path)
    if origin == "BF16":
        tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    coded = {"as it is": tensors}
    for format in formats:
        coded[format] = dict(quantize(tensors, format, rounded=origin))
    return coded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--format", action="append", choices=[name for name in FORMATS if name != "gpt-oss-mxfp4"])
    parser.add_argument("--from", dest="origins", action="append", choices=["BF16", "F32"])
    options = parser.parse_args()
    formats = options.format or SHOWN
    for origin in options.origins or ["BF16"]:
        counts = {name: Counts(8 if name.startswith("int8") else 4) for name in ["as it is", *formats]}
        before = None
        for path in options.checkpoints:
            now = states(path, formats, origin)
            for name in now if before is not None else ():
                counts[name].add(before[name], now[name])
            before = now
        for name, count in counts.items():
            row = {"from": origin, "format": name, **count.row()}
            each = "  ".join(f"{codec} {row['bits_per_changed'][codec]:7.2f}" for codec in CODECS)
            changed = f"changed {row['changed_percent']:8.4f} %  scales {row['scales_percent']:8.4f} %"
            size = row["bytes_per_step"]["auto"]
            print(f"{origin} {name:24} {changed}  bytes {size:9}  bits {each}", flush=True)


if __name__ == "__main__":
    main()
