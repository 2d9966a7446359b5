"""What the tests share that kill a command at each of its sync points."""
import os
import shutil
import subprocess


class World:
    """A folder that a command works in, with the weights that it works with; copied for every death."""

    def __init__(self, binary, root, weights):
        self.binary, self.root, self.weights = binary, root, weights

    def copy(self, root):
        shutil.copytree(self.root, root, symlinks=True)
        return type(self)(self.binary, root, self.weights)

    def path(self, name):
        return str(self.root / name)

    def run(self, *args, check=True, **environment):
        command = [self.binary, *[str(a) for a in args]]
        result = subprocess.run(command, env={**os.environ, "HOME": self.path("home"), **environment},
                                capture_output=True, text=True, timeout=120)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
        return result


def count_points(world, command, check, scratch):
    """How many sync points the command passes in a copy of the world, which is then checked."""
    log = scratch / "points"
    log.unlink(missing_ok=True)
    copy = world.copy(scratch / "count")
    copy.run(*command(copy), DELTAWIRE_CRASH_LOG=str(log))
    check(copy)
    shutil.rmtree(copy.root)
    points = len(log.read_text().splitlines()) if log.exists() else 0
    assert points > 0, "no sync points; is this a build with DELTAWIRE_FAULTS?"
    return points
