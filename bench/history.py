"""What `tight` would save if both sides remembered the signs of lately changed elements: history.py TRACE DELTAWIRE [all]

TRACE has base.safetensors (bf16) and deltas/*.safetensors ({name}.indices, {name}.values); DELTAWIRE is the program.
Prints a table: bytes of every delta as `tight` writes it, as costed here without history (the calibration), and with history.
Costs are of real tables: fitted on the blocks that `tight` samples (with `all`: on all), quantised as docs/format.md says, paid
for. Only the entropy coder is replaced by the sum of its code lengths. Needs numpy. results/history.md: what came out.
"""

import json
import math
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

BLOCK = 1 << 18
MAX_CLASSES, MAX_CONTEXTS, MAX_STEP = 8, 16, 16
BLOCK_BITS = 48 + 4 + 17  # coder states (64 bits, which carry 16), padding, length


# ---- the tables of docs/format.md, "tight", as bits per symbol
def code_lengths(weights):
    total, count = sum(weights), len(weights)
    frequencies = [1 + weight * (4096 - count) // total for weight in weights]
    frequencies[weights.index(max(weights))] += 4096 - sum(frequencies)
    return 12 - np.log2(frequencies)


@cache
def gap_lengths(q):
    """Raw bits included; the last token escapes."""
    one = 1 - 2 ** (-max(q, 0.01) / 16)
    raw = [max(0, token // 4 - 1) for token in range(77)]
    weights, alive = [], 2**32
    while len(weights) < 76 and (not weights or alive >= 2**20):
        token = len(weights) + 1
        after = int(2**32 * one ** (token if token < 8 else (4 + token % 4) << raw[token]))
        weights.append(alive - after)
        alive = after
    return code_lengths([*weights, alive]) + np.array([*raw[: len(weights)], 20])


def gap_bits(gaps, q):
    table = gap_lengths(q)
    raw = np.maximum(np.log2(np.maximum(gaps, 1)).astype(int) - 2, 0)
    return table[np.minimum(4 * raw + (gaps >> raw), len(table) - 1)].sum()


def step_lengths(counts):
    """With a table of 5-bit codes of 2^(0.4 code); and the bits of the table."""
    codes = [0 if c == 0 else max(1, 31 - round(2.5 * math.log2(counts.sum() / c))) for c in counts]
    runs = sum(code == 0 and (i == 0 or codes[i - 1] != 0) for i, code in enumerate(codes))
    weights = [1 if code == 0 else int(65536 * 2 ** (0.4 * code)) for code in codes]
    return code_lengths(weights), 5 * np.count_nonzero(codes) + 9 * runs


def sign_lengths(counts):
    """The chance of a sign takes a byte."""
    chance = min(255, max(1, round(256 * (counts[1] + 0.5) / (counts.sum() + 1)))) / 256
    return -np.log2([1 - chance, chance]), 8


def count_bits(count, mean):
    low = int(mean | 1).bit_length() // 2
    prefix = (2 * (count - mean) if count >= mean else 2 * (mean - count) - 1) >> low
    return prefix + 1 + low if prefix < 20 else 41


def block_q(q, mean, count):
    off = (count - mean) ** 2 > 16 * (mean + 1)
    return min(255, max(0, q + round(16 * math.log2(max(mean, 1) / count)))) if off else q


# ---- fitting: ranges of keys that share a table
def entropy(counts):
    counts = counts[counts > 0]
    return float((counts * np.log2(counts.sum() / counts)).sum())


def ranges(table, most, cost):
    """The cheapest split of the keys (rows of `table`) into at most `most` ranges: [(first, end), ...]."""
    rows = np.flatnonzero(table.any(axis=1))
    sums = np.vstack([np.zeros(table.shape[1]), np.cumsum(table[rows], axis=0)])
    best = [{0: (0.0, 0)}] + [{} for _ in range(most)]
    for begin in range(len(rows)):
        for end in range(begin + 1, len(rows) + 1):
            own = cost(sums[end] - sums[begin])
            for k in range(most):
                if begin in best[k] and best[k][begin][0] + own < best[k + 1].get(end, (math.inf, 0))[0]:
                    best[k + 1][end] = (best[k][begin][0] + own, begin)
    k = min(range(1, most + 1), key=lambda k: best[k].get(len(rows), (math.inf, 0))[0])
    end, first = len(rows), []
    for pieces in range(k, 1, -1):
        end = best[pieces][end][1]
        first.insert(0, int(rows[end]))
    return list(zip([0, *first], [*first, 256]))


class History:
    """What both sides know of every element. Signs of one tensor's changes, the newest version first."""

    def __init__(self, signs, n, in_positions):
        none = np.zeros(n, np.int8)
        newest, second, *_ = [*signs, none, none]
        self.direction = none.copy()  # the latest sign
        for sign in signs:
            self.direction[self.direction == 0] = sign[self.direction == 0]
        # 0: nothing; 1: changed, but not in the last version; 2: in the last; 3: in the last two
        recency = np.abs(self.direction) + np.abs(newest) + np.abs(newest * second)
        self.position_state = self.step_state = recency if in_positions else none
        self.sign_state = 3 * np.abs(newest) + second * self.direction + 1  # states that mirror each other are one


class Delta:
    """One tensor's change from old to new."""

    def __init__(self, old, new, history, sample_all):
        self.n, self.history = len(old), history
        self.step = (new - old).astype(np.int16).astype(int)
        self.key = (old >> 7 & 255).astype(np.uint8)
        self.places = np.flatnonzero(self.step)
        num_blocks = -(-self.n // BLOCK)
        self.blocks = [slice(i * BLOCK, min((i + 1) * BLOCK, self.n)) for i in range(num_blocks)]
        taken = num_blocks if sample_all else min(num_blocks, min(max(num_blocks // 16, 2), 8))
        self.sampled = np.zeros(self.n, bool)
        for i in range(taken):
            self.sampled[self.blocks[i * num_blocks // taken]] = True
        self.scale = self.n / self.sampled.sum()

    def bits(self):
        step, step_tables = self.step_bits()
        sign, sign_tables = self.sign_bits()
        classes, q, means = self.classes()
        total = 16 + 24 * len(q) + step_tables + sign_tables + sign.sum()
        for block in self.blocks:
            total += BLOCK_BITS
            for c in range(len(q)):
                members = np.flatnonzero(classes[block] == c)
                ranks = np.flatnonzero(self.step[block][members])
                count, mean = len(ranks), int(means[c] * (block.stop - block.start) / BLOCK)
                total += 1 + count_bits(count, mean)  # 1: whether all steps are +-1
                if count != 0:
                    total += gap_bits(np.diff(ranks, prepend=-1) - 1, block_q(q[c], mean, count))
                    if (np.abs(self.step[block][members[ranks]]) != 1).any():
                        total += step[block][members[ranks]].sum()
        return total

    def classes(self):
        """A class is a range of keys of one state. Its chance of a change, and changes expected in a block."""

        def cost(sums):
            population, changed = sums * self.scale
            return entropy(np.array([changed, population - changed])) + 24 + 8 * len(self.blocks)

        classes, q, means = np.zeros(self.n, np.uint8), [], []
        for state in np.unique(self.history.position_state):
            member = self.history.position_state == state
            seen = member & self.sampled
            table = np.stack([np.bincount(self.key[some], minlength=256) for some in (seen, seen & (self.step != 0))], axis=1)
            for first, end in ranges(table, MAX_CLASSES, cost):
                classes[member & (self.key >= first) & (self.key < end)] = len(q)
                population, changed = table[first:end].sum(axis=0)
                q.append(max(0, min(255, round(-16 * math.log2((4 * changed + 1) / (4 * population + 2))))))
                means.append(2 ** (round(12 * math.log2(max(1, changed * BLOCK / self.sampled.sum()))) / 12))
        return classes, q, means

    def step_bits(self):
        bits, size = np.zeros(self.n), np.abs(self.step[self.places])
        token = np.minimum(size, MAX_STEP + 1) - 1
        bits[self.places], tables = self.coded(self.places, self.history.step_state, token, MAX_STEP + 1, step_lengths)
        bits[self.places] += np.where(size > MAX_STEP, 3 + np.log2(size + 1), 0)  # an escape: a symbol and raw bits
        return bits, tables

    def sign_bits(self):
        bits, known = (self.step != 0).astype(float), self.places[self.history.direction[self.places] != 0]
        agrees = (self.step[known] * self.history.direction[known] > 0).astype(int)
        bits[known], tables = self.coded(known, self.history.sign_state, agrees, 2, sign_lengths)
        return bits, tables

    def coded(self, places, states, symbols, num_symbols, lengths_of):
        """Bits of each symbol with a table per range of keys and state; bits of the tables."""

        def cost(sums):
            return entropy(sums) * self.scale + (17 + 5 * np.count_nonzero(sums) if num_symbols > 2 else 16)

        bits, total, keys, sampled = np.zeros(len(places)), 0, self.key[places], self.sampled[places]
        for state in np.unique(states[places]):
            mine = states[places] == state
            seen = [keys[mine & sampled & (symbols == symbol)] for symbol in range(num_symbols)]
            table = np.stack([np.bincount(some, minlength=256) for some in seen], axis=1)
            for first, end in ranges(table, MAX_CONTEXTS, cost):
                here = mine & (keys >= first) & (keys < end)
                lengths, table_bits = lengths_of(table[first:end].sum(axis=0))
                bits[here], total = lengths[symbols[here]], total + table_bits + 8
        return bits, total


KINDS = [
    ("no history", 0, False),
    ("signs, last version", 1, False),
    ("signs, last 3", 3, False),
    ("all, last version", 1, True),
    ("all, last 2", 2, True),
    ("all, last 3", 3, True),
]


def load(path):
    """The header's bytes, and the tensors in the order of their data."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entries = {name: entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    tensors = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        kind = {"I32": np.int32, "U8": np.uint8}.get(entry["dtype"], np.uint16)
        tensors[name] = np.frombuffer(data, kind, math.prod(entry["shape"]), start + entry["data_offsets"][0])
    return data[:start], tensors


def tight_bytes(program, head, old, new):
    """Of the whole file, and of its header."""
    with tempfile.TemporaryDirectory() as folder:
        before, after, delta = (Path(folder) / f"{name}.safetensors" for name in ("before", "after", "delta"))
        before.write_bytes(head + b"".join(old.values()))
        after.write_bytes(head + b"".join(new.values()))
        subprocess.run([program, "diff", before, after, "-o", delta, "--codec", "tight", "-q"], check=True)
        return delta.stat().st_size, len(load(delta)[0])


def main(trace, program, sample="as tight does"):
    head, state = load(Path(trace) / "base.safetensors")
    past = {name: [] for name in state}  # signs, the newest first
    columns = ["version", "changed", "`tight`"] + [title for title, *_ in KINDS]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for version, path in enumerate(sorted((Path(trace) / "deltas").glob("*.safetensors")), 1):
        old, state, patch = state, {name: values.copy() for name, values in state.items()}, load(path)[1]
        for name in (key.removesuffix(".indices") for key in patch if key.endswith(".indices")):
            state[name][patch[name + ".indices"]] = patch[name + ".values"]
        size, header = tight_bytes(program, head, old, state)
        changed = [name for name in state if (old[name] != state[name]).any()]
        cells = [str(version), f"{sum((old[name] != state[name]).sum() for name in changed):,}", f"{size:,}"]
        for _, depth, in_positions in KINDS:
            history = {name: History(past[name][:depth], len(old[name]), in_positions) for name in changed}
            bits = (Delta(old[name], state[name], history[name], sample == "all").bits() for name in changed)
            total = header + sum(bits) / 8
            cells.append(f"{total:,.0f} ({total / size - 1:+.1%})")
        print("| " + " | ".join(cells) + " |", flush=True)
        for name in state:
            past[name].insert(0, np.sign((state[name] - old[name]).astype(np.int16)).astype(np.int8))


if __name__ == "__main__":
    main(*sys.argv[1:])
