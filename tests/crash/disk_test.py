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
from pathlib import Path

IO_ERROR = 8
DISK_KB = 2048
INSIDE = "DELTAWIRE_DISK_TEST_INSIDE"


class Disk:
    """A tmpfs. Filled, it has so many KB left."""

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


class World:
    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights
        self.store, self.snapshot, self.local = root / "store", root / "snapshot", root / "local"

    def run(self, *args):
        return subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HOME": str(self.root)})

    def must(self, *args):
        result = self.run(*args)
        assert result.returncode == 0, f"{' '.join(map(str, args))}: exit {result.returncode}: {result.stderr}"
        return result

    def publish(self, version, *options):
        return ["publish", self.weights / f"v{version}.safetensors", self.store / "run", "--snapshot",
                self.snapshot / "run", "--json", *options]

    def pull(self):
        return ["pull", self.store / "run", self.local / "ckpt", "--no-heartbeat"]

    def held(self):
        state = self.local / "ckpt/.deltawire/state.json"
        return json.loads(state.read_text())["version"] if state.exists() else None

    def check_replica(self):
        if self.held() is not None:
            self.must("verify", self.weights / f"v{self.held()}.safetensors", self.local / "ckpt")


def expect_full(result, place):
    assert result.returncode == IO_ERROR and "No space left" in result.stderr and str(place) in result.stderr, \
        f"exit {result.returncode}: {result.stderr}"


def replica_on_a_full_disk(world, left_kb, version):
    """From nothing (version 0) or from the one before."""
    world.store.mkdir(), world.snapshot.mkdir()
    disk = Disk(world.local)
    for v in range(version + 1):
        world.must(*world.publish(v))
        if v < version:
            world.must(*world.pull())
    before = world.held()
    disk.fill(left_kb)
    result = world.run(*world.pull())
    if result.returncode != 0:
        expect_full(result, world.local)
        assert world.held() == before
    world.check_replica()
    disk.make_room()
    world.must(*world.pull())
    assert world.held() == version
    world.check_replica()
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
        world.must("fsck", world.store / "run")
    disk.make_room()
    report = json.loads(world.must(*world.publish(version)).stdout)
    assert report["version"] == version, report
    world.must("fsck", world.store / "run")
    world.must(*world.pull())
    assert world.held() == version
    world.check_replica()
    disk.remove()
    return result.returncode


def snapshot_on_a_full_disk(world, left_kb, version):
    """The version stands; what the snapshot could not take is made up for."""
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
    assert world.held() == version + 1
    world.check_replica()
    world.must("fsck", world.store / "run")
    disk.remove()
    return result.returncode


def export_on_a_full_disk(world, left_kb, version):
    """Their folder of a version is whole, or not there at all. With an earlier version there, or without."""
    world.store.mkdir(), world.snapshot.mkdir()
    target = world.root / "target"
    disk = Disk(target)
    export = ["export", "slime", world.store / "run", target / "deltas", "--work", world.root / "work"]
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
    world.must("verify", target / f"deltas/weight_v{version + 1:06}", world.weights / f"v{version + 1}.safetensors")
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
    assert result.returncode == IO_ERROR and "Read-only file system" in result.stderr, result.stderr
    assert str(world.local) in result.stderr, result.stderr
    world.check_replica()
    world.must("status", world.local / "ckpt")
    local.remount("rw")
    store.remount("ro")
    result = world.run(*world.publish(2))
    assert result.returncode == IO_ERROR and "Read-only file system" in result.stderr, result.stderr
    # Readers need not write, not even a heartbeat.
    world.must("pull", world.store / "run", world.local / "ckpt")
    assert world.held() == 1
    world.check_replica()
    world.must("fsck", world.store / "run")
    world.must("status", world.store / "run")
    store.remount("rw")
    assert json.loads(world.must(*world.publish(2)).stdout)["version"] == 2
    store.remove(), local.remove()


def fill_up(path, left_kb):
    """Takes all the room there is but for so many KB."""
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
    current = world.local / "ckpt/current"
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
        assert world.held() == 0
        world.must("verify", world.weights / "v0.safetensors", current)
    assert failures and result.returncode == 0, (failures, result)
    world.must(*pull)
    assert world.held() == 1
    world.must("verify", world.weights / "v1.safetensors", current)
    subprocess.run(["umount", world.local], check=True)
    return True


def main():
    binary = str(Path(sys.argv[1]).resolve())
    counts = {0: 0, IO_ERROR: 0}
    with tempfile.TemporaryDirectory(prefix="deltawire-disk.", dir=os.environ.get("TMPDIR"),
                                     ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        weights = root / "weights"
        subprocess.run([binary, "simulate", "--params", "200K", "--steps", "3", "--density", "0.05", "-o", weights,
                        "-q"], check=True)
        number = 0
        for scenario in (replica_on_a_full_disk, store_on_a_full_disk, snapshot_on_a_full_disk,
                         export_on_a_full_disk):
            for version in (0, 1):
                for left_kb in (0, 4, 8, 16, 24, 32, 48, 64, 100, 200, 400, 408, 420, 500, 900):
                    number += 1
                    (root / str(number)).mkdir()
                    try:
                        code = scenario(World(binary, root / str(number), weights), left_kb, version)
                    except AssertionError as error:
                        raise AssertionError(f"{scenario.__name__}, version {version}, {left_kb} KB left: "
                                             f"{error}") from None
                    counts[code] += 1
        assert counts[0] and counts[IO_ERROR], counts
        (root / "ro").mkdir()
        read_only_disks(World(binary, root / "ro", weights))
        (root / "shared").mkdir()
        shared = shared_blocks_on_a_full_disk(World(binary, root / "shared", weights))
    print(f"disks: {counts[IO_ERROR]} that were full, {counts[0]} with just enough room, and read-only ones" +
          (", and shared blocks" if shared else "; none that shares blocks: no XFS here"))


def enter():
    """The same again in a mount namespace of its own."""
    plain = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    with tempfile.TemporaryDirectory() as probe:
        can = subprocess.run([*plain, "mount", "-t", "tmpfs", "none", probe], capture_output=True)
    if can.returncode != 0:
        print("skipped: this user cannot mount a small disk")
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp(plain[0], [*plain, sys.executable, *sys.argv])


if __name__ == "__main__":
    try:
        main() if INSIDE in os.environ else enter()
    except AssertionError as error:
        sys.exit(f"disk test failed: {error}")
