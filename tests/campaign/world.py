"""A folder with weights, a store, a trainer's snapshot and replicas, and its invariants."""
import shutil
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crash"))
import crash_world  # noqa: E402
from crash_world import PATIENCE, explain, finished  # noqa: E402, F401

# What each exit status is called in a message; docs/reference.md explains them.
ERRORS = {2: "invalid argument", 3: "unsupported", 4: "not found", 5: "conflict", 6: "corruption", 7: "base mismatch",
          8: "i/o error", 9: "unavailable", 10: "out of memory", 12: "cancelled"}


class Violation(AssertionError):
    """A broken promise."""


def require(condition, message):
    if not condition:
        raise Violation(message)


class World(crash_world.World):
    def __init__(self, binary, root, rng):
        super().__init__(binary, root, root / "weights")
        self.rng = rng
        self.tally = Counter()  # what was done and how it ended, for the table

    def run(self, *args, **extra):
        """Run a command to its end: a success or a named error."""
        result = super().run(*args, **extra)
        code = result.returncode
        if code == 0:
            self.tally["well"] += 1
        elif code in ERRORS:
            self.tally["refused"] += 1
            if "--json" not in args and args[0] not in ("fsck", "verify"):
                require(f"error: {ERRORS[code]}: " in result.stderr, f"an error without its name: {explain(result)}")
        else:
            require(code == 1 and args[0] == "verify", f"neither success nor a named error: {explain(result)}")
        return result

    def simulate(self, params="20K", steps=4, density=0.02):
        super().simulate(params, steps, density, self.rng.randrange(1, 1 << 31))

    def pull(self, local="replica", *options):
        return ["pull", self.store, self.root / local, "--name", local, "--log-level", "off", *options]

    def manifests(self):
        return sorted((self.store / "manifests").glob("*.json"))

    def objects(self):
        return sorted(p for p in self.store.rglob("*") if p.is_file())

    def check_sound(self):
        self.must("fsck", self.store)

    def check_replica(self, local, step_of=lambda version: version):
        """Check that it holds the version that it claims, bit for bit, without reading the store. Returns the version."""
        state = self.state(local)
        if state is None or state["version"] is None:
            return None
        require(state.get("patching_to") is None, f"{local}: left in the middle of a patch: {state}")
        current = self.root / local / "current"
        self.must("verify", self.step(step_of(state["version"])), current if current.exists() else self.root / local)
        return state["version"]

    def check_fresh(self, step, local="fresh", *options):
        """A new replica gets exactly this step."""
        self.must(*self.pull(local, "--no-heartbeat", *options))
        self.must("verify", self.step(step), self.root / local)
        shutil.rmtree(self.root / local)

    def copy_store(self, name):
        shutil.copytree(self.store, self.root / name, symlinks=True)
        return self.root / name


def chain_of(world, steps, *options):
    """A small chain with some anchors and merged deltas, and a replica at some version."""
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
