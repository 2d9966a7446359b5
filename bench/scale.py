#!/usr/bin/env python3
"""What a fleet costs, from measured rates: the tables of docs/scale.md.

usage: scale.py [NAME=VALUE ...]      prints the tables, with your inputs in place of those of the page
       scale.py --check FILE          fails unless the tables in FILE are what is printed
       scale.py --write FILE          puts them there
       scale.py --inputs              lists the inputs
"""

import math
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass
class Inputs:
    """Each with where it comes from: (m) measured, (p) a list price, (a) assumed."""

    # ---- the fleet
    weights: float = 8.191e9  # (a) Qwen3-8B
    density: float = 0.0119  # (m) bench/results/h200.md: changed per version
    bytes_per_change: float = 0.85  # (m) tight, 0.81 to 0.85 at 1.2 %
    replicas: int = 1000  # (a)
    regions: int = 5  # (a) the trainer's bucket is in one of them
    version_seconds: float = 60  # (a) between two versions
    poll_seconds: float = 5  # (a) --interval
    piece_bytes: float = 16 * 2**20  # ranges of a download, as StoreOptions has it
    part_bytes: float = 64 * 2**20  # as PublishOptions has it
    # requests of one replica, (m) tests/scale/followers_rgw_test.cpp; a download of a tiny part is one
    version_gets: float = 5.98  # GET and HEAD: manifest, probes, hint, whose name the heartbeat has
    version_puts: float = 1.98  # heartbeats: a lease, then what is held
    version_lists: float = 0.0
    look_gets: float = 5.0  # a look that finds nothing new
    # requests of a mirror beside the objects, by the code: looks, manifest, hint, heartbeat, listing
    mirror_gets: float = 12
    mirror_look_gets: float = 4
    mirror_puts: float = 6
    # prices in dollars, (p) entered 2026-11-16: those of S3 Standard in us-east-1
    price_get: float = 0.0004e-3  # GET, HEAD
    price_put: float = 0.005e-3  # PUT, LIST
    price_far_gb: float = 0.02  # a GB from one region to another; inside a region 0

    # ---- one trillion weights
    big_weights: float = 1e12  # (a)
    trainer_ranks: int = 256  # (a)
    engine_ranks: int = 128  # (a)
    host_ranks: int = 8  # (a) engine ranks of a host
    link_gbit: float = 400  # (a) of each rank, all of it used
    round_trip_ms: float = 5  # (a) of a request to the store
    bench_weights: float = 8.191e9  # (m) bench/results/h200.md
    encode_ms: float = 17.2  # (m) tight, compare and code: payloads on the host
    host_cores: int = 96  # (a)
    core_gb: float = 2.84  # (m) bench/results/x86_64-intel-xeon-2-cores.md: tight apply, GB/s of weights, one thread
    stage_changes: float = 98.3e6  # (m) bench/results/engines-h200.md, CUDA graphs, medians, as the times below
    stage_ms: float = 39  # (m) from "staging begins" to "staged", while the engine serves
    swap_ms: float = 5.3  # (m)
    proof_ms: float = 6.4  # (m) all tensors
    pause_ms: float = 12.6  # (m) in the worker: swap, proof, and what is around them


def table(head, rows):
    head, *rows = ("| " + " | ".join(line) + " |" for line in [head, *rows])
    return "\n".join([head, "|---" + "|---:" * (head.count("|") - 2) + "|", *rows])


def data(num_bytes):
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def count(number):
    return f"{number:,.0f}"


def dollars(value):
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def milliseconds(value):
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


# ---- a thousand replicas in five regions


def fleet(at):
    """Bytes, requests and dollars of one version: without mirrors, then with one in each far region."""
    version = at.weights * at.density * at.bytes_per_change
    pieces = math.ceil(version / at.piece_bytes)
    parts = math.ceil(version / at.part_bytes)
    looks = max(0.0, at.version_seconds / at.poll_seconds - 1)
    gets = at.replicas * (at.version_gets + pieces + looks * at.look_gets)
    puts = at.replicas * (at.version_puts + at.version_lists)
    far = at.regions - 1
    far_replicas = at.replicas * far / at.regions
    mirror_gets = far * (at.mirror_gets + looks * at.mirror_look_gets + pieces + parts)
    mirror_puts = far * (at.mirror_puts + parts * (2 + math.ceil(at.part_bytes / at.piece_bytes)))
    rows = []
    for name, crossing, more_gets, more_puts in (
        ("one bucket", far_replicas * version, 0, 0),
        ("a mirror in each far region", far * version, mirror_gets, mirror_puts),
    ):
        cost = crossing / 1e9 * at.price_far_gb
        requests = (gets + more_gets) * at.price_get + (puts + more_puts) * at.price_put
        rows.append((name, crossing, gets + more_gets, puts + more_puts, cost, requests))
    return version, rows


def fleet_table(at):
    version, rows = fleet(at)
    per_day = 86400 / at.version_seconds
    return (
        table(
            ["a version", "between regions", "GET, HEAD", "PUT, LIST", "transfer", "requests", "both, a day"],
            [
                [
                    name,
                    data(crossing),
                    count(gets),
                    count(puts),
                    dollars(cost),
                    dollars(requests),
                    dollars((cost + requests) * per_day),
                ]
                for name, crossing, gets, puts, cost, requests in rows
            ],
        )
        + f"\n\nA version is {data(version)}; the whole model would be {data(2 * at.weights)}."
    )


def rates_table(at):
    version, rows = fleet(at)
    home = at.replicas / at.regions
    every = at.version_seconds
    return table(
        ["the trainer's bucket sends", "one bucket", "with mirrors"],
        [
            ["bytes of a version", data(at.replicas * version), data((home + at.regions - 1) * version)],
            ["on average", f"{data(at.replicas * version / every)}/s", f"{data((home + at.regions - 1) * version / every)}/s"],
            [
                "requests a second",
                count((rows[0][2] + rows[0][3]) / every),
                count((rows[0][2] + rows[0][3]) / every / at.regions + (rows[1][2] - rows[0][2]) / every),
            ],
        ],
    )


# ---- one trillion weights


def trillion(at, way):
    """Steps of one version: name, formula, where its rate is from, milliseconds, and whether the engine is paused.

    `way`: "host", where workers wait for the host's checkpoint, or "shards", where each rank fetches and decodes what it holds.
    """
    version = at.big_weights * at.density * at.bytes_per_change
    of_trainer, of_engine = at.big_weights / at.trainer_ranks, at.big_weights / at.engine_ranks
    link = at.link_gbit * 1e9 / 8
    host_link = link * at.host_ranks
    changes = of_engine * at.density / at.stage_changes  # times those that were measured
    steps = [
        ("compare and code", "weights / trainer ranks × rate", "measured", of_trainer / at.bench_weights * at.encode_ms, False),
        ("upload", "version / trainer ranks / link", "link assumed", version / at.trainer_ranks / link * 1e3, False),
        ("reports, commit", "4 round trips", "assumed", 4 * at.round_trip_ms, False),
        ("notice it, read the manifest", "2 round trips", "assumed", 2 * at.round_trip_ms, False),
    ]
    if way == "shards":
        fetched = 3 * at.round_trip_ms + version / at.engine_ranks / link * 1e3
        ways = [("fetch: what each rank holds", "3 round trips + version / engine ranks / link", "assumed", fetched, False)]
    else:
        decode = 2 * at.big_weights / (at.host_cores * at.core_gb * 1e9) * 1e3
        ways = [
            ("fetch: everything to each host", "version / (host ranks × link)", "link assumed", version / host_link * 1e3, False),
            ("decode, patch the local files", "2 B × weights / (cores × rate)", "measured, cores assumed", decode, False),
        ]
    return version, [
        *steps,
        *ways,
        ("stage", "changes / engine ranks × rate", "measured", changes * at.stage_ms, False),
        ("swap", "changes / engine ranks × rate", "measured", changes * at.swap_ms, True),
        ("proof of every tensor", "weights / engine ranks × rate", "measured", of_engine / at.bench_weights * at.proof_ms, True),
        ("overhead of both", "as measured", "measured", at.pause_ms - at.swap_ms - at.proof_ms, True),
    ]


def totals(at, way):
    """Milliseconds in all, and those in which the engine is paused."""
    steps = trillion(at, way)[1]
    return sum(step[3] for step in steps), sum(step[3] for step in steps if step[4])


def trillion_table(at):
    version, shards = trillion(at, "shards")
    host = trillion(at, "host")[1]
    times = [{step[0]: milliseconds(step[3]) for step in steps} for steps in (shards, host)]
    merged = [*shards[:5], *host[4:6], *shards[5:]]  # the first four steps and the last four are common
    rows = [
        [name, formula, source, *(way.get(name, "") for way in times), "yes" if paused else ""]
        for name, formula, source, _, paused in merged
    ]
    (all_shards, pause), (all_host, _) = totals(at, "shards"), totals(at, "host")
    rows.append(["**all, one after the other**", "", "", *(f"**{milliseconds(ms)}**" for ms in (all_shards, all_host, pause))])
    return table(["step", "formula", "rate", "boxes", "whole versions", "engine paused"], rows) + (
        f"\n\nA version is {data(version)}: {data(version / at.trainer_ranks)} from each trainer rank, "
        f"{data(version / at.engine_ranks)} of changes for each engine rank. The whole model is {data(2 * at.big_weights)}."
    )


def peers_table(at):
    whole = 2 * at.big_weights / (at.engine_ranks * at.link_gbit * 1e9 / 8)
    ours = []
    for name, way in (("each rank fetches what it holds", "shards"), ("a checkpoint for each host", "host")):
        total, pause = totals(at, way)
        ours.append([f"deltawire, {name}", f"{total / 1e3:.2f} s", f"{pause / 1e3:.3f} s", "modelled above"])
    return table(
        ["", "update", "engines paused", "source"],
        [
            ["RDMA writes, 256 to 128 GPUs", "1.3 s", "unknown", "published"],
            ["prime-rl, NIXL", "2.8 s", "5.2 s", "published"],
            ["miles, point to point", "7.2 s", "unknown", "published; NCCL 53 s"],
            ["all weights once over the engines' links", f"{whole:.2f} s", "", "arithmetic: lower bound for sending all"],
            *ours,
        ],
    )


TABLES = {
    "fleet": fleet_table,
    "rates": rates_table,
    "trillion": trillion_table,
    "peers": peers_table,
}
BLOCK = re.compile(r"(<!-- scale\.py: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def with_tables(text, at):
    """The page with each of its tables made anew."""
    missing = set(TABLES) - {match[2] for match in BLOCK.finditer(text)}
    if missing:
        raise SystemExit(f"scale.py: the page has no table {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda match: match[1] + "\n" + TABLES[match[2]](at) + "\n" + match[3], text)


def given(words):
    """The inputs, with those of the command line."""
    known = {field.name: field.type for field in fields(Inputs)}
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in known or not equals:
            raise SystemExit(f"scale.py: {word!r} is no NAME=VALUE of an input; scale.py --inputs lists them")
        try:
            values[name] = int(value) if known[name] is int else float(value)
        except ValueError:
            raise SystemExit(f"scale.py: {name}: expected a number, got {value!r}") from None
        if not (math.isfinite(values[name]) and values[name] > 0 or name in ("version_lists", "look_gets")):
            raise SystemExit(f"scale.py: {name}: expected more than 0, got {value!r}")
    return Inputs(**values)


def main(words):
    if words[:1] == ["--inputs"]:
        for field in fields(Inputs):
            print(f"{field.name}={field.default}")
        return 0
    if words[:1] in (["--check"], ["--write"]) and len(words) == 2:
        page = Path(words[1])
        text = page.read_text()
        made = with_tables(text, Inputs())
        if words[0] == "--write":
            page.write_text(made)
        elif made != text:
            print(f"{page}: its tables are not what bench/scale.py prints; bench/scale.py --write {page}")
            return 1
        return 0
    at = given(words)
    print("\n\n".join(make(at) for make in TABLES.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
