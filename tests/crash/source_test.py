#!/usr/bin/env python3
"""A checkpoint that is written to while it is read, end to end: an error that names it, nothing committed,
and the next command succeeds.

usage: source_test.py DELTAWIRE
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IO_ERROR = 8
PATIENCE = 60  # seconds for what takes one


class World:
    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights
        self.store, self.local, self.file = root / "store", root / "local", root / "in/model.safetensors"
        self.file.parent.mkdir(parents=True)
        self.env = {**os.environ, "HOME": str(root)}

    def start(self, *args):
        return subprocess.Popen([self.binary, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.env)

    def must(self, *args):
        process = self.start(*args)
        out, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{' '.join(map(str, args))}: exit {process.returncode}: {error}"
        return out

    def save(self, version):
        """Into the file that is there, as cp does."""
        shutil.copyfile(self.weights / f"v{version}.safetensors", self.file)

    def versions(self):
        return len(list((self.store / "manifests").glob("*.json"))) if (self.store / "manifests").exists() else 0

    def attempts(self):
        return {path.name for kind in ("full", "parts") for path in self.store.glob(f"{kind}/*")}

    def wait(self, done, what):
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, f"timed out: {what}"
            time.sleep(0.01)

    def check(self, version):
        self.must("fsck", self.store)
        self.must("pull", self.store, self.local, "--no-heartbeat")
        self.must("verify", self.weights / f"v{version}.safetensors", self.local)


def publish_meddled(world, meddle, rate, expected_versions):
    """A publish whose upload takes a while, and somebody who writes to the file meanwhile."""
    before = world.attempts()
    process = world.start("publish", world.file, world.store, "--rate-limit", rate, "--threads", "1")
    world.wait(lambda: world.attempts() - before or process.poll() is not None, "the upload")
    meddle()
    out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == IO_ERROR, f"exit {process.returncode}: {out}{error}"
    for words in (str(world.file), "changed while it was read", "publish again"):
        assert words in error, error
    assert world.versions() == expected_versions


def one_at_a_time(world):
    world.save(0)
    publish_meddled(world, lambda: world.save(1), "500KB", 0)  # whole
    world.must("publish", world.file, world.store)
    world.check(1)
    world.save(2)
    publish_meddled(world, lambda: world.save(3), "10KB", 1)  # a delta
    publish_meddled(world, lambda: os.truncate(world.file, 1000), "10KB", 1)
    world.save(3)
    world.must("publish", world.file, world.store)
    world.check(3)


def watched(world):
    world.save(0)
    process = world.start("publish", "--watch", world.file.parent, world.store, "--rate-limit", "500KB", "--settle", "0.2",
                          "--interval", "0.1", "--log-format", "json")
    try:
        world.wait(world.attempts, "the upload")
        world.save(1)
        world.wait(lambda: world.versions() == 1, "version 0")
    finally:
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=PATIENCE)[1]
    failed = [json.loads(line) for line in error.splitlines() if "publish.failed" in line]
    assert failed and "changed while it was read" in json.dumps(failed), error
    world.check(1)


def main():
    binary = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="deltawire-source.", dir=os.environ.get("TMPDIR")) as folder:
        root = Path(folder)
        weights = root / "weights"
        subprocess.run([binary, "simulate", "--params", "1M", "--steps", "3", "--density", "0.05", "-o", weights, "-q"],
                       check=True)
        for scenario in (one_at_a_time, watched):
            try:
                scenario(World(binary, root / scenario.__name__, weights))
            except AssertionError as error:
                raise AssertionError(f"{scenario.__name__}: {error}") from None
    print("sources: written to, cut short and watched")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"source test failed: {error}")
