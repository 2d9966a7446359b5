"""Chains, replicas and servers for tests of the page; stores of any size without training."""
import hashlib
import json
import math
import os
import re
import signal
import sys
import time
from pathlib import Path

import xxhash

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crash"))
from crash_world import World, wait_until


class Chain(World):
    """A chain, the processes that follow it, and a server with its page."""

    def __init__(self, binary, root, steps, weights=None):
        super().__init__(binary, root, weights or root / "weights")
        self.processes = {}
        if steps:
            self.simulate("1M", steps, 0.01)

    def publish_step(self, version, *options):
        self.must(*self.publish(version, "-q", *options))

    def follow(self, name):
        self.processes[name] = self.start("follow", self.store, self.root / name, "--name", name, "--interval", 0.2, "-q")

    def serve(self, *options, address="127.0.0.1:0", stores=()):
        """Start a server; return the page's address. A previous server ends."""
        if "server" in self.processes:
            self.kill("server")
        server = self.start("serve", self.store, *stores, "--listen", address, *options)
        self.processes["server"] = server
        return re.search(r"https?://[^\s,]+", server.stdout.readline()).group(0)

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.communicate()

    def close(self):
        for name in list(self.processes):
            self.signal(name, signal.SIGCONT)
            self.kill(name)

    def beat(self, name):
        """Its heartbeat in the store."""
        return json.loads((self.store / f"replicas/{name}.json").read_text())

    def silence(self, name, seconds):
        """Make it look silent for this many seconds."""
        then = time.time() - seconds
        os.utime(self.store / f"replicas/{name}.json", (then, then))

    def wait_for(self, name, version):
        wait_until(lambda: self.held(name) == version, f"{name} does not come to version {version}")


def canonical(record):
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    check = xxhash.xxh3_128_hexdigest(text)
    return json.dumps({**record, "check": check}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def write_heartbeat(store, place, number, held, **more):
    """A replica that consists of a heartbeat only; `held` is (run, version, sha-256 of the manifest)."""
    holds = dict(zip(("run", "version", "manifest"), held, strict=True))
    beat = {"format": "heartbeat/1", "name": place, "id": f"{number:016x}", "session": f"{number:016x}",
            "host": f"gpu-{number // 8}", "pid": 4000 + number, "held": holds, "serving": holds, "seen": int(time.time()),
            "interval_seconds": 60, "lease": None, **more}
    (store / "replicas").mkdir(exist_ok=True)
    (store / f"replicas/{place}.json").write_bytes(canonical(beat))


def lengthen(store, versions, every=2.1):
    """Add manifests to a chain with versions 0 and 1 up to `versions`: (run, version, sha-256) of each."""
    def read(version):
        data = (store / f"manifests/{version:010d}.json").read_bytes()
        return json.loads(data), hashlib.sha256(data).hexdigest()

    links = []
    for version in (0, 1):
        manifest, link = read(version)
        links.append((manifest["run"], version, link))
    manifest.pop("check")
    changed, size, chain_bytes = manifest["changed"], manifest["parts"][0]["bytes"], manifest["chain_bytes"]
    start = time.time() - versions * every
    for version in range(2, versions):
        wave = 1 + 0.3 * math.sin(version / 60) + 0.15 * (version * 7919 % 101) / 101
        bytes_now = int(size * wave)
        chain_bytes += bytes_now
        name = f"parts/{version:010d}-000000000000/part-00000.safetensors"
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start + version * every))
        manifest.update(version=version, base=version - 1, parent=links[-1][2], changed=int(changed * wave), created=created,
                        chain_bytes=chain_bytes, milliseconds=900 + version * 31 % 400 + 1500 * (version % 173 == 0),
                        parts=[{**manifest["parts"][0], "name": name, "bytes": bytes_now}])
        data = canonical(manifest)
        (store / f"manifests/{version:010d}.json").write_bytes(data)
        links.append((manifest["run"], version, hashlib.sha256(data).hexdigest()))
    (store / "HEAD").write_text(str(versions - 1))
    return links


def add_hops(store, versions, every):
    """Add names of anchors and merged deltas; only replicas read their contents."""
    (store / "hops").mkdir(exist_ok=True)
    for version in range(every, versions, every):
        merged = f"{version:010d}-{version - every:010d}-{version * 90:014x}-{0:014x}-{version:014x}.json"
        anchor = f"{version:010d}-full-{1_400_000:014x}-{0:014x}-{version:014x}.json"
        for name in (merged, anchor) if version % (8 * every) == 0 else (merged,):
            (store / f"hops/{name}").write_text("{}")
