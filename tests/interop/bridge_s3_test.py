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
import uuid
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crash"))
from crash_world import PATIENCE, World, explain, finished, run_test, wait_until  # noqa: E402

BUCKET = "deltawire-bridges"
LAST = 4


def load_server():
    """Put the server's address and keys into the environment; exit with 77 if there is none."""
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


class BucketWorld(World):
    """A folder, and a prefix of the bucket that no other test uses."""

    prefix = uuid.uuid4().hex

    def url(self, name):
        return f"s3://{BUCKET}/{self.prefix}/{name}"

    def start(self, verb, *args):
        store = [] if verb in ("simulate", "verify") else ["--endpoint", os.environ["DELTAWIRE_RGW_ENDPOINT"]]
        return super().start(verb, *args, *store)

    def publish(self, version):
        self.must("publish", self.step(version), self.url("trainer"), "--snapshot", self.snapshot, "-q")

    def holds(self, store, version):
        """Whether the chain has the version, which then must be the trainer's."""
        replica = self.root / f"replica-{store}"
        if self.run("pull", self.url(store), replica, "--version", version, "--no-heartbeat", "-q").returncode != 0:
            return False
        self.must("verify", replica, self.step(version))
        return True

    @contextmanager
    def following(self, *args, end=signal.SIGTERM):
        process = self.start(*args, "--follow", "--interval", "0.1", "--log-level", "off", "-q")
        try:
            yield process
            assert process.poll() is None, f"{args}: ended by itself: {process.stderr.read()}"
        finally:
            process.send_signal(end)
            ended = finished(process)
        assert ended.returncode == (0 if end == signal.SIGTERM else -end), explain(ended)


def once(world):
    """Copy everything; a second call has nothing to do."""
    for version in range(3):
        world.publish(version)
    for dialect, base in (("slime", ["--base", world.step(0)]), ("trl", [])):
        there = world.url(f"once-{dialect}")
        back = f"back-{dialect}"
        export = ["export", dialect, world.url("trainer"), there, "--work", world.root / f"work-{dialect}"]
        bring = ["import", dialect, there, world.url(back), "--work", world.root / back]
        world.must(*export)
        world.must(*bring, *base)
        for version in (1, 2):
            assert world.holds(back, version), f"{dialect}: version {version} did not come back"
        assert "nothing new" in world.must(*export).stdout
        assert "nothing new" in world.must(*bring).stdout


def follow(world):
    """Both ends follow new versions; a killed one continues where it was."""
    export = ["export", "slime", world.url("trainer"), world.url("deltas"), "--work", world.root / "export"]
    bring = ["import", "slime", world.url("deltas"), world.url("back"), "--work", world.root / "import", "--base",
             world.step(0)]
    with world.following(*export, end=signal.SIGKILL), world.following(*bring, end=signal.SIGKILL):
        wait_until(lambda: world.holds("back", 2), "version 2")
        world.publish(3)
        wait_until(lambda: world.holds("back", 3), "version 3")
    world.publish(4)
    with world.following(*export), world.following(*bring):
        wait_until(lambda: world.holds("back", 4), "version 4")
    world.must("fsck", world.url("back"))
    for version in range(LAST + 1):
        assert world.holds("back", version), f"version {version}"


def main(options, root):
    load_server()
    make_bucket()
    world = BucketWorld(options.binary, root, root / "weights")
    world.simulate("100K", LAST, 0.02, seed=9)
    for scenario in (once, follow):
        scenario(world)
        print(f"{scenario.__name__}: ok", flush=True)


if __name__ == "__main__":
    run_test(main, __doc__)
