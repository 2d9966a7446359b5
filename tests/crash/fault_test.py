#!/usr/bin/env python3
"""Every fault that a store can have, under every verb that works with one: what comes out is a correct
version or an error with a name, never a wrong replica, and never a chain that hides its damage.

usage: fault_test.py DELTAWIRE [--quick] [--fault SPEC] [--verbose]      (quick: without retries of the store's calls)

Needs a build with DELTAWIRE_FAULTS (the presets with tests have it). A case is a fault and a verb in a
small world: a chain of three versions, a replica at the first. The verb is run with the fault, then the
world is looked at without it, the verb is run again, and the world is looked at again.
"""
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from crash_world import World, explain, run_test

# What each exit status is called in a message; docs/reference.md explains them.
ERRORS = {3: "unsupported", 4: "not found", 5: "conflict", 6: "corruption", 7: "base mismatch", 8: "i/o error",
          9: "unavailable", 12: "cancelled"}

def numbered(fault, last):
    return [fault.format(n) for n in range(1, last + 1)]


# Faults of the store, and whether it stores other bytes than it was given: then the chain may be
# damaged, which must be detected.
FAULTS = dict.fromkeys([
    *numbered("unavailable:n={}", 8), *numbered("fail:n={}", 8), *numbered("fail:n={}:code=not-found", 6), "unavailable",
    "unavailable:p=0.3", "fail:op=put", "fail:op=put-if-absent", "fail:op=list", "slow:ms=5", *numbered("duplicate:n={}", 4),
    "duplicate:p=0.3", *numbered("twice:n={}", 4), "twice", "late:n=1:calls=2", "late:n=2:calls=1",
    "late:op=put-if-absent:calls=1", "stale-list:calls=3", "stale-list:seconds=3600", *numbered("flip:n={}", 8), "flip",
    "flip:name=parts/", "flip:name=manifests/", "flip:p=0.3"], False) | dict.fromkeys([
        *numbered("tear:n={}", 4), "tear:op=put-if-absent", "tear:name=parts/", "tear:name=manifests/", "tear:name=schemas/",
        "tear:name=HEAD", *numbered("lost:n={}", 4), "lost:name=parts/", "lost:name=manifests/", "lost:name=HEAD"], True)


class FaultWorld(World):
    """A chain of three versions, a replica at the first."""

    def pull(self, verb, local, *options):
        once = ["--once"] if verb == "follow" else []
        return [verb, self.store, self.root / local, "--name", local, "--log-level", "off", *once, *options]

    def check_replica(self, local):
        """Check that it holds the version that it claims, bit for bit, without reading the store."""
        state = self.state(local)
        if state is None:
            assert not list((self.root / local).glob("*.safetensors")), f"{local}: weights without a version"
            return None
        assert state.get("patching_to") is None, f"{local}: {state}"
        self.verify(self.step(state["version"]), self.root / local)
        return state["version"]


def check_outcome(result):
    """A named exit status, and a message that begins with the name."""
    if result.returncode == 0:
        return
    name = ERRORS.get(result.returncode)
    assert name, explain(result)
    assert f"error: {name}: " in result.stderr, explain(result)


def check_publish(world, fault, keeps_other, retries):
    result = world.run(*world.publish(3, "--inject", fault, "--retries", retries))
    check_outcome(result)
    sound = world.run("fsck", world.store)
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
    # In every case the next publish is complete.
    world.must(*world.publish(3, *(["--accept-loss"] if lost else [])))
    for local in ("replica", "fresh"):
        world.must(*world.pull("pull", local))
        assert world.check_replica(local) == world.head()
    world.verify(world.step(3), world.root / "fresh")
    world.must("fsck", world.store)
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
    world.must("fsck", world.store)
    world.must(*world.pull("pull", local))
    assert world.check_replica(local) == 2
    return result.returncode


def main(options, root):
    origin = FaultWorld(options.binary, root / "origin", root / "weights")
    origin.simulate("20K", 3, 0.02)
    for version in range(3):
        origin.must(*origin.publish(version))
        if version == 0:
            origin.must(*origin.pull("pull", "replica"))
    cases = [(fault, keeps_other, verb, local, retries) for fault, keeps_other in FAULTS.items() if options.fault in ("", fault)
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
        ends = Counter(pool.map(run_case, range(len(cases))))
    listed = ", ".join(f"{count} {ERRORS.get(code, 'ok')}" for code, count in sorted(ends.items()))
    print(f"faults: {sum(ends.values())} runs ({listed}), no wrong replica")


if __name__ == "__main__":
    run_test(main, __doc__, quick=False, fault="", verbose=False)
