#!/usr/bin/env python3
"""Kills import and export at every sync point, starts them again, and asks: is every version there once, under its
number, bit for bit; and was nothing half-written ever taken for a version?

usage: bridge_test.py DELTAWIRE [--quick]      (every fourth point)

Needs a build with DELTAWIRE_FAULTS. A scenario is a command and the world it starts in; it is run once to count the
points it passes, then once for each point with a SIGKILL there.
"""

import tempfile
from pathlib import Path

from crash_world import World, kill_everywhere, run_test

LAST = 2


def check_chain(world, complete):
    """Every version equals the source's; with `complete`, all exist."""
    versions = world.versions()
    assert not complete or versions == list(range(LAST + 1)), f"imported {versions}"
    if versions:
        world.must("fsck", world.store)
        for version in range(versions[-1] + 1):
            world.check_pulled("store", version)


def check_files(world, complete):
    """Every exported version that has an index gives the right weights."""
    found = sorted((world.root / "target").glob("weight_v*/model.safetensors.index.json"))
    assert len(found) == LAST or not complete, f"{len(found)} versions"
    with tempfile.TemporaryDirectory(dir=world.root) as folder:
        again = Path(folder)
        if found:
            world.must(
                "import", "slime", world.root / "target", again / "store", "--base", world.step(0), "--work", again / "work"
            )
        for version in range(1, len(found) + 1):
            world.must("pull", again / "store", again / "replica", "--version", version, "--no-heartbeat")
            world.verify(again / "replica", world.step(version))


def main(options, scratch):
    world = World(options.binary, scratch / "origin", scratch / "weights")
    world.simulate("20K", LAST, 0.02, seed=5)
    for version in range(LAST + 1):
        world.must("publish", world.step(version), world.root / "trainer", "--snapshot", world.snapshot)
    world.must("export", "slime", world.root / "trainer", world.root / "deltas", "--work", world.root / "first")

    def bring(w):
        return ["import", "slime", w.root / "deltas", w.store, "--base", w.step(0), "--work", w.root / "work"]

    def export(w):
        return ["export", "slime", w.root / "trainer", w.root / "target", "--work", w.root / "work"]

    for name, command, check in (("import", bring, check_chain), ("export", export, check_files)):
        kill_everywhere(name, world, command, check, scratch, 4 if options.quick else 1)


if __name__ == "__main__":
    run_test(main, __doc__, quick=False)
