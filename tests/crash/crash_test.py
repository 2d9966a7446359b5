#!/usr/bin/env python3
"""Kills publisher, replica and maintenance at every sync point, starts them again, and asks:
is the chain readable, are its versions complete, does no replica report what it does not hold, is
nothing that was committed lost?

usage: crash_test.py DELTAWIRE [--at-least N] [--scenario NAME] [--rounds N] [--quick]

Needs a build with DELTAWIRE_FAULTS (the presets with tests have it). A scenario is a command and the
world it starts in. It is run once to count the points it passes, then once for each point with a
SIGKILL there; after each death the world is checked, the command run again, and checked again.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from crash_world import World, count_points

KILLED = -signal.SIGKILL


def make_checkpoints(binary, folder, seed):
    """Folders with weights and files beside them: one changes with every step, one comes and goes, one stays."""
    subprocess.run([binary, "simulate", "--params", "20K", "--steps", "4", "--seed", str(seed), "--density", "0.02",
                    "-o", folder, "--quiet"], check=True)
    checkpoints = [folder / f"step-{i}" for i in range(5)]
    for i, checkpoint in enumerate(checkpoints):
        checkpoint.mkdir()
        (folder / f"v{i}.safetensors").rename(checkpoint / "model.safetensors")
        (checkpoint / "config.json").write_text(f'{{"step": {i}}}')
        (checkpoint / "tokenizer.json").write_text("{}")
        if i % 2 == 1:
            (checkpoint / "chat template.jinja").write_text("é")
    return [str(checkpoint) for checkpoint in checkpoints]


def files_beside(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()
            if not path.name.startswith(".") and path.suffix != ".safetensors"}


class ChainWorld(World):
    """A store, a trainer's snapshot and replicas."""

    def publish(self, step, *options):
        return ["publish", self.weights[step], self.path("store"), "--snapshot", self.path("snapshot"),
                *options]

    def publish_weights(self, step, *options):
        """No files beside them, which stay as they are: the snapshot is written over, not patched."""
        weights = self.root / "weights"
        weights.mkdir(exist_ok=True)
        shutil.copy(Path(self.weights[step]) / "model.safetensors", weights / "model.safetensors")
        return ["publish", str(weights / "model.safetensors"), self.path("store"), "--snapshot", self.path("snapshot"),
                *options]

    def pull(self, *options):
        return ["pull", self.path("store"), self.path("replica"), "--name", "replica", *options]

    def head(self):
        manifests = sorted((self.root / "store" / "manifests").glob("*.json"))
        return int(manifests[-1].stem) if manifests else -1

    def check(self, told):
        """What must hold at any time. `told`: versions that a publisher reported as committed."""
        store = self.root / "store"
        if (store / "run.json").exists() and self.head() >= 0:
            self.run("fsck", self.path("store"))
        assert self.head() >= max(told, default=-1), f"version {max(told)} was committed and is lost"
        for replica in ("replica", "cow"):
            state_file = self.root / replica / ".deltawire" / "state.json"
            if state_file.exists():
                self.check_replica(replica)

    def check_replica(self, replica):
        """Opens it, which recovers it, without asking for a newer version, and compares the bits."""
        state = json.loads((self.root / replica / ".deltawire" / "state.json").read_text())
        version = state.get("patching_to")
        version = state["version"] if version is None else version
        extra = ["--copy-on-write"] if replica == "cow" else []
        self.run("pull", self.path("store"), self.path(replica), "--version", version, "--no-repair",
                 "--no-heartbeat", *extra)
        self.verify(version, self.root / replica / ("current" if replica == "cow" else ""))

    def verify(self, version, local):
        self.run("verify", self.weights[version], local)
        alone = (self.root / "weights").exists()
        expected, got = {} if alone else files_beside(self.weights[version]), files_beside(local)
        assert expected == got, f"files beside the weights at version {version}: expected {expected}, got {got}"


def scenarios():
    """name -> (what is done before, the command, which version it commits or None)"""
    return {
        "seed": ([], lambda w: w.publish(0), 0),
        "publish": ([lambda w: w.publish(0)], lambda w: w.publish(1), 1),
        "publish weights alone": ([lambda w: w.publish_weights(0)], lambda w: w.publish_weights(1), 1),
        "publish in parts": ([lambda w: w.publish(0)], lambda w: w.publish(1, "--part-size", "64"), 1),
        "publish with an anchor": ([lambda w: w.publish(0)], lambda w: w.publish(1, "--anchor-every", "1"), 1),
        "publish full": ([lambda w: w.publish(0)], lambda w: w.publish(1, "--mode", "full"), 1),
        "resume without a snapshot": (
            [lambda w: w.publish(0), lambda w: w.publish(1), lambda w: ["rm", "snapshot"]],
            lambda w: w.publish(2), 2),
        "accept a loss": (
            [*[lambda w, i=i: w.publish(i) for i in range(4)], lambda w: ["rm", "store/manifests/0000000003.json"]],
            lambda w: w.publish(3, "--accept-loss"), 3),
        "first pull": ([lambda w: w.publish(0), lambda w: w.publish(1)], lambda w: w.pull(), None),
        "pull": ([lambda w: w.publish(0), lambda w: w.pull(), lambda w: w.publish(1)],
                 lambda w: w.pull(), None),
        "pull many parts": (
            [lambda w: w.publish(0), lambda w: w.pull(), lambda w: w.publish(1, "--part-size", "64")],
            lambda w: w.pull(), None),
        "pull three versions": (
            [lambda w: w.publish(0), lambda w: w.pull(), *[lambda w, i=i: w.publish(i) for i in (1, 2, 3)]],
            lambda w: w.pull(), None),
        "pull a full version": (
            [lambda w: w.publish(0), lambda w: w.pull(), lambda w: w.publish(1, "--mode", "full")],
            lambda w: w.pull(), None),
        "pull copy-on-write": (
            [lambda w: w.publish(0),
             lambda w: ["pull", w.path("store"), w.path("cow"), "--copy-on-write"], lambda w: w.publish(1)],
            lambda w: ["pull", w.path("store"), w.path("cow"), "--copy-on-write"], None),
        "compact": ([*[lambda w, i=i: w.publish(i) for i in range(5)]],
                    lambda w: ["compact", w.path("store"), "--span", "2,4"], None),
        "gc": ([*[lambda w, i=i: w.publish(i, "--anchor-every", "2") for i in range(5)]],
               lambda w: ["gc", w.path("store"), "--keep", "2", "--grace", "0s"], None),
    }


def prepare(world, steps):
    for step in steps:
        args = step(world)
        if args[0] == "rm" and os.path.isdir(world.path(args[1])):
            shutil.rmtree(world.path(args[1]))
        elif args[0] == "rm":
            os.remove(world.path(args[1]))
        else:
            world.run(*args)


def kill_everywhere(name, world, steps, command, version, scratch, stride):
    prepare(world, steps)
    told = [world.head()]
    points = count_points(world, command, lambda copy: copy.check([]), scratch)
    chosen = range(1, points + 1, stride if points > 30 else 1)
    for point in chosen:
        copy = world.copy(scratch / "world")
        try:
            died = copy.run(*command(copy), check=False, DELTAWIRE_CRASH_AT=str(point))
            # Threads may pass fewer points than in the count; then it has simply succeeded.
            assert died.returncode in (KILLED, 0), f"exit {died.returncode}: {died.stderr}"
            copy.check(told)
            again = copy.run(*command(copy), check=False)
            assert again.returncode == 0, f"second run: exit {again.returncode}: {again.stderr}"
            copy.check(told if version is None else [version])
            copy.run("pull", copy.path("store"), copy.path("witness"), "--no-heartbeat")
            copy.verify(copy.head(), copy.path("witness"))
            aside = list(Path(copy.root).glob("*/.deltawire/aside"))
            assert not aside, f"the chain's own files were put aside: {aside}"
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from None
        shutil.rmtree(copy.root)
    return len(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--at-least", type=int, default=0, help="fail when fewer points were killed at")
    parser.add_argument("--scenario", help="only this one")
    parser.add_argument("--quick", action="store_true", help="every other point of the long scenarios")
    parser.add_argument("--rounds", type=int, default=1, help="with other weights each time")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    total = 0
    with tempfile.TemporaryDirectory(prefix="deltawire-crash.", dir=os.environ.get("TMPDIR")) as folder:
        scratch = Path(folder)
        for round_number in range(options.rounds):
            checkpoints = make_checkpoints(binary, scratch / f"weights-{round_number}", round_number + 1)
            for name, (steps, command, version) in scenarios().items():
                if options.scenario not in (None, name):
                    continue
                root = scratch / "origin"
                (root / "home").mkdir(parents=True)
                points = kill_everywhere(name, ChainWorld(binary, root, checkpoints), steps, command, version, scratch,
                                         2 if options.quick else 1)
                shutil.rmtree(root)
                total += points
                print(f"{name}: killed at {points} points, recovered from each", flush=True)
    print(f"crash test: {total} points")
    assert total >= options.at_least, f"expected at least {options.at_least} points"


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"crash test failed: {error}")
