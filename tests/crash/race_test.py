#!/usr/bin/env python3
"""Publishers race for the same version: exactly one wins each round, the others are told who did.

usage: race_test.py DELTAWIRE [--processes N] [--rounds N]

All wait for each other in --hook-before-commit, when everything but the commit is done.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONFLICT = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="deltawire-race.") as folder:
        root = Path(folder)
        environment = {**os.environ, "HOME": folder}
        run = lambda *args: subprocess.run([binary, *map(str, args)], env=environment, capture_output=True,
                                           text=True, timeout=120)
        assert run("simulate", "--params", "5K", "--steps", "16", "--density", "0.05", "-o", root / "w").returncode == 0
        store = root / "store"
        first = run("publish", root / "w" / "v0.safetensors", store, "--snapshot", root / "s0")
        assert first.returncode == 0, first.stderr
        for i in range(1, options.processes):
            shutil.copytree(root / "s0", root / f"s{i}", symlinks=True)
        # No state comes twice in a row: every racer has something to publish.
        state_of = lambda racer, number: 1 + racer % 8 + 8 * (number % 2)
        winners = {}
        for number in range(1, options.rounds + 1):
            barrier = root / f"barrier-{number}"
            barrier.mkdir()
            hook = (f"touch {barrier}/$$; until [ $(ls {barrier} | wc -l) -ge {options.processes} ]; "
                    "do sleep 0.01; done")
            racers = [subprocess.Popen(
                [binary, "publish", str(root / "w" / f"v{state_of(i, number)}.safetensors"), str(store), "--snapshot",
                 str(root / f"s{i}"), "--hook-before-commit", hook, "--json"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for i in range(options.processes)]
            ends = []
            for racer in racers:
                out, err = racer.communicate(timeout=120)
                ends.append((racer.returncode, out, err))
            won = [i for i, end in enumerate(ends) if end[0] == 0]
            assert len(won) == 1, f"round {number}: {len(won)} winners: {[e[2] for e in ends]}"
            report = json.loads(ends[won[0]][1])
            assert report["version"] == number, f"round {number}: {report}"
            winners[number] = state_of(won[0], number)
            for code, _, err in ends:
                assert code in (0, CONFLICT), f"round {number}: exit {code}: {err}"
                assert code == 0 or "published by another" in err, err
            shutil.rmtree(barrier)
        assert run("fsck", store).returncode == 0
        pulled = run("pull", store, root / "replica")
        assert pulled.returncode == 0, pulled.stderr
        last = root / "w" / f"v{winners[options.rounds]}.safetensors"
        assert run("verify", last, root / "replica").returncode == 0
    print(f"race: {options.processes} publishers, {options.rounds} rounds, one winner in each")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"race test failed: {error}")
