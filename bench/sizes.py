"""Sizes under version control: sizes.py sizes|check FILE, with a `deltawire bench codecs --sizes --json` on stdin."""

import json
import sys
from pathlib import Path

BLESS = "if it was meant, bless it with: scripts/bench sizes"


def tolerance(name):
    """Ours are the same bytes everywhere; `slime`, with zstd inside, changes a little with its version."""
    return 0.01 if name == "slime" else 0


def sizes_of(report):
    return {
        "data": "--params 20M --density 0.012 --seed 1",
        "elements": report["data"]["elements"],
        "changed": report["data"]["changed"],
        "bound_bytes": round(report["bound"]["bytes"]),
        "bytes": {row["name"]: row["bytes"] for row in report["rows"]},
    }


def differences(expected, now):
    for key in ("elements", "changed"):
        if expected[key] != now[key]:
            yield f"{key} of the simulated data: expected {expected[key]}, got {now[key]}"
    for name in sorted(expected["bytes"].keys() | now["bytes"].keys()):
        before, after = expected["bytes"].get(name), now["bytes"].get(name)
        if before is None or after is None:
            yield f"{name}: {'new' if before is None else 'gone'}"
        elif abs(after - before) > before * tolerance(name):
            yield f"{name}: expected {before} bytes, got {after} ({after / before - 1:+.3%})"


def main(action, path):
    now = sizes_of(json.load(sys.stdin))
    if action == "sizes":
        Path(path).write_text(json.dumps(now, indent=2) + "\n")
        print(f"wrote {path}")
        return 0
    found = list(differences(json.loads(Path(path).read_text()), now))
    for line in found:
        print("size changed:", line)
    print(f"{len(found)} of {len(now['bytes'])} sizes changed; {BLESS}" if found else "sizes: all as blessed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
