"""Shared by these tests: a world of files, commands that are killed at each sync point, and arguments."""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLED = -signal.SIGKILL
IO_ERROR = 8
PATIENCE = 120  # seconds that any command may take


def explain(result):
    command = " ".join(map(str, result.args[1:]))
    return f"{command}: exit {result.returncode}: {(result.stderr or result.stdout).strip()}"


def finished(process):
    """Wait for its end; return its status and output."""
    with process:
        try:
            out, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{' '.join(process.args[1:])}: does not end") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


class World:
    """A working folder of commands, with their weights."""

    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights
        self.store, self.snapshot, self.local = root / "store", root / "snapshot", root / "local"
        (root / "home").mkdir(parents=True, exist_ok=True)

    def copy(self, root):
        shutil.copytree(self.root, root, symlinks=True)
        return type(self)(self.binary, root, self.weights)

    def simulate(self, params, steps, density, seed=1):
        self.must("simulate", "--params", params, "--steps", steps, "--seed", seed, "--density", density, "-o", self.weights, "-q")

    def step(self, version):
        return self.weights / f"v{version}.safetensors"

    def start(self, *args, **environment):
        environment = {**os.environ, "HOME": str(self.root / "home"), "XDG_CACHE_HOME": str(self.root / "home/.cache"), **environment}
        return subprocess.Popen([self.binary, *map(str, args)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, errors="replace")

    def run(self, *args, **environment):
        return finished(self.start(*args, **environment))

    def must(self, *args, **environment):
        result = self.run(*args, **environment)
        assert result.returncode == 0, explain(result)
        return result

    def publish(self, version, *options):
        return ["publish", self.step(version), self.store, "--snapshot", self.snapshot, *options]

    def versions(self, store="store"):
        return sorted(int(path.stem) for path in (self.root / store / "manifests").glob("*.json"))

    def head(self):
        return max(self.versions(), default=-1)

    def attempts(self):
        return {path.name for kind in ("full", "parts") for path in self.store.glob(f"{kind}/*")}

    def state(self, local):
        file = self.root / local / ".deltawire/state.json"
        return json.loads(file.read_text()) if file.exists() else None

    def held(self, local):
        state = self.state(local)
        return None if state is None else state["version"]

    def verify(self, checkpoint, local):
        """Both have the same weights: equal bytes prove it without a process."""
        ours, got = ([file.read_bytes() for file in ([path] if path.is_file() else sorted(path.glob("*.safetensors")))]
                     for path in (Path(checkpoint), Path(local)))
        if not ours or ours != got:
            self.must("verify", checkpoint, local)

    def check_pulled(self, store, version):
        """A new replica gets this version."""
        self.must("pull", self.root / store, self.root / "witness", "--version", version, "--no-heartbeat")
        self.verify(self.step(version), self.root / "witness")


def wait_until(done, what):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.01)


def count_points(world, command, check, scratch):
    """The number of sync points that the command passes in a copy of the world, which is then checked."""
    log = scratch / "points"
    log.unlink(missing_ok=True)
    copy = world.copy(scratch / "count")
    copy.must(*command(copy), DELTAWIRE_CRASH_LOG=str(log))
    check(copy, True)
    shutil.rmtree(copy.root)
    points = len(log.read_text().splitlines()) if log.exists() else 0
    assert points > 0, "no sync points; is this a build with DELTAWIRE_FAULTS?"
    return points


def kill_at(point, world, command, check, scratch):
    """Kill the command there, in a copy of the world, and run it again. Returns whether it reached that point."""
    copy = world.copy(scratch / f"killed-{point}")
    died = copy.run(*command(copy), DELTAWIRE_CRASH_AT=str(point))
    # Threads may pass fewer points than counted; then the command has succeeded.
    assert died.returncode in (KILLED, 0), explain(died)
    check(copy, False)
    again = copy.run(*command(copy))
    assert again.returncode == 0, f"second run: {explain(again)}"
    check(copy, True)
    shutil.rmtree(copy.root)
    return died.returncode == KILLED


def kill_everywhere(name, world, command, check, scratch, stride):
    """At every `stride`-th point, or at every point if there are few; check(world, whether the command succeeded)."""
    points = count_points(world, command, check, scratch)
    chosen = range(1, points + 1, stride if points > 30 else 1)
    for point in chosen:
        try:
            kill_at(point, world, command, check, scratch)
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from None
    print(f"{name}: killed at {len(chosen)} of {points} points, recovered from each", flush=True)
    return len(chosen)


def run_test(main, doc, **defaults):
    """Call main(options, an empty folder). Options with these names and defaults follow the binary's path."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda path: str(Path(path).resolve()))
    for name, default in defaults.items():
        kind = {"action": "store_true"} if default is False else {"type": type(default), "default": default}
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    with tempfile.TemporaryDirectory(prefix="deltawire-crash.", ignore_cleanup_errors=True) as folder:
        try:
            main(parser.parse_args(), Path(folder))
        except AssertionError as error:
            sys.exit(f"{Path(sys.argv[0]).stem} failed: {error}")
