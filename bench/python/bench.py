#!/usr/bin/env python3
"""Publish and apply through Python against C++, and against plain torch implementations of peers' formats.

    bench.py NATIVE OLD.safetensors NEW.safetensors [--rounds N] [--write FOLDER]

Two states of a model go back and forth; both sides work in one process, one after the other, through memory. NATIVE does the
same in C++ (native.cpp, target `deltawire_python_bench`). Everybody takes turns, so that what else the machine does hits all of
them; the best round of each counts. After every round the receiver's tensors are compared, bit for bit.
"""

import argparse
import importlib.util
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from peers import Slime, State, Trl

import deltawire as dw

TURNS = 2  # rounds until the next one's turn: back and forth


@dataclass
class Row:
    """What one way of sending took."""

    label: str
    publish: list[float] = field(default_factory=list)
    apply: list[float] = field(default_factory=list)
    size_bytes: int = 0


class Native:
    """C++, in a process of its own."""

    def __init__(self, program: str, old: str, new: str) -> None:
        self.row, self.command = Row("deltawire, C++"), [program, old, new, str(TURNS)]

    def turn(self) -> None:
        """Seed, then some rounds."""
        done = subprocess.run(self.command, check=True, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            publish, apply = map(float, line.split())
            self.row.publish.append(publish)
            self.row.apply.append(apply)


class Python:
    """A way of sending in this process: `send` gives what `receive` needs, and its size."""

    def __init__(
        self, label: str, states: list[State], send: Callable[[State], tuple[object, int]], receive: Callable[..., object]
    ):
        self.row, self.states = Row(label), states
        self.send, self.receive = send, receive
        self.held = {name: tensor.clone() for name, tensor in states[0].items()}
        self.after = 0

    def turn(self) -> None:
        """Some rounds."""
        for _ in range(TURNS):
            self.after = 1 - self.after
            wanted = self.states[self.after]
            begin = time.perf_counter()
            sent, self.row.size_bytes = self.send(wanted)
            published = time.perf_counter()
            self.receive(sent, self.held)
            applied = time.perf_counter()
            self.row.publish.append(published - begin)
            self.row.apply.append(applied - published)
            for name, tensor in wanted.items():
                assert torch.equal(self.held[name].view(torch.int16), tensor.view(torch.int16)), f"{self.row.label}: {name}"


def deltawire_in_python(states: list[State]) -> Python:
    """The package."""
    publisher = dw.Publisher("memory:bench", states[0])
    publisher.publish()

    def send(state: State) -> tuple[object, int]:
        version = publisher.publish(state)
        return None, version.bytes

    def receive(_: object, held: State) -> None:
        replicas[0].pull()

    way = Python("deltawire, Python", states, send, receive)
    replicas = [dw.TensorReplica("memory:bench", way.held)]
    replicas[0].pull()
    return way


def peer(kind: type[Trl] | type[Slime], states: list[State]) -> Python:
    """One of the others."""
    coded = kind(states[0])

    def send(state: State) -> tuple[object, int]:
        sent = coded.send(state)
        return sent, len(sent)

    return Python(kind.label, states, send, coded.receive)


def machine() -> str:
    """Its processor, and the name of the file for it."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores"


def report(rows: list[Row], states: list[State], arguments: argparse.Namespace) -> str:
    """A table of ratios."""
    elements = sum(tensor.numel() for tensor in states[0].values())
    changed = sum(int((a.view(torch.int16) != states[1][name].view(torch.int16)).sum()) for name, a in states[0].items())
    native, ours, *peers = rows
    native.size_bytes = ours.size_bytes
    lines = [
        "# Through Python, against C++ and against torch",
        "",
        f"{machine()}, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads. [README](../README.md#python) says what is measured.",
        "",
        "```console",
        f"$ scripts/bench python --rounds {arguments.rounds}",
        "```",
        "",
        f"{2 * elements / 1e6:,.0f} MB of bf16 weights in {len(states[0])} tensors, {changed / elements:.3%} changed. "
        "Times are ratios to the package's own.",
        "",
        "| | bytes per changed weight | publish | apply |",
        "|---|---:|---:|---:|",
    ]
    for row in [native, ours, *peers]:
        times = [min(row.publish) / min(ours.publish), min(row.apply) / min(ours.apply)]
        lines.append(f"| {row.label} | {row.size_bytes / changed:.2f} | {times[0]:.2f} | {times[1]:.2f} |")
    speeds = [2 * elements / min(times) / 1e9 for times in (ours.publish, ours.apply)]
    lines += [
        "",
        f"1.00 is {speeds[0]:.1f} GB/s of weights for publish, {speeds[1]:.1f} for apply, both with digests of all that changed.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Take turns, then report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("native")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", type=Path, help="a folder: python-MACHINE.md there")
    arguments = parser.parse_args()
    states = [safetensors.torch.load_file(path) for path in (arguments.old, arguments.new)]
    ways = [Native(arguments.native, arguments.old, arguments.new), deltawire_in_python(states), peer(Trl, states)]
    if all(map(importlib.util.find_spec, ("zstandard", "xxhash"))):
        ways.append(peer(Slime, states))
    else:
        print("without slime's format: zstandard and xxhash are not installed")
    for _ in range(max(1, arguments.rounds // TURNS)):
        for way in ways:
            way.turn()
    text = report([way.row for way in ways], states, arguments)
    if arguments.write is None:
        print(text)
    else:
        words = re.sub(r"\W+", "-", re.sub(r"\(.*?\)|processor|cpu", "", machine().lower())).strip("-")
        (arguments.write / f"python-{platform.machine()}-{words}.md").write_text(text)


if __name__ == "__main__":
    main()
