#!/usr/bin/env python3
"""Kills import and export at every sync point, starts them again, and asks: is every version there once, under its
number, bit for bit; and was nothing half-written ever taken for a version?

usage: bridge_test.py DELTAWIRE [--quick]

Needs a build with DELTAWIRE_FAULTS. A scenario is a command and the world it starts in; it is run once to count the
points it passes, then once for each point with a SIGKILL there.
"""
import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from crash_world import World, count_points

KILLED = -signal.SIGKILL
LAST = 2


class BridgeWorld(World):
    """A trainer's chain, their files, and a chain made of those."""

    def step(self, version):
        return self.weights / f"v{version}.safetensors"

    def check_chain(self, name, complete):
        """Every version that is there is theirs; `complete`: all are."""
        manifests = sorted((self.root / name / "manifests").glob("*.json"))
        assert manifests or not complete, "nothing was imported"
        if manifests:
            self.run("fsck", self.path(name))
            head = int(manifests[-1].stem)
            assert head == LAST or not complete, f"ends with version {head}"
            for version in range(head + 1):
                self.run("pull", self.path(name), self.path("witness"), "--version", version, "--no-heartbeat")
                self.run("verify", self.path("witness"), self.step(version))

    def check_files(self, complete):
        """Every version of theirs that has an index leads to what it should."""
        found = sorted((self.root / "target").glob("weight_v*/model.safetensors.index.json"))
        assert len(found) == LAST or not complete, f"{len(found)} versions"
        for index in found:
            version = int(index.parent.name.removeprefix("weight_v"))
            before, made = self.step(version - 1), self.path("made.safetensors")
            self.run("apply", index.parent, before, "-o", made)
            self.run("verify", made, self.step(version))


def scenarios():
    """name -> (the command, what must hold)"""
    def import_slime(world):
        return ["import", "slime", world.path("deltas"), world.path("store"), "--base", world.step(0), "--work",
                world.path("work")]

    def export_slime(world):
        return ["export", "slime", world.path("trainer"), world.path("target"), "--work", world.path("work")]

    return {"import": (import_slime, lambda w, complete: w.check_chain("store", complete)),
            "export": (export_slime, lambda w, complete: w.check_files(complete))}


def kill_everywhere(name, world, command, check, scratch, stride):
    points = count_points(world, command, lambda copy: check(copy, True), scratch)
    chosen = range(1, points + 1, stride)
    for point in chosen:
        copy = world.copy(scratch / "world")
        try:
            died = copy.run(*command(copy), check=False, DELTAWIRE_CRASH_AT=str(point))
            assert died.returncode in (KILLED, 0), f"exit {died.returncode}: {died.stderr}"
            check(copy, False)
            again = copy.run(*command(copy), check=False)
            assert again.returncode == 0, f"second run: exit {again.returncode}: {again.stderr}"
            check(copy, True)
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from None
        shutil.rmtree(copy.root)
    print(f"{name}: killed at {len(chosen)} points, recovered from each", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--quick", action="store_true", help="every fourth point")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="deltawire-crash.", dir=os.environ.get("TMPDIR")) as folder:
        scratch = Path(folder)
        world = BridgeWorld(binary, scratch / "origin", scratch / "weights")
        (world.root / "home").mkdir(parents=True)
        world.run("simulate", "--params", "20K", "--steps", LAST, "--seed", 5, "--density", "0.02", "-o", world.weights,
                  "--quiet")
        for version in range(LAST + 1):
            world.run("publish", world.step(version), world.path("trainer"), "--snapshot", world.path("snapshot"))
        world.run("export", "slime", world.path("trainer"), world.path("deltas"), "--work", world.path("first"))
        for name, (command, check) in scenarios().items():
            kill_everywhere(name, world, command, check, scratch, 4 if options.quick else 1)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"crash test failed: {error}")
