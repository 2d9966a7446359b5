#!/usr/bin/env python3
"""Disks that are full or read-only, under the replica, the store, the snapshot and an export: an error that names
the place, nothing half done, and once there is room the same command succeeds.

usage: disk_test.py DELTAWIRE

Every disk is a small tmpfs in a mount namespace of its own; where that is not allowed the test is skipped
(exit 77).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter

from crash_world import IO_ERROR, World, explain, run_test

DISK_KB = 2048
INSIDE = "DELTAWIRE_DISK_TEST_INSIDE"


class Disk:
    """A tmpfs that can be filled up to a number of KB."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "none", path], check=True)

    def fill(self, left_kb):
        info = os.statvfs(self.path)
        free = info.f_bavail * info.f_frsize - left_kb * 1024
        if free > 0:
            (self.path / "filler").write_bytes(bytes(free))

    def make_room(self):
        (self.path / "filler").unlink(missing_ok=True)

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.path], check=True)

    def remove(self):
        subprocess.run(["umount", self.path], check=True)
        self.path.rmdir()


class DiskWorld(World):
    """A world whose store, snapshot and replica are in separate folders, where a disk may be mounted."""

    def __init__(self, binary, root, weights):
        super().__init__(binary, root, weights)
        self.run_folder, self.ckpt = self.store / "run", self.local / "ckpt"

    def publish(self, version, *options):
        return ["publish", self.step(version), self.run_folder, "--snapshot", self.snapshot / "run", "--json", *options]

    def pull(self):
        return ["pull", self.run_folder, self.ckpt, "--no-heartbeat"]

    def check_replica(self, *expected):
        if expected:
            assert self.held(self.ckpt) == expected[0], self.held(self.ckpt)
        if self.held(self.ckpt) is not None:
            self.verify(self.step(self.held(self.ckpt)), self.ckpt)


def expect_full(result, place, why="No space left"):
    assert result.returncode == IO_ERROR and why in result.stderr and str(place) in result.stderr, explain(result)


def replica_on_a_full_disk(world, left_kb, version):
    """From scratch (version 0) or from the previous version."""
    world.store.mkdir(), world.snapshot.mkdir()
    disk = Disk(world.local)
    for v in range(version + 1):
        world.must(*world.publish(v))
        if v < version:
            world.must(*world.pull())
    before = world.held(world.ckpt)
    disk.fill(left_kb)
    result = world.run(*world.pull())
    if result.returncode != 0:
        expect_full(result, world.local)
    world.check_replica(before if result.returncode != 0 else version)
    disk.make_room()
    world.must(*world.pull())
    world.check_replica(version)
    disk.remove()
    return result.returncode


def store_on_a_full_disk(world, left_kb, version):
    world.snapshot.mkdir(), world.local.mkdir()
    disk = Disk(world.store)
    for v in range(version):
        world.must(*world.publish(v))
    disk.fill(left_kb)
    result = world.run(*world.publish(version))
    if result.returncode != 0:
        expect_full(result, world.store)
    if version != 0:
        world.must("fsck", world.run_folder)
    disk.make_room()
    report = json.loads(world.must(*world.publish(version)).stdout)
    assert report["version"] == version, report
    world.must("fsck", world.run_folder)
    world.must(*world.pull())
    world.check_replica(version)
    disk.remove()
    return result.returncode


def snapshot_on_a_full_disk(world, left_kb, version):
    """The version is committed; the snapshot catches up later."""
    world.store.mkdir(), world.local.mkdir()
    disk = Disk(world.snapshot)
    for v in range(version):
        world.must(*world.publish(v))
    disk.fill(left_kb)
    result = world.run(*world.publish(version))
    if result.returncode != 0:
        expect_full(result, world.snapshot)
    disk.make_room()
    world.must(*world.publish(version))
    world.must(*world.publish(version + 1))
    world.must(*world.pull())
    world.check_replica(version + 1)
    world.must("fsck", world.run_folder)
    disk.remove()
    return result.returncode


def export_on_a_full_disk(world, left_kb, version):
    """An exported version's folder is complete or absent, with or without an earlier version."""
    world.store.mkdir(), world.snapshot.mkdir()
    target = world.root / "target"
    disk = Disk(target)
    export = ["export", "slime", world.run_folder, target / "deltas", "--work", world.root / "work"]
    for v in range(version + 2):
        world.must(*world.publish(v))
        if 0 < v <= version:
            world.must(*export)
    disk.fill(left_kb)
    result = world.run(*export)
    if result.returncode != 0:
        expect_full(result, target)
    for folder in (target / "deltas").glob("weight_v*"):
        assert (folder / "model.safetensors.index.json").exists(), f"{folder.name}: {os.listdir(folder)}"
    disk.make_room()
    world.must(*export)
    world.must("verify", target / f"deltas/weight_v{version + 1:06}", world.step(version + 1))
    disk.remove()
    return result.returncode


def read_only_disks(world):
    store, local = Disk(world.store), Disk(world.local)
    world.snapshot.mkdir()
    world.must(*world.publish(0))
    world.must(*world.pull())
    world.must(*world.publish(1))
    local.remount("ro")
    result = world.run(*world.pull())
    expect_full(result, world.local, "Read-only file system")
    world.check_replica()
    world.must("status", world.ckpt)
    local.remount("rw")
    store.remount("ro")
    result = world.run(*world.publish(2))
    expect_full(result, world.store, "Read-only file system")
    # Readers need no write access, not even for a heartbeat.
    world.must("pull", world.run_folder, world.ckpt)
    world.check_replica(1)
    world.must("fsck", world.run_folder)
    world.must("status", world.run_folder)
    store.remount("rw")
    assert json.loads(world.must(*world.publish(2)).stdout)["version"] == 2
    store.remove(), local.remove()


def fill_up(path, left_kb):
    """Use all space except this many KB."""
    size, step = 0, 64 << 20
    with open(path, "wb") as file:
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, step)
                size += step
            except OSError:
                step //= 2
        os.truncate(path, max(0, size - left_kb * 1024))
        os.fsync(file.fileno())


def shared_blocks_on_a_full_disk(world):
    """A clone shares its blocks with the original: room is taken when they are written, through a mapping. Only
    some filesystems can; returns whether this machine has one."""
    image = world.root / "image"
    image.touch()
    os.truncate(image, 320 << 20)
    world.local.mkdir()
    made = subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], capture_output=True) \
        if shutil.which("mkfs.xfs") else None
    if not made or made.returncode != 0 or \
            subprocess.run(["mount", "-o", "loop", image, world.local], capture_output=True).returncode != 0:
        return False
    world.store.mkdir(), world.snapshot.mkdir()
    pull = [*world.pull(), "--copy-on-write"]
    world.must(*world.publish(0))
    world.must(*pull)
    world.must(*world.publish(1))
    current = world.ckpt / "current"
    failures = 0
    for left_kb in range(0, 4000, 60):
        filler = world.local / "filler"
        fill_up(filler, left_kb)
        result = world.run(*pull)
        filler.unlink()
        if result.returncode == 0:
            break
        failures += 1
        expect_full(result, world.local)
        assert world.held(world.ckpt) == 0
        world.must("verify", world.step(0), current)
    assert failures and result.returncode == 0, (failures, result)
    world.must(*pull)
    assert world.held(world.ckpt) == 1
    world.must("verify", world.step(1), current)
    subprocess.run(["umount", world.local], check=True)
    return True


def main(options, root):
    counts = Counter()
    world_of = lambda name: DiskWorld(options.binary, root / name, root / "weights")
    world_of("first").simulate("200K", 3, 0.05)
    for scenario in (replica_on_a_full_disk, store_on_a_full_disk, snapshot_on_a_full_disk, export_on_a_full_disk):
        for version in (0, 1):
            for left_kb in (0, 4, 8, 16, 24, 32, 48, 64, 100, 200, 400, 408, 420, 500, 900):
                name = f"{scenario.__name__}, version {version}, {left_kb} KB left"
                try:
                    counts[scenario(world_of(name.replace(" ", "-")), left_kb, version)] += 1
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from None
    assert counts[0] and counts[IO_ERROR], counts
    read_only_disks(world_of("ro"))
    shared = shared_blocks_on_a_full_disk(world_of("shared"))
    print(f"disks: {counts[IO_ERROR]} that were full, {counts[0]} with just enough room, and read-only ones" +
          (", and shared blocks" if shared else "; none that shares blocks: no XFS here"))


def enter():
    """Run this script again in its own mount namespace."""
    plain = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    with tempfile.TemporaryDirectory() as probe:
        can = subprocess.run([*plain, "mount", "-t", "tmpfs", "none", probe], capture_output=True)
    if can.returncode != 0:
        print("skipped: this user cannot mount a small disk")
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp(plain[0], [*plain, sys.executable, *sys.argv])


if __name__ == "__main__":
    run_test(main, __doc__) if INSIDE in os.environ else enter()
