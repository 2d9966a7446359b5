"""What scale hysteresis does to a run of quantised versions: what changes at a step, and what it costs in precision.

usage: PYTHONPATH=build/python quantised_hysteresis.py CHECKPOINT... [--format NAME]... [--band B]... [--from BF16|F32] [--json]

CHECKPOINTs are as in quantised.py, which says what is counted. `error` is the relative RMS of what an engine computes with against
the weights that were quantised, over all steps; `more` is by how much it is larger than without hysteresis.
"""

import argparse
import json

import torch
from quantised import Counts, matrices

from deltawire.quantize import quantize

SHOWN = ["fp8-block", "fp8-tensor", "fp8-channel", "compressed-fp8-channel", "nvfp4", "int4-g32", "int4-g128", "int8-channel"]
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def nibbles(packed):
    packed = packed.contiguous().view(torch.uint8)
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).long()


def dequantised(state, name):
    """F32, as an engine has it."""
    module = name.removesuffix(".weight")
    part = {suffix: state.get(f"{module}.{suffix}") for suffix in ("weight", "weight_packed", "weight_scale", "weight_scale_inv")}
    if part["weight_packed"] is not None:
        codes, scale = nibbles(part["weight_packed"]) - 8, part["weight_scale"].float()
        return codes.float() * scale.repeat_interleave(codes.shape[1] // scale.shape[1], 1)
    weight = part["weight"]
    if f"{module}.weight_scale_2" in state:
        scale = part["weight_scale"].float() * state[f"{module}.weight_scale_2"]
        return E2M1[nibbles(weight)] * scale.repeat_interleave(16, 1)
    scale = part["weight_scale"]
    if scale is None:
        scale = part["weight_scale_inv"].repeat_interleave(128, 0)[: weight.shape[0]].repeat_interleave(128, 1)
        scale = scale[:, : weight.shape[1]]
    return weight.float() * scale.float()


def squares(state, weights):
    """Sums of squares of the errors and of the weights."""
    pairs = [(dequantised(state, name).double(), weight.double()) for name, weight in weights.items()]
    return sum(float((a - b).square().sum()) for a, b in pairs), sum(float(b.square().sum()) for _, b in pairs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--format", action="append", choices=SHOWN)
    parser.add_argument("--band", action="append", type=float)
    parser.add_argument("--from", dest="origin", default="BF16", choices=["BF16", "F32"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bands = [0.0, *(options.band or [0.03])]
    formats = options.format or SHOWN
    counts = {(name, band): Counts(8 if name.startswith("int8") else 4, ["auto"]) for name in formats for band in bands}
    errors = {key: [0.0, 0.0] for key in counts}
    before = {}
    for path in options.checkpoints:
        weights = matrices(path)
        if options.origin == "BF16":
            weights = {name: tensor.bfloat16() for name, tensor in weights.items()}
        for key, count in counts.items():
            name, band = key
            old = before.get(key)
            now = dict(quantize(weights, name, rounded=options.origin, hysteresis=band, previous=old))
            if old is not None:
                count.add(old, now)
                errors[key] = [a + b for a, b in zip(errors[key], squares(now, weights), strict=True)]
            before[key] = now
    for (name, band), count in counts.items():
        rms, plain = ((errors[name, each][0] / errors[name, each][1]) ** 0.5 for each in (band, 0.0))
        row = {
            "from": options.origin,
            "format": name,
            "band": band,
            **count.row(),
            "error": rms,
            "more_percent": 100 * (rms / plain - 1),
        }
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{options.origin} {name:24} band {band:<5} changed {row['changed_percent']:8.4f} %  scales {row['scales_percent']:8.4f} %  "
            f"bytes a step {row['bytes_per_step']['auto']:9}  error {rms:.6f}  more {row['more_percent']:7.4f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
