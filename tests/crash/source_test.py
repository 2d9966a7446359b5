#!/usr/bin/env python3
"""A checkpoint that is written to while it is read, end to end: an error that names it, nothing committed,
and the next command succeeds.

usage: source_test.py DELTAWIRE
"""
import json
import os
import shutil
import signal

from crash_world import IO_ERROR, World, explain, finished, run_test, wait_until


class SourceWorld(World):
    def __init__(self, binary, root, weights):
        super().__init__(binary, root, weights)
        self.file = root / "in/model.safetensors"
        self.file.parent.mkdir(exist_ok=True)

    def save(self, version):
        """Overwrite the existing file, like cp."""
        shutil.copyfile(self.step(version), self.file)

    def check(self, version):
        self.must("fsck", self.store)
        self.must("pull", self.store, self.local, "--no-heartbeat")
        self.verify(self.step(version), self.local)


def publish_meddled(world, meddle, rate, expected_versions):
    """A publish with a slow upload, during which the file is modified."""
    before = world.attempts()
    process = world.start("publish", world.file, world.store, "--rate-limit", rate, "--threads", "1")
    wait_until(lambda: world.attempts() - before or process.poll() is not None, "the upload")
    meddle()
    result = finished(process)
    assert result.returncode == IO_ERROR, explain(result)
    for words in (str(world.file), "changed while it was read", "publish again"):
        assert words in result.stderr, result.stderr
    assert len(world.versions()) == expected_versions


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
        wait_until(world.attempts, "the upload")
        world.save(1)
        wait_until(lambda: world.versions() == [0], "version 0")
    finally:
        process.send_signal(signal.SIGTERM)
        error = finished(process).stderr
    failed = [json.loads(line) for line in error.splitlines() if "publish.failed" in line]
    assert failed and "changed while it was read" in json.dumps(failed), error
    world.check(1)


def main(options, root):
    SourceWorld(options.binary, root, root / "weights").simulate("1M", 3, 0.05)
    for scenario in (one_at_a_time, watched):
        try:
            scenario(SourceWorld(options.binary, root / scenario.__name__, root / "weights"))
        except AssertionError as error:
            raise AssertionError(f"{scenario.__name__}: {error}") from None
    print("sources: written to, cut short and watched")


if __name__ == "__main__":
    run_test(main, __doc__)
