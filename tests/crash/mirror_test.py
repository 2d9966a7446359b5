#!/usr/bin/env python3
"""Kills `mirror` at every sync point, and at random while it follows, starts it again, and asks: is what is visible a sound chain, and is
all of it the source's, byte for byte, in the end?

usage: mirror_test.py DELTAWIRE [--quick]

Needs a build with DELTAWIRE_FAULTS.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLED = -signal.SIGKILL
STEPS = 6  # versions 0 ... 6
KINDS = ("run.json", "manifests", "parts", "full", "files", "schemas", "hops")


class World:
    """A folder with a source and what is mirrored of it; copied for every death."""

    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights

    def copy(self, root):
        shutil.copytree(self.root, root)
        return World(self.binary, root, self.weights)

    def path(self, name):
        return str(self.root / name)

    def command(self, *args):
        return [self.binary, *[str(a) for a in args]]

    def environment(self, **more):
        return {**os.environ, "HOME": self.path("home"), "XDG_CACHE_HOME": self.path("home/.cache"), **more}

    def run(self, *args, check=True, **environment):
        command = self.command(*args)
        result = subprocess.run(command, env=self.environment(**environment), capture_output=True, text=True, timeout=120)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
        return result

    def publish(self, version):
        self.run("publish", self.weights / f"v{version}.safetensors", self.path("source"), "--snapshot", self.path("snapshot"),
                 "--anchor-every", 3)

    def objects(self, name):
        root = self.root / name
        files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {str(path.relative_to(root)): path for path in files if path.relative_to(root).parts[0] in KINDS}

    def check(self, complete):
        """What is there is the source's; every version can be had."""
        source, mirror = self.objects("source"), self.objects("mirror")
        for name, path in mirror.items():
            assert name in source and path.read_bytes() == source[name].read_bytes(), f"{name} is not the source's"
        versions = sorted(int(Path(name).stem) for name in mirror if name.startswith("manifests/"))
        if versions:
            report = self.run("fsck", self.path("mirror"), "--json", check=False)
            assert report.returncode == 0, report.stdout
            self.run("pull", self.path("mirror"), self.path("witness"), "--version", versions[-1], "--no-heartbeat")
            self.run("verify", self.path("witness"), self.weights / f"v{versions[-1]}.safetensors")
        if complete:
            assert mirror.keys() == source.keys(), f"not the same objects: {sorted(mirror.keys() ^ source.keys())}"
        left = list((self.root / "home/.cache/deltawire/mirrors").glob("*"))
        assert not complete or not left, f"left in the work folder: {left}"


def kill_everywhere(world, scratch, stride):
    """A mirror of all, killed at each of its points."""
    log = scratch / "points"
    mirror = ["mirror", None, None, "--all", "--no-heartbeat", "--transfers", 1]

    def command(copy):
        return [copy.path("source") if i == 1 else copy.path("mirror") if i == 2 else word for i, word in enumerate(mirror)]

    copy = world.copy(scratch / "count")
    copy.run(*command(copy), DELTAWIRE_CRASH_LOG=str(log))
    copy.check(True)
    shutil.rmtree(copy.root)
    points = len(log.read_text().splitlines()) if log.exists() else 0
    assert points > 0, "no sync points; is this a build with DELTAWIRE_FAULTS?"
    chosen = range(1, points + 1, stride)
    for point in chosen:
        copy = world.copy(scratch / "world")
        try:
            died = copy.run(*command(copy), check=False, DELTAWIRE_CRASH_AT=str(point))
            assert died.returncode in (KILLED, 0), f"exit {died.returncode}: {died.stderr}"
            copy.check(False)
            copy.run(*command(copy))
            copy.check(True)
        except AssertionError as error:
            raise AssertionError(f"killed at point {point} of {points}: {error}") from None
        shutil.rmtree(copy.root)
    print(f"mirror: killed at {len(chosen)} of {points} points, recovered from each", flush=True)


def kill_followers(world, scratch, seed, deaths):
    """Two follow into one mirror and are killed at random, while a trainer publishes."""
    random.seed(seed)
    copy = world.copy(scratch / "follow")
    command = copy.command("mirror", copy.path("source"), copy.path("mirror"), "--all", "--follow", "--interval", 0.1,
                           "--log-level", "off", "--quiet")
    killed = 0

    def start():
        return subprocess.Popen(command, env=copy.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    followers = [start(), start()]
    try:
        for version in range(4, STEPS + 1):
            copy.publish(version)
            for _ in range(max(1, deaths // 3)):
                time.sleep(random.uniform(0, 0.3))
                victim = random.randrange(2)
                followers[victim].kill()
                followers[victim].wait(60)
                followers[victim] = start()
                killed += 1
                copy.check(False)
        copy.run("mirror", copy.path("source"), copy.path("mirror"), "--all")
    finally:
        for follower in followers:
            follower.send_signal(signal.SIGTERM)
    for follower in followers:
        status = follower.wait(60)
        assert status == 0, f"a follower that was told to stop ended with {status}"
    copy.check(True)
    shutil.rmtree(copy.root)
    print(f"mirror --follow: two into one, killed {killed} times at random", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--quick", action="store_true", help="every eighth point")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="deltawire-crash.", dir=os.environ.get("TMPDIR")) as folder:
        scratch = Path(folder)
        world = World(binary, scratch / "origin", scratch / "weights")
        (world.root / "home").mkdir(parents=True)
        world.run("simulate", "--params", "20K", "--steps", STEPS, "--seed", 5, "--density", "0.02", "-o", world.weights, "--quiet")
        for version in range(4):
            world.publish(version)
        world.run("compact", world.path("source"), "--span", 2, "--quiet")
        kill_everywhere(world, scratch, 8 if options.quick else 1)
        kill_followers(world, scratch, options.seed, 9 if options.quick else 60)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"crash test failed: {error}")
