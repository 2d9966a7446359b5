#!/usr/bin/env python3
"""From publish() to the last replica's heartbeat: a folder that all share, against a carrier.

    ship.py [--params MILLIONS] [--replicas N] [--versions N] [--density X] [--no-ahead] [--json]

Replicas are processes that keep tensors in memory. Both ways take turns version by version, so that what else the machine does
hits both. `folder`: they watch a folder (inotify). `ship`: the same folder on the trainer's side, parts over TCP. Seconds are medians.
Memory is what each process takes at its most beyond what it took before the first version.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import deltawire as dw
import deltawire.ship
from deltawire import _core


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make(millions: float) -> dict[str, np.ndarray]:
    count = max(1, int(millions * 1e6 / (1 << 22)))
    random = np.random.default_rng(1)
    return {
        f"layer.{i}": (random.standard_normal(int(millions * 1e6 / count)) * 0.02).astype(np.float32).view(np.uint32) >> 16
        for i in range(count)
    }


def weights_of(millions: float) -> dict[str, np.ndarray]:
    """bfloat16 bits."""
    return {name: bits.astype(np.uint16) for name, bits in make(millions).items()}


def step(weights: dict[str, np.ndarray], density: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    for bits in weights.values():
        at = random.integers(0, bits.size, int(bits.size * density))
        bits[at] ^= 1


def follow(kind: str, place: str, millions: float, ahead: bool, conn, ends) -> None:
    mine = {name: np.zeros_like(bits) for name, bits in weights_of(millions).items()}
    store = dw.open_store(place) if kind == "folder" else deltawire.ship.join(place)
    watch = _core.Watch(store.handle)
    replica, before = None, peak_bytes()
    conn.send("ready")
    while not ends.is_set():
        try:
            replica = replica or dw.TensorReplica(store, mine)
            pulled = replica.pull()
            if pulled.changed:
                conn.send((pulled.version, time.time(), peak_bytes() - before, (pulled.num_ahead, pulled.num_tensors, pulled.seconds)))
        except dw.NotFound:
            pass
        watch.wait(0.2, replica.prepare_ahead if replica and ahead else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--params", type=float, default=50, help="millions")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--versions", type=int, default=8)
    parser.add_argument("--density", type=float, default=0.02)
    parser.add_argument("--no-ahead", action="store_true", help="decode nothing before the commit")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    root = Path(tempfile.mkdtemp(prefix="deltawire-bench."))
    weights, results = weights_of(options.params), {}
    ways = {}
    for kind in ("folder", "ship"):
        shipper = deltawire.ship.serve(root / kind) if kind == "ship" else None
        publisher = dw.Publisher(shipper.store if shipper else root / kind, weights, anchors=dw.Anchors(every=0, by_bytes=False))
        ends, replicas = context.Event(), []
        for _ in range(options.replicas):
            here, there = context.Pipe()
            place = shipper.address if shipper else str(root / kind)
            process = context.Process(target=follow, args=(kind, place, options.params, not options.no_ahead, there, ends))
            process.start()
            replicas.append((process, here))
        for _, here in replicas:
            assert here.recv() == "ready"
        if shipper:
            shipper.wait_for(options.replicas, 60)
        ways[kind] = (shipper, publisher, replicas, ends)
        results[kind] = {"seed": 0.0, "publish": [], "held": [], "phases": [], "replica_bytes": 0, "pulls": []}
    before = peak_bytes()
    for version in range(options.versions + 1):
        if version:
            step(weights, options.density, version)
        for kind, (shipper, publisher, replicas, _) in ways.items():
            began = time.time()
            coded = publisher.publish()
            published = time.time() - began
            assert coded.number == version, coded
            last = 0.0
            for _, here in replicas:
                number, when, extra, pulled = here.recv()
                if version:
                    results[kind]["pulls"].append(pulled)
                assert number == version
                last = max(last, when - began)
                results[kind]["replica_bytes"] = max(results[kind]["replica_bytes"], extra)
            if version == 0:
                results[kind]["seed"] = last
                continue
            results[kind]["bytes"] = coded.bytes
            results[kind]["publish"].append(published)
            results[kind]["held"].append(last)
            if shipper:
                results[kind]["phases"] = [(p.name, round(p.begin, 4), round(p.end, 4)) for p in shipper.settle().phases]
    for kind, (shipper, publisher, replicas, ends) in ways.items():
        ends.set()
        for process, _ in replicas:
            process.join(30)
        publisher.close()
    shutil.rmtree(root, ignore_errors=True)
    out = {
        kind: {**result, "publish": statistics.median(result["publish"]), "held": statistics.median(result["held"])}
        for kind, result in results.items()
    }
    out["trainer_bytes"] = peak_bytes() - before
    if options.json:
        print(json.dumps(out))
        return
    for kind in ("folder", "ship"):
        row = out[kind]
        print(
            f"{kind:8} seed held after {row['seed']:.3f} s; a delta of {row['bytes']:,} bytes: publish {row['publish']:.3f} s, "
            f"held by all after {row['held']:.3f} s; a replica took {row['replica_bytes'] / 1e6:.0f} MB more"
        )
    print("ship's last version:", ", ".join(f"{name} {begin:.3f} to {end:.3f} s" for name, begin, end in out["ship"]["phases"]))
    ahead, tensors, seconds = (statistics.median(values) for values in zip(*out["ship"]["pulls"]))
    print(f"ship's pulls took {seconds:.3f} s; {ahead:.0f} of {tensors:.0f} tensors were decoded before the commit")
    print(f"the trainer took {out['trainer_bytes'] / 1e6:.0f} MB more")


if __name__ == "__main__":
    main()
