#!/usr/bin/env python3
"""Replicas that follow a publisher over a carrier are killed, stopped, added, and so is the publisher: nothing is lost.

usage: ship_test.py DELTAWIRE [--replicas N] [--soak SECONDS] [--seed N]

Each replica is a process of its own. After every version all that are there hold it, bit for bit, and the publisher's report
names those that do not. With --soak it goes on at random.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 120  # seconds; only failures wait so long


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Fleet:
    def __init__(self, binary, root, states):
        self.binary, self.root, self.states = binary, root, states
        self.environment = {**os.environ, "HOME": str(root), "XDG_CACHE_HOME": str(root / "cache")}
        self.address = f"127.0.0.1:{free_port()}"
        self.secret = root / "secret"
        self.secret.write_text("between us\n")
        self.watched = root / "watched"
        self.watched.mkdir()
        self.replicas, self.publisher = {}, None
        self.version = -1
        self.log = open(root / "log", "w")

    def start(self, *args, **more):
        return subprocess.Popen([self.binary, *map(str, args)], env=self.environment, text=True, stderr=self.log, **more)

    def start_publisher(self):
        self.publisher = self.start(
            "publish", "--watch", self.watched, self.root / "store", "--snapshot", self.root / "snapshot", "--settle", "0",
            "--interval", "0.05", "--json", "--ship", self.address, "--ship-secret-file", self.secret, "--ship-timeout", "8",
            stdout=subprocess.PIPE, bufsize=1)

    def start_replica(self, name):
        self.replicas[name] = self.start(
            "follow", f"ship://{self.address}", self.root / name, "--secret-file", self.secret, "--name", name, "--interval", "1",
            "--quiet", stdout=subprocess.DEVNULL)

    def publish(self):
        """The next version; what its publisher reports."""
        self.version += 1
        name = f"v{self.version:06}.safetensors"
        shutil.copy(self.states[self.version % len(self.states)], self.root / name)
        os.rename(self.root / name, self.watched / name)
        began = time.time()
        while True:
            line = self.publisher.stdout.readline()
            assert line, f"the publisher has ended: {self.publisher.wait()}"
            report = json.loads(line)
            if report["version"] == self.version:
                break
            assert not report["committed"], report  # one that was killed before it had noted what it published
        assert time.time() - began < PATIENCE
        return report

    def held(self, name):
        try:
            return json.loads((self.root / name / ".deltawire" / "state.json").read_text())["version"]
        except (OSError, ValueError, KeyError):
            return None

    def wait_held(self, name, version=None):
        version = self.version if version is None else version
        end = time.time() + PATIENCE
        while self.held(name) != version:
            assert self.replicas[name].poll() is None, f"{name} has ended"
            assert time.time() < end, f"{name} is at {self.held(name)}, not at {version}"
            time.sleep(0.02)

    def check(self, name):
        """Bit for bit."""
        state = self.states[self.version % len(self.states)]
        done = subprocess.run([self.binary, "verify", str(state), str(self.root / name)], env=self.environment,
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{name} at {self.version}: {done.stdout}{done.stderr}"

    def check_all(self):
        for name in self.replicas:
            self.wait_held(name)
            self.check(name)

    def wait_following(self, count):
        """Until the publisher counts so many in a report: each asks for a version."""
        end = time.time() + PATIENCE
        while True:
            report = self.publish()
            good = [one for one in report["ship"]["replicas"] if not one["error"]]
            if len(good) >= count:
                return report
            assert time.time() < end, report["ship"]

    def kill(self, name):
        process = self.replicas.pop(name)
        process.kill()
        process.wait()

    def kill_publisher(self):
        self.publisher.kill()
        self.publisher.wait()
        self.publisher.stdout.close()

    def end(self):
        for process in [*self.replicas.values(), self.publisher]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.log.close()


def errors(report):
    return {one["name"]: one["error"] for one in report["ship"]["replicas"] if one["error"]}


def scripted(fleet, count):
    names = [f"r{i}" for i in range(count)]
    fleet.start_publisher()
    fleet.publish()
    for name in names:
        fleet.start_replica(name)
    for name in names:
        fleet.wait_held(name)
    report = fleet.wait_following(count)
    assert not errors(report), report["ship"]
    assert report["ship"]["bytes"] == report["bytes"], report
    fleet.check_all()

    fleet.kill(names[0])
    report = fleet.publish()
    assert all(one["version"] == fleet.version for one in report["ship"]["replicas"] if one["name"] != names[0]), report["ship"]
    fleet.check_all()
    for _ in range(3):
        fleet.publish()
    fleet.start_replica(names[0])
    fleet.start_replica("new")
    fleet.wait_held(names[0])
    fleet.wait_held("new")
    assert not errors(fleet.wait_following(count + 1))
    fleet.check_all()

    hung = fleet.replicas[names[1]]
    hung.send_signal(signal.SIGSTOP)
    report = fleet.publish()
    assert list(errors(report)) == [names[1]], report["ship"]
    assert report["warnings"], report
    fleet.publish()
    hung.send_signal(signal.SIGCONT)
    fleet.check_all()
    assert not errors(fleet.wait_following(count + 1))

    fleet.kill_publisher()
    fleet.start_publisher()
    fleet.wait_following(count + 1)
    fleet.check_all()


def soak(fleet, count, seconds, choice):
    end, versions, deeds = time.time() + seconds, 0, {}
    stopped = set()
    while time.time() < end:
        deed = choice.choice(["publish"] * 6 + ["kill", "add", "stop", "go on", "kill in the middle", "kill publisher"])
        deeds[deed] = deeds.get(deed, 0) + 1
        running = [name for name in fleet.replicas if name not in stopped]
        if deed == "kill" and len(running) > 1:
            fleet.kill(choice.choice(running))
        elif deed == "add" and len(fleet.replicas) < count:
            free = [f"r{i}" for i in range(count) if f"r{i}" not in fleet.replicas]
            fleet.start_replica(choice.choice(free))
        elif deed == "stop" and not stopped and len(running) > 1:
            name = choice.choice(running)
            fleet.replicas[name].send_signal(signal.SIGSTOP)
            stopped.add(name)
        elif deed == "go on":
            for name in stopped:
                fleet.replicas[name].send_signal(signal.SIGCONT)
            stopped.clear()
        elif deed == "kill in the middle" and len(running) > 1:
            victim = choice.choice(running)
            delay = choice.random() * 0.3
            killer = subprocess.Popen(["sh", "-c", f"sleep {delay}; kill -9 {fleet.replicas[victim].pid}"])
            fleet.publish()
            versions += 1
            killer.wait()
            fleet.kill(victim)
        elif deed == "kill publisher":
            fleet.kill_publisher()
            fleet.start_publisher()
        else:
            fleet.publish()
            versions += 1
    for name in stopped:
        fleet.replicas[name].send_signal(signal.SIGCONT)
    fleet.publish()
    fleet.check_all()
    print(f"soak: {versions} versions in {seconds} s; {deeds}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--params", default="200K")
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    root = Path(tempfile.mkdtemp(prefix="deltawire-ship."))
    subprocess.run([binary, "simulate", "--params", options.params, "--steps", "5", "--density", "0.05", "-o", str(root / "w"), "-q"],
                   check=True, timeout=PATIENCE)
    states = [root / "w" / f"v{i}.safetensors" for i in range(6)]
    fleet = Fleet(binary, root, states)
    try:
        scripted(fleet, options.replicas)
        if options.soak:
            soak(fleet, options.replicas + 1, options.soak, random.Random(options.seed))
    except BaseException:
        fleet.end()
        print((root / "log").read_text()[-6000:], file=sys.stderr)
        raise
    finally:
        fleet.end()
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(f"ok: {fleet.version + 1} versions")


if __name__ == "__main__":
    main()
