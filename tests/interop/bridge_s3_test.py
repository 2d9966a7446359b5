#!/usr/bin/env python3
"""import and export with buckets on both sides, once and with --follow, against a real S3 server.

usage: servers/rgw run interop/bridge_s3_test.py DELTAWIRE    (or with DELTAWIRE_RGW_DIR: a server that is up)

A trainer's chain, their files and the chain that is made of these are all in one bucket. What arrives is compared with the
trainer's weights, bit for bit.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

DELTAWIRE = sys.argv[1]
BUCKET = "deltawire-bridges"
PATIENCE = 120  # seconds
LAST = 4


def load_server():
    """The server's address and keys, in the environment; exits with 77 where there is none."""
    if "DELTAWIRE_RGW_ENDPOINT" in os.environ:
        return
    file = Path(os.environ.get("DELTAWIRE_RGW_DIR", "")) / "env"
    if "DELTAWIRE_RGW_DIR" not in os.environ or not file.exists():
        print("skipped: no Ceph RADOS Gateway (radosgw)")
        sys.exit(77)
    for line in file.read_text().splitlines():
        name, value = shlex.split(line)[1].split("=", 1)
        os.environ[name] = value


def make_bucket():
    keys = f"user = \"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}\"\n"
    url = f"{os.environ['DELTAWIRE_RGW_ENDPOINT']}/{BUCKET}"
    signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-K", "-"]
    subprocess.run(["curl", "-sS", "--fail", "-X", "PUT", *signed, url], input=keys, text=True, check=True, timeout=PATIENCE,
                   stdout=subprocess.DEVNULL)


class World:
    """A folder, and a prefix of the bucket that no other test uses."""

    def __init__(self, root):
        self.root, self.prefix = root, uuid.uuid4().hex
        self.weights = root / "weights"
        self.run("simulate", "--params", "100K", "--steps", LAST, "--density", "0.02", "--seed", 9, "-o", self.weights, "-q")

    def url(self, name):
        return f"s3://{BUCKET}/{self.prefix}/{name}"

    def command(self, verb, *args):
        store = [] if verb in ("simulate", "verify") else ["--endpoint", os.environ["DELTAWIRE_RGW_ENDPOINT"]]
        return [DELTAWIRE, verb, *map(str, args), *store]

    def run(self, verb, *args):
        done = subprocess.run(self.command(verb, *args), env=os.environ | {"HOME": str(self.root / "home")}, timeout=PATIENCE,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{verb} {args}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def publish(self, version):
        self.run("publish", self.weights / f"v{version}.safetensors", self.url("trainer"), "--snapshot",
                 self.root / "snapshot", "-q")

    def holds(self, store, version):
        """Whether the chain has the version; then it must be the trainer's."""
        found = subprocess.run(self.command("pull", self.url(store), self.root / f"replica-{store}", "--version", version,
                                            "--no-heartbeat", "-q"),
                               env=os.environ | {"HOME": str(self.root / "home")}, timeout=PATIENCE, capture_output=True)
        if found.returncode != 0:
            return False
        self.run("verify", self.root / f"replica-{store}", self.weights / f"v{version}.safetensors")
        return True

    @contextmanager
    def following(self, *args, end=signal.SIGTERM):
        process = subprocess.Popen(self.command(*args, "--follow", "--interval", "0.1", "--log-level", "off"),
                                   env=os.environ | {"HOME": str(self.root / "home")}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        try:
            yield process
            assert process.poll() is None, f"{args}: ended by itself: {process.stderr.read()}"
        finally:
            process.send_signal(end)
            _, error = process.communicate(timeout=PATIENCE)
        expected = 0 if end == signal.SIGTERM else -end
        assert process.returncode == expected, f"{args}: exit {process.returncode}: {error}"


def wait_until(done, what):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.1)


def once(world):
    """All that is there; a second call has nothing to do."""
    for version in range(3):
        world.publish(version)
    for dialect, base in (("slime", ["--base", world.weights / "v0.safetensors"]), ("trl", [])):
        there = world.url(f"once-{dialect}")
        back = f"back-{dialect}"
        export = ["export", dialect, world.url("trainer"), there, "--work", world.root / f"work-{dialect}"]
        bring = ["import", dialect, there, world.url(back), "--work", world.root / back]
        world.run(*export)
        world.run(*bring, *base)
        for version in (1, 2):
            assert world.holds(back, version), f"{dialect}: version {version} did not come back"
        assert "nothing new" in world.run(*export)
        assert "nothing new" in world.run(*bring)


def follow(world):
    """Both ends go on with what appears; one that was killed goes on where it was."""
    export = ["export", "slime", world.url("trainer"), world.url("deltas"), "--work", world.root / "export"]
    bring = ["import", "slime", world.url("deltas"), world.url("back"), "--work", world.root / "import", "--base",
             world.weights / "v0.safetensors"]
    with world.following(*export, end=signal.SIGKILL), world.following(*bring, end=signal.SIGKILL):
        wait_until(lambda: world.holds("back", 2), "version 2")
        world.publish(3)
        wait_until(lambda: world.holds("back", 3), "version 3")
    world.publish(4)
    with world.following(*export), world.following(*bring):
        wait_until(lambda: world.holds("back", 4), "version 4")
    world.run("fsck", world.url("back"))
    for version in range(LAST + 1):
        assert world.holds("back", version), f"version {version}"


def main():
    load_server()
    make_bucket()
    with tempfile.TemporaryDirectory(prefix="deltawire-s3.") as folder:
        world = World(Path(folder))
        for scenario in (once, follow):
            scenario(world)
            print(f"{scenario.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
