#!/usr/bin/env python3
"""`deltawire fsck` sees every byte of a chain that is not what it was, and every object that is missing or
too much.

usage: fsck_test.py DELTAWIRE [--stride N]

A small chain (versions, an anchor, a merged delta, a pin, a heartbeat) is damaged in one place at a time:
every N-th byte of every object, and all of the first and last ones. tests/chain/fsck_test.cpp does every
byte, without the processes.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

UNSUPPORTED, CORRUPTION = 3, 6
EDGE = 8  # bytes at either end of an object that are never left out
# What comes and goes by itself may be missing; what is only a hint, or only for people, is no damage.
MAY_GO = ("pins/", "replicas/")
NO_DAMAGE = ("HEAD", "pins/", "replicas/")


class Chain:
    def __init__(self, binary, root):
        self.binary, self.root, self.store = binary, root, root / "store"

    def run(self, *args):
        return subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HOME": str(self.root)})

    def must(self, *args):
        result = self.run(*args)
        assert result.returncode == 0, f"{args}: exit {result.returncode}: {result.stderr}"

    def make(self):
        weights = self.root / "w"
        self.must("simulate", "--params", "1K", "--steps", "4", "--density", "0.05", "-o", weights, "-q")
        for i in range(5):
            self.must("publish", weights / f"v{i}.safetensors", self.store, "--snapshot", self.root / "snapshot")
        self.must("anchor", self.store, 3)
        self.must("compact", self.store, "--span", "2", "--upto", "2")
        self.must("pin", self.store, 1)
        self.must("pull", self.store, self.root / "replica", "--name", "r")

    def copy_at(self, root):
        subprocess.run(["cp", "-r", self.store, root], check=True)
        return root

    def fsck(self, store):
        """Its exit status, what it says, and whether it is content."""
        result = self.run("fsck", store, "--json")
        report = json.loads(result.stdout)
        # Without a run record there is nothing to check: an error instead of a report.
        clean = "error" not in report and not report["problems"] and not report["warnings"]
        return result.returncode, result.stdout + result.stderr, clean


def places(size, stride):
    return sorted({*range(min(size, EDGE)), *range(0, size, stride), *range(max(0, size - EDGE), size)})


def damage_one(chain, store, name, stride):
    """All kinds of damage to one object, in a copy of the chain of its own. Returns how many."""
    path = store / name
    good = path.read_bytes()
    count = 0

    def expect(what, found, damage=not name.startswith(NO_DAMAGE)):
        nonlocal count
        code, said, clean = chain.fsck(store)
        assert clean != found, f"{name}, {what}: exit {code}: {said}"
        if found and damage:
            assert code == CORRUPTION or (code == UNSUPPORTED and name == "run.json"), \
                f"{name}, {what}: exit {code}: {said}"
        count += 1

    for at in places(len(good), stride):
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1:])
        expect(f"byte {at}", True)
    path.write_bytes(good + b"x")
    expect("a byte more", True)
    if good:
        path.write_bytes(good[:-1])
        expect("a byte less", True)
    path.unlink()
    if name != "run.json":
        # A record may have been removed by gc, but its parts are then noted: here they are orphans.
        record = name.startswith(("hops/", "manifests/"))
        expect("gone", not name.startswith(MAY_GO), not name.startswith(NO_DAMAGE) and not record)
    path.write_bytes(good)
    expect("whole again", False)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--stride", type=int, default=37)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltawire-fsck.", dir=os.environ.get("TMPDIR")) as folder:
        root = Path(folder)
        chain = Chain(str(Path(options.binary).resolve()), root)
        chain.make()
        code, said, clean = chain.fsck(chain.store)
        assert clean, f"a sound chain: exit {code}: {said}"
        names = sorted(str(p.relative_to(chain.store)) for p in chain.store.rglob("*") if p.is_file())

        def work(i):
            return damage_one(chain, chain.copy_at(root / f"copy-{i}"), names[i], options.stride)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            count = sum(pool.map(work, range(len(names))))
        for stranger in ("notes.txt", "parts/0000000001-ff/x", "manifests/x", "hops/x"):
            path = chain.store / stranger
            path.parent.mkdir(exist_ok=True)
            path.write_text("xyz")
            code, said, clean = chain.fsck(chain.store)
            assert code == 0 and not clean and stranger in said, f"{stranger}: exit {code}: {said}"
            path.unlink()
    print(f"fsck: {count} kinds of damage to {len(names)} objects, all found")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"fsck test failed: {error}")
