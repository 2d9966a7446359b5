#!/usr/bin/env python3
"""Every fault that a store can have, under every verb that works with one: what comes out is a correct
version or an error with a name, never a wrong replica, and never a chain that hides its damage.

usage: fault_test.py DELTAWIRE [--quick] [--fault SPEC] [--verbose]

Needs a build with DELTAWIRE_FAULTS (the presets with tests have it). A case is a fault and a verb in a
small world: a chain of three versions, a replica at the first. The verb is run with the fault, then the
world is looked at without it, the verb is run again, and the world is looked at again.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What each exit status is called in a message; docs/operations.md explains them.
ERRORS = {3: "unsupported", 4: "not found", 5: "conflict", 6: "corruption", 7: "base mismatch", 8: "i/o error",
          9: "unavailable", 12: "cancelled"}

# Faults of the store, and whether it keeps something else than it was given: then the chain may be
# damaged, which must be found.
FAULTS = {
    **{f"unavailable:n={n}": False for n in range(1, 9)},
    **{f"fail:n={n}": False for n in range(1, 9)},
    **{f"fail:n={n}:code=not-found": False for n in range(1, 7)},
    "unavailable": False,
    "unavailable:p=0.3": False,
    "fail:op=put": False,
    "fail:op=put-if-absent": False,
    "fail:op=list": False,
    "slow:ms=5": False,
    **{f"tear:n={n}": True for n in range(1, 5)},
    "tear:op=put-if-absent": True,
    "tear:name=parts/": True,
    "tear:name=manifests/": True,
    "tear:name=schemas/": True,
    "tear:name=HEAD": True,
    **{f"lost:n={n}": True for n in range(1, 5)},
    "lost:name=parts/": True,
    "lost:name=manifests/": True,
    "lost:name=HEAD": True,
    **{f"duplicate:n={n}": False for n in range(1, 5)},
    "duplicate:p=0.3": False,
    **{f"twice:n={n}": False for n in range(1, 5)},
    "twice": False,
    "late:n=1:calls=2": False,
    "late:n=2:calls=1": False,
    "late:op=put-if-absent:calls=1": False,
    "stale-list:calls=3": False,
    "stale-list:seconds=3600": False,
    **{f"flip:n={n}": False for n in range(1, 9)},
    "flip": False,
    "flip:name=parts/": False,
    "flip:name=manifests/": False,
    "flip:p=0.3": False,
}


class World:
    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights

    def copy(self, root):
        shutil.copytree(self.root, root, symlinks=True)
        return World(self.binary, root, self.weights)

    def run(self, *args):
        return subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HOME": str(self.root / "home")})

    def must(self, *args):
        result = self.run(*args)
        assert result.returncode == 0, f"{' '.join(map(str, args))}: exit {result.returncode}: {result.stderr}"
        return result

    def weights_of(self, version):
        return self.weights / f"v{version}.safetensors"

    def publish(self, version, *options):
        return ["publish", self.weights_of(version), self.root / "store", "--snapshot", self.root / "snapshot",
                *options]

    def pull(self, verb, local, *options):
        once = ["--once"] if verb == "follow" else []
        return [verb, self.root / "store", self.root / local, "--name", local, "--log-level", "off", *once, *options]

    def head(self):
        numbers = [int(p.stem) for p in (self.root / "store/manifests").glob("*.json")]
        return max(numbers, default=-1)

    def check_replica(self, local):
        """It holds what it says it holds, bit for bit. Nothing is asked of the store."""
        state_file = self.root / local / ".deltawire/state.json"
        if not state_file.exists():
            assert not list((self.root / local).glob("*.safetensors")), f"{local}: weights without a version"
            return None
        state = json.loads(state_file.read_text())
        assert state.get("patching_to") is None, f"{local}: {state}"
        self.must("verify", self.weights_of(state["version"]), self.root / local)
        return state["version"]


def explain(result):
    return f"exit {result.returncode}: {(result.stderr or result.stdout).strip()}"


def check_outcome(result):
    """An exit status with a name, and a message that begins with it."""
    if result.returncode == 0:
        return
    name = ERRORS.get(result.returncode)
    assert name, explain(result)
    assert f"error: {name}: " in result.stderr, explain(result)


def check_publish(world, fault, keeps_other, retries):
    result = world.run(*world.publish(3, "--inject", fault, "--retries", retries))
    check_outcome(result)
    sound = world.run("fsck", world.root / "store")
    assert sound.returncode == 0 or (keeps_other and sound.returncode in (4, 6)), f"fsck: {explain(sound)}"
    if sound.returncode != 0:  # found; replicas stay where they are
        for local in ("replica", "fresh"):
            pulled = world.run(*world.pull("pull", local))
            check_outcome(pulled)
            world.check_replica(local)
        return result.returncode
    lost = result.returncode == 0 and world.head() < 3
    assert not lost or "lost" in fault, "published, and not there"
    if lost:  # nothing is published upon it, nor in its place, without a word
        refused = world.run(*world.publish(3))
        assert refused.returncode == 6 and "lost version 3" in refused.stderr, explain(refused)
    # Whatever happened, the next publish carries everything.
    world.must(*world.publish(3, *(["--accept-loss"] if lost else [])))
    for local in ("replica", "fresh"):
        world.must(*world.pull("pull", local))
        assert world.check_replica(local) == world.head()
    world.must("verify", world.weights_of(3), world.root / "fresh")
    world.must("fsck", world.root / "store")
    return result.returncode


def check_pull(world, verb, local, fault, retries):
    before = world.check_replica(local)
    result = world.run(*world.pull(verb, local, "--inject", fault, "--retries", retries))
    check_outcome(result)
    held = world.check_replica(local)
    if result.returncode != 0:
        assert held == before, f"{explain(result)}, and version {before} became {held}"
    elif "not-found" not in fault:  # a store that denies what it has cannot be seen through
        assert held == 2, f"ended well at version {held}"
    world.must("fsck", world.root / "store")
    world.must(*world.pull("pull", local))
    assert world.check_replica(local) == 2
    return result.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--fault", help="only this one")
    parser.add_argument("--quick", action="store_true", help="without retries of the store's calls")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    ends = {}
    with tempfile.TemporaryDirectory(prefix="deltawire-fault.", dir=os.environ.get("TMPDIR")) as folder:
        root = Path(folder)
        (root / "origin/home").mkdir(parents=True)
        origin = World(binary, root / "origin", root / "weights")
        origin.must("simulate", "--params", "20K", "--steps", "3", "--density", "0.02", "-o", root / "weights", "-q")
        for version in range(3):
            origin.must(*origin.publish(version))
            if version == 0:
                origin.must(*origin.pull("pull", "replica"))
        faults = {f: k for f, k in FAULTS.items() if options.fault in (None, f)}
        cases = [(fault, keeps_other, verb, local, retries) for fault, keeps_other in faults.items()
                 for verb, local in (("publish", None), ("pull", "replica"), ("pull", "fresh"), ("follow", "replica"))
                 for retries in ((0,) if options.quick or verb == "follow" else (0, 3))]

        def run_case(number):
            fault, keeps_other, verb, local, retries = cases[number]
            world = origin.copy(root / f"world-{number}")
            name = f"{verb} {local or ''} --inject {fault} --retries {retries}"
            try:
                code = (check_publish(world, fault, keeps_other, retries) if verb == "publish" else
                        check_pull(world, verb, local, fault, retries))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
            shutil.rmtree(world.root)
            if options.verbose:
                print(f"{name}: exit {code}", flush=True)
            return code

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for code in pool.map(run_case, range(len(cases))):
                ends[code] = ends.get(code, 0) + 1
    listed = ", ".join(f"{count} {ERRORS.get(code, 'ok')}" for code, count in sorted(ends.items()))
    print(f"faults: {sum(ends.values())} runs ({listed}), no wrong replica")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"fault test failed: {error}")
