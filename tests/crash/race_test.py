#!/usr/bin/env python3
"""Publishers race for the same version: exactly one wins each round, the others are told who did.

usage: race_test.py DELTAWIRE [--processes N] [--rounds N]

All wait for each other in --hook-before-commit, when everything but the commit is done.
"""
import json
import shutil

from crash_world import World, explain, finished, run_test

CONFLICT = 5


def race(world, processes, rounds):
    """A replica gets the version of the last winner."""
    world.must(*world.publish(0))
    for i in range(processes):
        shutil.copytree(world.snapshot, world.root / f"s{i}", symlinks=True)
    for number in range(1, rounds + 1):
        barrier = world.root / f"barrier-{number}"
        barrier.mkdir()
        hook = f"touch {barrier}/$$; until [ $(ls {barrier} | wc -l) -ge {processes} ]; do sleep 0.01; done"
        states = [1 + i + processes * (number % 2) for i in range(processes)]  # each racer has something to publish
        racers = [world.start("publish", world.step(state), world.store, "--snapshot", world.root / f"s{i}",
                              "--hook-before-commit", hook, "--json") for i, state in enumerate(states)]
        ends = [finished(racer) for racer in racers]
        won = [i for i, end in enumerate(ends) if end.returncode == 0]
        assert len(won) == 1, f"round {number}: {len(won)} winners: {[end.stderr for end in ends]}"
        report = json.loads(ends[won[0]].stdout)
        assert report["version"] == number, f"round {number}: {report}"
        for end in ends:
            assert end.returncode in (0, CONFLICT), f"round {number}: {explain(end)}"
            assert end.returncode == 0 or "published by another" in end.stderr, end.stderr
        shutil.rmtree(barrier)
    world.must("fsck", world.store)
    world.must("pull", world.store, world.local)
    world.must("verify", world.step(states[won[0]]), world.local)


def main(options, root):
    world = World(options.binary, root, root / "weights")
    world.simulate("5K", 2 * options.processes, 0.05)
    race(world, options.processes, options.rounds)
    print(f"race: {options.processes} publishers, {options.rounds} rounds, one winner in each")


if __name__ == "__main__":
    run_test(main, __doc__, processes=8, rounds=100)
