#!/usr/bin/env python3
"""Attacks deltawire in every way we know, with fresh seeds, for as long as it is told to, and prints a table of what
was tried and found.

usage: campaign.py DELTAWIRE [--minutes M] [--seed N] [--only KIND ...] [--trials N] [--jobs N] [--results FILE]

Needs a build with DELTAWIRE_FAULTS (the presets with tests have it). A trial is a kind of attack and a seed. One that
finds something leaves its folder behind and says how to do it again:

  campaign.py DELTAWIRE --only chaos --seed 1234 --trials 1
"""
import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import kinds
except ModuleNotFoundError as missing:
    print(f"skipped: the package {missing.name} is not installed (scripts/venv build/venv interop)")
    sys.exit(77)
from world import World

KINDS = {kind.__name__.replace("_", " "): kind for kind in
         (kinds.kill, kinds.race, kinds.fault, kinds.corruption, kinds.chaos, kinds.overwritten_source, kinds.rollback,
          kinds.forged_record)}


def try_one(binary, scratch, name, seed):
    """Returns what was counted, and what was found or None."""
    root = scratch / f"{name.replace(' ', '-')}-{seed}"
    world = World(binary, root, random.Random(seed))
    try:
        KINDS[name](world)
    except Exception as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        return world.tally, f"{name}, seed {seed}: {text}\n  in {root}"
    shutil.rmtree(root, ignore_errors=True)
    return world.tally, None


def table(totals, trials, found, seconds):
    lines = [f"{'kind':<20}{'trials':>8}{'attacks':>9}{'went well':>11}{'refused':>9}{'found':>7}"]
    for name in trials:
        one = totals[name]
        lines.append(f"{name:<20}{trials[name]:>8}{one['events']:>9}{one['well']:>11}{one['refused']:>9}{found[name]:>7}")
    lines.append(f"{'all':<20}{sum(trials.values()):>8}{sum(t['events'] for t in totals.values()):>9}"
                 f"{sum(t['well'] for t in totals.values()):>11}{sum(t['refused'] for t in totals.values()):>9}"
                 f"{sum(found.values()):>7}")
    lines.append(f"{seconds / 60:.0f} minutes, {os.cpu_count()} cores. Attacks: signals sent, faults, damaged or forged objects,"
                 " races, sources overwritten. Went well and refused: commands that did their job, or ended with a named error.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first trial; default: from the clock")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--trials", type=int, default=0, help="so many in all, instead of by the clock")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, help="the table is written there too")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    first = int(time.time()) if options.seed is None else options.seed
    print(f"campaign: {options.trials or f'{options.minutes:g} minutes of'} trials, seeds from {first}", flush=True)

    scratch = Path(tempfile.mkdtemp(prefix="deltawire-campaign."))
    begin = time.monotonic()
    lock = threading.Lock()
    totals, trials, found = {n: Counter() for n in options.only}, dict.fromkeys(options.only, 0), Counter()

    def more(number):
        return number < options.trials if options.trials else time.monotonic() - begin < options.minutes * 60

    def worker(index):
        number = index
        while more(number):
            name = options.only[number % len(options.only)]
            tally, problem = try_one(binary, scratch, name, first + number)
            with lock:
                totals[name] += tally
                trials[name] += 1
                if problem:
                    found[name] += 1
                    print(f"FOUND  {problem}", flush=True)
            number += options.jobs

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(worker, range(options.jobs)))
    text = table(totals, trials, found, time.monotonic() - begin)
    print(text)
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(text + "\n")
    if not any(found.values()):
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"campaign: {sum(trials.values())} trials, {sum(found.values())} found something")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
