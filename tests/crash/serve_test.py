#!/usr/bin/env python3
"""Replicas that follow a server are killed, stopped, slow, late; so are the server, a relay and the publisher: nothing is lost.

usage: serve_test.py DELTAWIRE [--replicas N] [--soak SECONDS] [--seed N]

Everything is a process of its own: publisher -> folder -> server -> relay -> replicas, which know both. After every version all
that are there hold it, bit for bit, and the publisher's report names those that do not. With --soak it goes on at random.
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
import threading
import time
from pathlib import Path

PATIENCE = 120  # seconds; only failures wait so long


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class FlippingProxy:
    """Forwards connections, and flips a bit in the middle of every large answer while `flips` is true."""

    def __init__(self, port):
        self.target, self.flips, self.flipped = port, True, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self.pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, True), daemon=True).start()

    def pump(self, source, sink, answers):
        try:
            while data := source.recv(1 << 20):
                body = data.find(b"\r\n\r\n") + 4
                if answers and self.flips and len(data) - body > 2000:
                    at = (body + len(data)) // 2
                    data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
                    self.flipped += 1
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Fleet:
    def __init__(self, binary, root, states, wait_for):
        self.binary, self.root, self.states, self.wait_for = binary, root, states, wait_for
        self.environment = {**os.environ, "HOME": str(root), "XDG_CACHE_HOME": str(root / "cache")}
        self.ports = {"server": free_port(), "relay": free_port()}
        self.token = root / "token"
        self.token.write_text("between us\n")
        self.watched = root / "watched"
        self.watched.mkdir()
        self.replicas, self.server, self.publisher = {}, None, None
        self.version = -1
        self.log = open(root / "log", "w")

    def url(self, *names):
        return ",".join(f"http://127.0.0.1:{self.ports[name]}" for name in names)

    def start(self, *args, **more):
        return subprocess.Popen([self.binary, *map(str, args)], env=self.environment, text=True, stderr=self.log, **more)

    def start_publisher(self):
        self.publisher = self.start(
            "publish", "--watch", self.watched, self.root / "store", "--snapshot", self.root / "snapshot", "--settle", "0",
            "--interval", "0.05", "--json", "--wait-for", self.wait_for, "--wait-timeout", "5", stdout=subprocess.PIPE, bufsize=1)

    def start_server(self):
        self.server = self.start("serve", self.root / "store", "--listen", f"127.0.0.1:{self.ports['server']}", "--token-file",
                                 self.token, "--quiet", stdout=subprocess.DEVNULL)

    def start_replica(self, name, *more, store=None):
        store = store or (self.url("server") if name == "relay" else self.url("relay", "server"))
        serve = ["--serve", f"127.0.0.1:{self.ports['relay']}"] if name == "relay" else []
        self.replicas[name] = self.start(
            "follow", store, self.root / name, "--token-file", self.token, "--name", name, "--interval", "1", "--timeout", "5", "--retries", "2",
            "--quiet", *serve, *more, stdout=subprocess.DEVNULL)

    def publish(self):
        """Publish the next version; return its report."""
        self.version += 1
        name = f"v{self.version:06}.safetensors"
        shutil.copy(self.states[self.version % len(self.states)], self.root / name)
        os.rename(self.root / name, self.watched / name)
        while True:
            line = self.publisher.stdout.readline()
            assert line, f"the publisher has ended: {self.publisher.wait()}"
            report = json.loads(line)
            if report["version"] == self.version:
                return report
            assert not report["committed"], report  # one that was killed before it had noted what it published

    def held(self, name):
        try:
            return json.loads((self.root / name / ".deltawire" / "state.json").read_text())["version"]
        except (OSError, ValueError, KeyError):
            return None

    def wait_held(self, name):
        end = time.time() + PATIENCE
        while self.held(name) != self.version:
            assert self.replicas[name].poll() is None, f"{name} has ended"
            assert time.time() < end, f"{name} is at {self.held(name)}, not at {self.version}"
            time.sleep(0.02)

    def check_all(self, *, but=()):
        """All replicas equal the trainer, bit for bit."""
        state = self.states[self.version % len(self.states)]
        for name in set(self.replicas) - set(but):
            self.wait_held(name)
            done = subprocess.run([self.binary, "verify", str(state), str(self.root / name)], env=self.environment,
                                  capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, f"{name} at {self.version}: {done.stdout}{done.stderr}"

    def logged(self, words):
        end = time.time() + PATIENCE
        while words not in (self.root / "log").read_text():
            assert time.time() < end, f"nothing logged about {words!r}"
            time.sleep(0.05)

    def kill(self, name):
        process = self.replicas.pop(name)
        process.kill()
        process.wait()

    def kill_server(self):
        self.server.kill()
        self.server.wait()

    def kill_publisher(self):
        self.publisher.kill()
        self.publisher.wait()
        self.publisher.stdout.close()

    def end(self):
        for process in [*self.replicas.values(), self.server, self.publisher]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.log.close()


def missing(report):
    return {one["name"]: one["missing"] for one in report["holders"]["replicas"] if one["missing"]}


def scripted(fleet, names):
    fleet.start_publisher()
    fleet.start_server()
    for name in ["relay", *names]:
        fleet.start_replica(name)
    for _ in range(3):
        report = fleet.publish()
        fleet.check_all()
    assert report["holders"]["complete"] and not report["warnings"], report

    # One replica is killed and comes back late; another one is new.
    fleet.kill(names[0])
    for _ in range(4):
        fleet.publish()
        fleet.check_all()
    fleet.start_replica(names[0])
    fleet.start_replica("new")
    fleet.check_all()

    # One is stopped: the others continue, the report names it, and it catches up.
    hung = fleet.replicas[names[1]]
    hung.send_signal(signal.SIGSTOP)
    fleet.publish()
    fleet.check_all(but=[names[1]])
    fleet.kill("new")
    fleet.kill("relay")  # its readers go to the server
    report = fleet.publish()
    assert not report["holders"]["complete"] and {names[1], "new", "relay"} <= set(missing(report)), report
    assert any(names[1] in warning for warning in report["warnings"]), report
    hung.send_signal(signal.SIGCONT)
    fleet.check_all()
    fleet.start_replica("relay")
    fleet.check_all()

    # The server is down while versions are published; then the publisher is down.
    fleet.kill_server()
    fleet.publish()
    fleet.kill_publisher()
    fleet.start_server()
    fleet.check_all()
    fleet.start_publisher()
    fleet.publish()
    fleet.check_all()

    # One is slow, and one is behind a proxy that flips bits: wrong bytes are never accepted, and the others do not wait.
    proxy = FlippingProxy(fleet.ports["server"])
    fleet.start_replica("slow", "--rate-limit", "200KB", store=fleet.url("server"))
    fleet.start_replica("flipped", store=f"http://127.0.0.1:{proxy.port}")
    for _ in range(3):
        fleet.publish()
        fleet.check_all(but=["slow", "flipped"])
    fleet.logged("sha-256: expected")
    assert proxy.flipped, "nothing was flipped"
    assert fleet.replicas["flipped"].poll() is None and fleet.held("flipped") is None
    proxy.flips = False
    fleet.check_all()

    # A trainer that lost its store starts another run: no replica follows it, and all keep their version.
    fleet.kill_publisher()
    fleet.kill_server()
    held = {name: fleet.held(name) for name in fleet.replicas}
    for folder in ("store", "snapshot"):
        shutil.rmtree(fleet.root / folder)
    subprocess.run([fleet.binary, "publish", str(fleet.states[2]), str(fleet.root / "store"), "--snapshot",
                    str(fleet.root / "snapshot"), "--quiet"], env=fleet.environment, check=True, timeout=PATIENCE)
    fleet.start_server()
    fleet.logged("now instead of run")
    time.sleep(2)
    assert held == {name: fleet.held(name) for name in fleet.replicas}


def soak(fleet, names, seconds, choice):
    end, versions, deeds = time.time() + seconds, 0, {}
    stopped = set()
    while time.time() < end:
        deed = choice.choice(["publish"] * 6 + ["kill", "add", "stop", "go on", "kill in the middle", "kill server", "kill publisher"])
        deeds[deed] = deeds.get(deed, 0) + 1
        running = [name for name in fleet.replicas if name not in stopped]
        if deed == "kill" and len(running) > 1:
            fleet.kill(choice.choice(running))
        elif deed == "add" and set(names) - set(fleet.replicas):
            fleet.start_replica(choice.choice(sorted(set(names) - set(fleet.replicas))))
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
            killer = subprocess.Popen(["sh", "-c", f"sleep {choice.random() * 0.3}; kill -9 {fleet.replicas[victim].pid}"])
            fleet.publish()
            versions += 1
            killer.wait()
            fleet.kill(victim)
        elif deed == "kill server":
            fleet.kill_server()
            fleet.start_server()
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
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--params", default="200K")
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    root = Path(tempfile.mkdtemp(prefix="deltawire-serve."))
    subprocess.run([binary, "simulate", "--params", options.params, "--steps", "5", "--density", "0.05", "-o", str(root / "w"), "-q"],
                   check=True, timeout=PATIENCE)
    states = [root / "w" / f"v{i}.safetensors" for i in range(6)]
    names = [f"r{i}" for i in range(options.replicas)]
    fleet = Fleet(binary, root, states, options.replicas + 1)
    try:
        if options.soak:
            fleet.start_publisher()
            fleet.start_server()
            fleet.start_replica("relay")
            soak(fleet, ["relay", *names], options.soak, random.Random(options.seed))
        else:
            scripted(fleet, names)
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
