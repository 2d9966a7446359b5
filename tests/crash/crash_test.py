#!/usr/bin/env python3
"""Kills publisher, replica and maintenance at every sync point, starts them again, and asks:
is the chain readable, are its versions complete, does no replica report what it does not hold, is
nothing that was committed lost?

usage: crash_test.py DELTAWIRE [--at-least N] [--scenario NAME] [--rounds N] [--quick]

Needs a build with DELTAWIRE_FAULTS (the presets with tests have it). A scenario is a command and the
world it starts in. It is run once to count the points it passes, then once for each point with a
SIGKILL there; after each death the world is checked, the command run again, and checked again.
"""
import shutil
import subprocess
from pathlib import Path

from crash_world import World, kill_everywhere, run_test


def make_checkpoints(world, seed):
    """Folders with weights and side files: one changes with every step, one comes and goes, one stays."""
    world.simulate("20K", 4, 0.02, seed)
    for i in range(5):
        checkpoint = world.weights / f"step-{i}"
        checkpoint.mkdir()
        World.step(world, i).rename(checkpoint / "model.safetensors")
        (checkpoint / "config.json").write_text(f'{{"step": {i}}}')
        (checkpoint / "tokenizer.json").write_text("{}")
        if i % 2 == 1:
            (checkpoint / "chat template.jinja").write_text("é")


def files_beside(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()
            if not path.name.startswith(".") and path.suffix != ".safetensors"}


class ChainWorld(World):
    """A store, a trainer's snapshot and replicas."""

    def step(self, version):
        return self.weights / f"step-{version}"

    def publish_weights(self, step, *options):
        """Without side files, which stay unchanged: the snapshot is overwritten, not patched."""
        weights = self.root / "weights"
        weights.mkdir(exist_ok=True)
        shutil.copy(self.step(step) / "model.safetensors", weights)
        return ["publish", weights / "model.safetensors", self.store, "--snapshot", self.snapshot, *options]

    def pull(self, *options):
        return ["pull", self.store, self.root / "replica", "--name", "replica", *options]

    def pull_copy_on_write(self):
        return ["pull", self.store, self.root / "cow", "--copy-on-write"]

    def check(self, told):
        """Check the invariants. `told`: a version that a publisher reported as committed, or -1."""
        if (self.store / "run.json").exists() and self.head() >= 0:
            self.must("fsck", self.store)
        assert self.head() >= told, f"version {told} was committed and is lost"
        for replica in ("replica", "cow"):
            if self.state(replica) is not None:
                self.check_replica(replica)

    def check_replica(self, replica):
        """Open it, which recovers it, without pulling a newer version, and compare the bits."""
        state = self.state(replica)
        version = state["version"] if state.get("patching_to") is None else state["patching_to"]
        extra = ["--copy-on-write"] if replica == "cow" else []
        self.must("pull", self.store, self.root / replica, "--version", version, "--no-repair", "--no-heartbeat", *extra)
        self.verify_version(version, self.root / replica / ("current" if replica == "cow" else ""))

    def check_again(self, told):
        """Checks after a second run of the killed command."""
        self.check(told)
        self.must("pull", self.store, self.root / "witness", "--no-heartbeat")
        self.verify_version(self.head(), self.root / "witness")
        aside = list(self.root.glob("*/.deltawire/aside"))
        assert not aside, f"the chain's own files were put aside: {aside}"

    def verify_version(self, version, local):
        self.verify(self.step(version), local)
        alone = (self.root / "weights").exists()
        expected, got = {} if alone else files_beside(self.step(version)), files_beside(local)
        assert expected == got, f"files beside the weights at version {version}: expected {expected}, got {got}"


def scenarios():
    """name -> (the preparation, the command, the version that it commits or None)"""
    def publish(step, *options):
        return lambda w: w.publish(step, *options)

    def pull(w):
        return w.pull()

    def remove(name):
        return lambda w: subprocess.run(["rm", "-r", w.root / name], check=True) and None

    seed, many = publish(0), [publish(i) for i in range(5)]
    return {
        "seed": ([], seed, 0),
        "publish": ([seed], publish(1), 1),
        "publish weights alone": ([lambda w: w.publish_weights(0)], lambda w: w.publish_weights(1), 1),
        "publish in parts": ([seed], publish(1, "--part-size", "64"), 1),
        "publish with an anchor": ([seed], publish(1, "--anchor-every", "1"), 1),
        "publish full": ([seed], publish(1, "--mode", "full"), 1),
        "resume without a snapshot": ([*many[:2], remove("snapshot")], publish(2), 2),
        "accept a loss": ([*many[:4], remove("store/manifests/0000000003.json")], publish(3, "--accept-loss"), 3),
        "first pull": (many[:2], pull, None),
        "pull": ([seed, pull, publish(1)], pull, None),
        "pull many parts": ([seed, pull, publish(1, "--part-size", "64")], pull, None),
        "pull three versions": ([seed, pull, *many[1:4]], pull, None),
        "pull a full version": ([seed, pull, publish(1, "--mode", "full")], pull, None),
        "pull copy-on-write": ([seed, ChainWorld.pull_copy_on_write, publish(1)], ChainWorld.pull_copy_on_write, None),
        "compact": (many, lambda w: ["compact", w.store, "--span", "2,4"], None),
        "gc": ([publish(i, "--anchor-every", "2") for i in range(5)],
               lambda w: ["gc", w.store, "--keep", "2", "--grace", "0s"], None),
    }


def prepare(world, steps):
    for step in steps:
        args = step(world)
        if args is not None:
            world.must(*args)


def checks(world, version):
    """The checks after a kill, and after the second run, which commits this version."""
    told = world.head()
    return lambda copy, done: copy.check_again(told if version is None else version) if done else copy.check(told)


def main(options, scratch):
    total = 0
    for round_number in range(options.rounds):
        weights = scratch / f"weights-{round_number}"
        make_checkpoints(ChainWorld(options.binary, scratch, weights), round_number + 1)
        for name, (steps, command, version) in scenarios().items():
            if options.scenario in ("", name):
                world = ChainWorld(options.binary, scratch / "origin", weights)
                prepare(world, steps)
                total += kill_everywhere(name, world, command, checks(world, version), scratch, 2 if options.quick else 1)
                shutil.rmtree(world.root)
    print(f"crash test: {total} points")
    assert total >= options.at_least, f"expected at least {options.at_least} points"


if __name__ == "__main__":
    run_test(main, __doc__, at_least=0, scenario="", quick=False, rounds=1)
