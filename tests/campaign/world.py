"""A folder with weights, a store, a trainer's snapshot and replicas, and what must hold in it at any time."""
import json
import os
import shutil
import signal
import subprocess
from collections import Counter

# What each exit status is called in a message; docs/operations.md explains them.
ERRORS = {2: "invalid argument", 3: "unsupported", 4: "not found", 5: "conflict", 6: "corruption", 7: "base mismatch",
          8: "i/o error", 9: "unavailable", 10: "out of memory", 12: "cancelled"}
PATIENCE = 120  # seconds that any command may take


class Violation(AssertionError):
    """A promise that did not hold."""


def require(condition, message):
    if not condition:
        raise Violation(message)


def explain(result):
    return f"{' '.join(map(str, result.args[1:]))}: exit {result.returncode}: {(result.stderr or result.stdout).strip()}"


class World:
    def __init__(self, binary, root, rng):
        self.binary, self.root, self.rng = binary, root, rng
        self.store, self.weights = root / "store", root / "weights"
        self.tally = Counter()  # what was done and how it ended, for the table
        (root / "home").mkdir(parents=True)

    # ---- commands

    def environment(self, **extra):
        return {**os.environ, "HOME": str(self.root / "home"), **extra}

    def start(self, *args, **extra):
        """A process that goes on; what it says is in a file beside the store."""
        log = open(self.root / f"{args[0]}.log", "ab")
        with log:
            return subprocess.Popen([self.binary, *map(str, args)], env=self.environment(**extra), stdout=log, stderr=log)

    def run(self, *args, **extra):
        """A command to its end, which must be a success, an error with a name, or our own SIGKILL."""
        command = [self.binary, *map(str, args)]
        try:
            result = subprocess.run(command, env=self.environment(**extra), capture_output=True, text=True,
                                    errors="replace", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Violation(f"{' '.join(command[1:])}: hangs") from None
        code = result.returncode
        if code == 0:
            self.tally["well"] += 1
        elif code in ERRORS:
            self.tally["refused"] += 1
            if "--json" not in args and args[0] not in ("fsck", "verify"):
                require(f"error: {ERRORS[code]}: " in result.stderr, f"an error without its name: {explain(result)}")
        elif not (code == -signal.SIGKILL and "DELTAWIRE_CRASH_AT" in extra):
            require(code == 1 and args[0] == "verify", f"neither success nor a named error: {explain(result)}")
        return result

    def must(self, *args, **extra):
        result = self.run(*args, **extra)
        require(result.returncode == 0, explain(result))
        return result

    # ---- the usual ones

    def simulate(self, params="20K", steps=4, density=0.02):
        self.must("simulate", "--params", params, "--steps", steps, "--density", density, "--seed",
                  self.rng.randrange(1, 1 << 31), "-o", self.weights, "-q")

    def checkpoint(self, step):
        return self.weights / f"v{step}.safetensors"

    def publish(self, step, *options):
        return ["publish", self.checkpoint(step), self.store, "--snapshot", self.root / "snapshot", *options]

    def pull(self, local="replica", *options):
        return ["pull", self.store, self.root / local, "--name", local, "--log-level", "off", *options]

    # ---- what is there

    def manifests(self):
        return sorted((self.store / "manifests").glob("*.json"))

    def head(self):
        return max((int(p.stem) for p in self.manifests()), default=-1)

    def objects(self):
        return sorted(p for p in self.store.rglob("*") if p.is_file())

    def state(self, local):
        path = self.root / local / ".deltawire/state.json"
        return json.loads(path.read_text()) if path.exists() else None

    def held(self, local):
        state = self.state(local)
        return None if state is None else state["version"]

    # ---- what must hold

    def check_sound(self):
        self.must("fsck", self.store)

    def check_replica(self, local, step_of=lambda version: version):
        """It holds what it says it holds, bit for bit. Nothing is asked of the store. Returns the version."""
        state = self.state(local)
        if state is None or state["version"] is None:
            return None
        require(state.get("patching_to") is None, f"{local}: left in the middle of a patch: {state}")
        current = self.root / local / "current"
        self.must("verify", self.checkpoint(step_of(state["version"])), current if current.exists() else self.root / local)
        return state["version"]

    def check_fresh(self, step, local="fresh", *options):
        """Somebody who comes now gets exactly this step."""
        self.must(*self.pull(local, "--no-heartbeat", *options))
        self.must("verify", self.checkpoint(step), self.root / local)
        shutil.rmtree(self.root / local)

    def copy_store(self, name):
        shutil.copytree(self.store, self.root / name, symlinks=True)
        return self.root / name


def chain_of(world, steps, *options):
    """A small chain with an anchor or a merged delta now and then, and a replica somewhere on it."""
    rng = world.rng
    world.simulate(steps=steps)
    behind = rng.randrange(steps + 1)
    for step in range(steps + 1):
        extra = ["--part-size", rng.choice(("64", "4KiB", "64MiB"))]
        if rng.random() < 0.2:
            extra += ["--anchor-every", "1"]
        world.must(*world.publish(step, *extra, *options))
        if step == behind:
            world.must(*world.pull())
    return behind
