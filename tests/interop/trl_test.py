#!/usr/bin/env python3
"""TRL's files by a second reader and writer, in numpy: theirs to ours and back.

usage: trl_test.py DELTAWIRE; exits 77 (skipped) where numpy is not installed
"""

import json
import sys

from sparse_files import both_ways, first_model, next_model, np, read_safetensors, write_safetensors

SHAPES = {
    "embed.weight": ("BF16", [300, 700]),
    "norm.weight": ("BF16", [64]),
    "layers.0.w": ("BF16", [64, 64]),
    "frozen": ("BF16", [17]),
    "odd.idx": ("BF16", [5, 7]),
}
ANCHORS = (1, 4)
# NaN with payloads, too: TRL's receivers scatter raw values.
SPECIAL = {"BF16": [0x8000, 0x7F80, 0x7FC1, 0xFF81]}


def metadata_of(version, sparse, changed, total, names, encoding):
    fields = {"format": "sparse_weight_patch", "version": 1, "sparse": sparse, "model_version": version,
              "num_changed_params": len(names), "total_changed_elements": changed, "total_elements": total,
              "sparsity": 1.0 - changed / max(total, 1)}
    fields |= {"changed_params": json.dumps(names)} if encoding == "v1" else {"encoding": encoding}
    return {key: str(value) for key, value in fields.items()}


def write_anchor(root, version, model, encoding):
    total = sum(len(raw) for _, _, raw in model.values())
    (root / "anchors").mkdir(parents=True, exist_ok=True)
    metadata = metadata_of(version, False, total, total, list(model), encoding)
    (root / "anchors" / f"step_{version:06d}.safetensors").write_bytes(write_safetensors(model, metadata))


def write_delta(root, version, before, after, encoding):
    tensors, names, changed = {}, [], 0
    for name, (dtype, _, new) in after.items():
        index = np.flatnonzero(new != before[name][2])
        if not len(index):
            continue
        stored = ("I32", index)
        if encoding == "gap_delta":
            gaps = np.diff(index, prepend=-1) - 1
            stored = ("U16" if gaps.max() <= 65535 else "U32", gaps)
        tensors[name + (".indices" if encoding == "v1" else ".idx")] = (stored[0], [len(index)], stored[1])
        tensors[name + (".values" if encoding == "v1" else ".val")] = (dtype, [len(index)], new[index])
        names.append(name)
        changed += len(index)
    total = sum(len(raw) for _, _, raw in after.values())
    (root / "deltas").mkdir(parents=True, exist_ok=True)
    metadata = metadata_of(version, True, changed, total, names, encoding)
    (root / "deltas" / f"step_{version:06d}.safetensors").write_bytes(write_safetensors(tensors, metadata))


def write_version(root, version, models, encoding):
    if version in ANCHORS:
        write_anchor(root, version, models[version], encoding)
    else:
        write_delta(root, version, models[version - 1], models[version], encoding)


def read_version(root, version, model, encoding):
    """The new model."""
    anchor = root / "anchors" / f"step_{version:06d}.safetensors"
    delta = root / "deltas" / f"step_{version:06d}.safetensors"
    assert anchor.exists() == (version in ANCHORS) != delta.exists()
    metadata, tensors = read_safetensors((anchor if anchor.exists() else delta).read_bytes())
    total = sum(len(raw) for _, _, raw in model.values())
    if anchor.exists():
        expected = metadata_of(version, False, total, total, list(tensors), encoding)
        assert metadata == expected, (metadata, expected)
        return tensors
    after = {name: (dtype, shape, raw.copy()) for name, (dtype, shape, raw) in model.items()}
    idx, val = (".indices", ".values") if encoding == "v1" else (".idx", ".val")
    names, changed = sorted(key.removesuffix(val) for key in tensors if key.endswith(val)), 0
    for name in names:
        _, _, stored = tensors[name + idx]
        index = np.cumsum(stored.astype(np.int64) + 1) - 1 if encoding == "gap_delta" else stored
        after[name][2][index] = tensors[name + val][2]
        changed += len(index)
    assert len(tensors) == 2 * len(names)
    expected = metadata_of(version, True, changed, total, names, encoding)
    if encoding == "v1":
        assert sorted(json.loads(metadata["changed_params"])) == names
        expected["changed_params"] = metadata["changed_params"]
    assert metadata == expected, (metadata, expected)
    return after


def main(path):
    rng = np.random.default_rng(2)
    models = [first_model(rng, SHAPES)]
    for share in (0.01, 0.00001, 0.3, 0.02, 0.001):
        models.append(next_model(rng, models[-1], share, SPECIAL))
    with both_ways(path, "trl", models, ["v1", "raw", "gap_delta"], write_version, read_version, "--anchor-every", "4") as made:
        refusals(*made, models)


def refusals(program, folder, models):
    # Late joiners start with an anchor; without one they need a base.
    write_delta(folder / "no-anchor", 1, models[0], models[1], "raw")
    program.run("import", "trl", folder / "no-anchor", folder / "no-chain", status=2)
    # A delta with another version's number: the chain would be wrong from there on.
    (folder / "no-anchor/deltas/step_000001.safetensors").rename(folder / "no-anchor/deltas/step_000002.safetensors")
    write_anchor(folder / "no-anchor", 1, models[1], "raw")
    said = program.run("import", "trl", folder / "no-anchor", folder / "half-chain", status=6)
    assert "step_000002.safetensors" in said and "expected 2, got 1" in said, said


if __name__ == "__main__":
    main(sys.argv[1])
