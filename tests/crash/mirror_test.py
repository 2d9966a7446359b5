#!/usr/bin/env python3
"""Kills `mirror` at every sync point, and at random while it follows, starts it again, and asks: is what is visible a sound chain, and is
all of it the source's, byte for byte, in the end?

usage: mirror_test.py DELTAWIRE [--quick] [--seed N]      (quick: every eighth point, and fewer at random)

Needs a build with DELTAWIRE_FAULTS.
"""
import random
import signal
import time
from pathlib import Path

from crash_world import World, kill_everywhere, run_test

STEPS = 6  # versions 0 ... 6
KINDS = ("run.json", "manifests", "parts", "full", "files", "schemas", "hops")


class MirrorWorld(World):
    """A store and its mirror."""

    def mirror(self, *options):
        return ["mirror", self.store, self.root / "mirror", "--all", *options]

    def objects(self, name):
        root = self.root / name
        files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {str(path.relative_to(root)): path for path in files if path.relative_to(root).parts[0] in KINDS}

    def check(self, complete):
        """All objects equal the source's; every version can be pulled."""
        source, mirror = self.objects("store"), self.objects("mirror")
        for name, path in mirror.items():
            assert name in source and path.read_bytes() == source[name].read_bytes(), f"{name} is not the source's"
        versions = sorted(int(Path(name).stem) for name in mirror if name.startswith("manifests/"))
        if versions:
            report = self.run("fsck", self.root / "mirror", "--json")
            assert report.returncode == 0, report.stdout
            self.check_pulled("mirror", versions[-1])
        if complete:
            assert mirror.keys() == source.keys(), f"not the same objects: {sorted(mirror.keys() ^ source.keys())}"
        left = list((self.root / "home/.cache/deltawire/mirrors").glob("*"))
        assert not complete or not left, f"left in the work folder: {left}"


def kill_followers(world, seed, deaths):
    """Two processes follow into one mirror and are killed at random, while a trainer publishes."""
    random.seed(seed)
    killed = 0

    def start():
        return world.start(*world.mirror("--follow", "--interval", 0.1, "--log-level", "off", "--quiet"))

    followers = [start(), start()]
    try:
        for version in range(4, STEPS + 1):
            world.must(*world.publish(version, "--anchor-every", 3))
            for _ in range(max(1, deaths // 3)):
                time.sleep(random.uniform(0, 0.3))
                victim = random.randrange(2)
                followers[victim].kill()
                followers[victim].wait(60)
                followers[victim] = start()
                killed += 1
                world.check(False)
        world.must(*world.mirror())
    finally:
        for follower in followers:
            follower.send_signal(signal.SIGTERM)
    for follower in followers:
        status = follower.wait(60)
        assert status == 0, f"a follower that was told to stop ended with {status}"
    world.check(True)
    print(f"mirror --follow: two into one, killed {killed} times at random", flush=True)


def main(options, scratch):
    world = MirrorWorld(options.binary, scratch / "origin", scratch / "weights")
    world.simulate("20K", STEPS, 0.02, seed=5)
    for version in range(4):
        world.must(*world.publish(version, "--anchor-every", 3))
    world.must("compact", world.store, "--span", 2, "--quiet")
    kill_everywhere("mirror", world, lambda copy: copy.mirror("--no-heartbeat", "--transfers", 1), MirrorWorld.check, scratch,
                    8 if options.quick else 1)
    kill_followers(world, options.seed, 9 if options.quick else 60)


if __name__ == "__main__":
    run_test(main, __doc__, quick=False, seed=1)
