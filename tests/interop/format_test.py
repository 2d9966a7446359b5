#!/usr/bin/env python3
"""A second reader of deltas, written from docs/format.md alone: what the document leaves out, it cannot do.

usage: format_test.py DELTAWIRE

Slow, plain and without any package. It reads parts, takes `raw`, `gaps`, `exponents`, `adaptive` and `tight` payloads
apart and makes the new weights of the old ones; digests and zstd are left to others.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from adaptive_format import apply_changes

# ---- section 1: safetensors, and the metadata of a part

WIDTH = {"BF16": 2, "F16": 2, "I16": 2, "F32": 4, "I32": 4, "F64": 8, "I64": 8, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    tensors = {}
    for name, entry in entries:
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + begin : 8 + size + end])
    return metadata, tensors


def elements_of(data, width):
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


# ---- section 2: plain codecs


def take_leb128(payload, at):
    value = shift = 0
    while True:
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def apply_raw(payload, old, dtype):
    return elements_of(payload, WIDTH[dtype])


def packed_bytes(n):
    return n // 512 * 192 + 3 * ((n % 512 + 7) // 8)


def unpack_threes(data, n):
    """n values of three bits."""
    values, at = [], 0
    for begin in range(0, n, 512):
        m = min(512, n - begin)
        columns = (m + 7) // 8
        a, b, c = (data[at + i * columns : at + (i + 1) * columns] for i in range(3))
        rows = [[x & 7 for x in a], [x >> 3 & 7 for x in a], [x & 7 for x in b], [x >> 3 & 7 for x in b],
                [x & 7 for x in c], [x >> 3 & 7 for x in c],
                [x >> 6 | (z >> 6 & 1) << 2 for x, z in zip(a, c)], [y >> 6 | (z >> 7) << 2 for y, z in zip(b, c)]]
        group = [value for row in rows for value in row]
        assert not any(group[m:])
        values += group[:m]
        at += 3 * columns
    return values


def exponents_block(block, n, dtype):
    if len(block) == n * WIDTH[dtype]:
        return elements_of(block, WIDTH[dtype])
    base, at = block[0], 1

    def take(size):
        nonlocal at
        at += size
        return block[at - size : at]

    low = elements_of(take(2 * n), 2) if dtype == "F32" else [0] * n
    middle = take(n)
    high = unpack_threes(take(packed_bytes(n)), n) if dtype == "F16" else [0] * n
    codes, far = unpack_threes(take(packed_bytes(n)), n), iter(block[at:])
    keys = [next(far) if code == 7 else base + code for code in codes]
    assert next(far, None) is None
    if dtype == "F16":
        return [(h >> 2) << 15 | key << 10 | (h & 3) << 8 | m for h, key, m in zip(high, keys, middle)]
    tops = [(m >> 7) << 15 | key << 7 | m & 127 for key, m in zip(keys, middle)]
    return tops if dtype == "BF16" else [top << 16 | bits for top, bits in zip(tops, low)]


def unpack_exponents(payload, n, dtype):
    size = 1 << payload[0]
    starts = range(0, n, size)
    front = 1 + 8 * len(starts)
    ends = elements_of(payload[1:front], 8)
    assert front + (ends[-1] if ends else 0) == len(payload)
    elements = []
    for start, begin, end in zip(starts, [0, *ends], ends):
        assert dtype in ("BF16", "F16", "F32") or end - begin == min(size, n - start) * WIDTH[dtype]
        elements += exponents_block(payload[front + begin : front + end], min(size, n - start), dtype)
    return elements


def apply_exponents(payload, old, dtype):
    return unpack_exponents(payload, len(old), dtype)


def apply_gaps(payload, old, dtype):
    size = payload[0]
    count, at = take_leb128(payload, 1)
    gaps = elements_of(payload[at : at + count * size], size)
    values = elements_of(payload[at + count * size :], WIDTH[dtype])
    new, position = list(old), -1
    for gap, value in zip(gaps, values, strict=True):
        position += gap + 1
        new[position] = value
    return new


def apply_adaptive(payload, old, dtype):
    count, at = take_leb128(payload, 1)
    return apply_changes(payload[0], count, payload[at:], old, WIDTH[dtype])


# ---- section 3: tight

KEY = {"BF16": (7, 255), "F16": (10, 31), "F8_E4M3": (3, 15), "F8_E5M2": (2, 31), "F32": (23, 255), "F64": (52, 255),
       "I16": (8, 255), "I32": (24, 255), "I64": (56, 255), "U8": (0, 255)}
LAW_STEPS = [31, 22, 17, 14, 12, 10, 9, 8, 7, 6, 5, 5, 4, 4, 3, 3, 14]
K = [65536, 86475, 114104, 150562, 198668]
R = [4294967295, 4112874773, 3938502375, 3771522796, 3611622602, 3458501653, 3311872529, 3171459999,
     3037000499, 2908241642, 2784941737, 2666869344, 2553802833, 2445529971, 2341847523, 2242560871]
M = [65536, 69432, 73561, 77935, 82570, 87480, 92681, 98193, 104031, 110217, 116771, 123715]


class Bits:
    def __init__(self, data):
        self.value, self.at = int.from_bytes(data, "little"), 0

    def get(self, count):
        result = self.value >> self.at & (1 << count) - 1
        self.at += count
        return result

    def ones(self, limit):
        """Count ones up to a zero, which is consumed, or up to `limit`."""
        count = 0
        while count < limit and self.get(1):
            count += 1
        return count


def normalise(weights):
    total = sum(weights)
    f = [1 + weight * (4096 - len(weights)) // total for weight in weights]
    f[weights.index(max(weights))] += 4096 - sum(f)
    return f


def coded_table(codes):
    return normalise([1 if code == 0 else K[code % 5] << 2 * (code // 5) for code in codes])


def gap_base(token):
    return token if token < 8 else (4 + token % 4) << 1 + (token - 8) // 4


GAP_TABLES = {}


def gap_table(q):
    if q in GAP_TABLES:
        return GAP_TABLES[q]
    one = 4294967295 - (R[q % 16] >> q // 16)

    def survival(gap):
        result, power = 2**32, one
        while gap > 0:
            if gap & 1:
                result = result * power >> 32
            gap, power = gap >> 1, power * power >> 32
        return result

    weights, alive = [], 2**32
    while len(weights) < 76 and (not weights or alive >= 2**20):
        after = survival(gap_base(len(weights) + 1))
        weights.append(alive - after)
        alive = after
    GAP_TABLES[q] = normalise(weights + [alive])
    return GAP_TABLES[q]


def block_q(q, mean, count):
    if count == 0 or (count - mean) ** 2 <= 16 * (mean + 1):
        return q

    def log(x):
        e = (x | 1).bit_length() - 1
        return 16 * e + (((x << 8 >> e) % 256) >> 4)

    return max(0, min(255, q + log(mean) - log(count)))


class Model:
    def __init__(self, payload, dtype):
        bits = Bits(payload)
        width = WIDTH[dtype]
        tokens, escapes = (17 if width <= 2 else 8 * width + 1), 16 * width
        code = bits.get(7)
        self.block_log2, self.columns_log2 = (code, 0) if code < 32 else (12 + code % 16, 6 + (code - 32) // 16)
        self.fitted = bits.get(1)
        if self.fitted:
            classes, contexts = bits.get(4) + 1, bits.get(4) + 1
            self.thresholds = [bits.get(8) for _ in range(classes - 1)]
            pairs = [(bits.get(8), bits.get(8)) for _ in range(classes)]
            self.q, self.mean_codes = [q for q, _ in pairs], [mean for _, mean in pairs]
            self.contexts = [bits.get(8) for _ in range(contexts - 1)]
            self.steps = [coded_table(self.codes(bits, tokens)) for _ in range(contexts)]
            self.escapes = coded_table(self.codes(bits, escapes))
        else:
            key, q = bits.get(8), bits.get(8)
            self.thresholds = [key + c for c in range(1, 8) if key + c <= 255]
            self.q = [min(255, q + 16 * c) for c in range(len(self.thresholds) + 1)]
            self.contexts = []
            self.steps = [coded_table(LAW_STEPS if width <= 2 else [31] * tokens)]
            self.escapes = coded_table([31] * escapes)
        self.size = (bits.at + 7) // 8

    @staticmethod
    def codes(bits, count):
        codes = []
        while len(codes) < count:
            codes.append(bits.get(5))
            if codes[-1] == 0:
                codes += [0] * bits.get(4)
        assert len(codes) == count
        return codes


class Block:
    def __init__(self, block):
        self.bits = Bits(block[:-8])
        self.words = block[:-8]
        self.states = [int.from_bytes(block[-8:-4], "little"), int.from_bytes(block[-4:], "little")]
        self.turn = 0

    def symbol(self, table):
        state = self.states[self.turn % 2]
        slot, start, symbol = state % 4096, 0, 0
        while start + table[symbol] <= slot:
            start += table[symbol]
            symbol += 1
        state = table[symbol] * (state >> 12) + slot - start
        if state < 2**16:
            state = state << 16 | int.from_bytes(self.words[-2:], "little")
            self.words = self.words[:-2]
        self.states[self.turn % 2] = state
        self.turn += 1
        return symbol

    def finish(self):
        assert self.states == [2**16, 2**16], "coder states"
        assert len(self.words) == (self.bits.at + 7) // 8, "the streams do not meet"
        assert self.bits.get(-self.bits.at % 8) == 0, "padding"


def read_count(model, bits, c, n):
    if not model.fitted:
        length = bits.ones(64)
        return (1 << length | bits.get(length)) - 1, None
    mean = ((M[model.mean_codes[c] % 12] << model.mean_codes[c] // 12) >> 4) * n >> 12 + model.block_log2
    k = (mean | 1).bit_length() // 2
    prefix = bits.ones(20)
    if prefix == 20:
        return bits.get(21), mean
    z = prefix << k | bits.get(k)
    return (mean - (z + 1) // 2 if z % 2 else mean + z // 2), mean


def read_gap(block, table):
    token = block.symbol(table)
    if token == len(table) - 1:
        return block.bits.get(20)
    return gap_base(token) + (block.bits.get(1 + (token - 8) // 4) if token >= 8 else 0)


def read_value(model, block, old, context, width):
    w = 8 * width
    token = block.symbol(model.steps[context])
    flip = 0
    if token == (16 if width <= 2 else w):
        escape = block.symbol(model.escapes)
        flip, length = escape // w, escape % w
        negative = block.bits.get(1)
        size = 1 << length - 1 | block.bits.get(length - 1) if length else 0
    else:
        negative = block.bits.get(1)
        size = token + 1 if width <= 2 else 1 << token | block.bits.get(token)
    new = (old - size if negative else old + size) % 2**w
    return new ^ flip << w - 1


def tiles_of(model, shape, n):
    """The positions of the elements of each block."""
    size = 1 << model.block_log2
    if not model.columns_log2:
        return [range(begin, min(begin + size, n)) for begin in range(0, n, size)]
    rows, columns = shape[-2:]
    width, height = 1 << model.columns_log2, size >> model.columns_log2
    return [[start + r * columns + c for r in range(top, min(top + height, rows)) for c in range(left, min(left + width, columns))]
            for start in range(0, n, rows * columns) for top in range(0, rows, height) for left in range(0, columns, width)]


def apply_block(model, data, old, new, positions_of, key_of, width):
    block, n = Block(data), len(positions_of)
    num_classes = len(model.thresholds) + 1
    members = [[] for _ in range(num_classes)]
    for i in positions_of:
        members[sum(key_of(old[i]) >= t for t in model.thresholds)].append(i)
    unit = block.bits.get(num_classes)
    counts = [read_count(model, block.bits, c, n) for c in range(num_classes)]
    positions = []
    for c, (count, mean) in enumerate(counts):
        table = gap_table(block_q(model.q[c], mean, count) if model.fitted else model.q[c])
        rank, own = -1, []
        for _ in range(count):
            rank += 1 + read_gap(block, table)
            own.append(members[c][rank])
        positions.append(own)
    for c in range(num_classes):
        for i in positions[c]:
            if unit >> c & 1:
                new[i] = (old[i] + (-1 if block.bits.get(1) else 1)) % 2 ** (8 * width)
            else:
                context = sum(key_of(old[i]) >= t for t in model.contexts)
                new[i] = read_value(model, block, old[i], context, width)
    block.finish()


def apply_tight(payload, old, dtype, shape):
    model = Model(payload, dtype)
    shift, mask = KEY[dtype]
    tiles = tiles_of(model, shape, len(old))
    at, lengths = model.size, []
    for _ in tiles:
        length, at = take_leb128(payload, at)
        lengths.append(length)
    new = list(old)
    for tile, length in zip(tiles, lengths):
        if length:
            apply_block(model, payload[at : at + length], old, new, tile, lambda element: element >> shift & mask,
                        WIDTH[dtype])
        at += length
    assert at == len(payload), "bytes after the last block"
    return new


APPLY = {"raw": apply_raw, "gaps": apply_gaps, "exponents": apply_exponents,
         "adaptive": apply_adaptive, "tight": apply_tight}


def apply(codec, payload, old, dtype, shape):
    return APPLY[codec](payload, old, dtype, *([shape] if codec == "tight" else []))


def check(delta, old_path, new_path):
    """Every tensor changed by the delta must equal that of the new checkpoint. Returns the codecs used."""
    metadata, payloads = read_safetensors(delta)
    assert metadata["deltawire"].startswith("delta/1 ")
    records = metadata["deltawire.entries"].split(";")
    old, new = read_safetensors(old_path)[1], read_safetensors(new_path)[1]
    seen = set()
    for (name, (_, _, payload)), record in zip(payloads.items(), records, strict=True):
        codec, dtype, shape, box, changed, *_ = record.split(" ")
        assert box == "-" and shape == (",".join(map(str, old[name][1])) or "-")
        before = elements_of(old[name][2], WIDTH[dtype])
        after = apply(codec, payload, before, dtype, old[name][1]) if payload else before
        assert after == elements_of(new[name][2], WIDTH[dtype]), (codec, name)
        assert sum(a != b for a, b in zip(before, after)) == int(changed)
        seen.add((codec, dtype) + ((payload[0] >> 7,) if codec == "tight" else ()))
        if codec == "tight" and payload[0] & 127 >= 32:
            seen.add("tiles")
    return seen


def write_checkpoint(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, contents) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def every_width(seed, changed_share):
    """Tensors of every width, with all kinds of steps: one, a few, far, sign flips."""
    state = seed

    def random():
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return state >> 33

    old, new = {}, {}
    for dtype in KEY:
        bits = 8 * WIDTH[dtype]
        shift, mask = KEY[dtype]
        before = []
        for _ in range(4000):
            exponent = max(mask // 2 - (random() & random() & 15), 0)
            before.append((random() << 31 ^ random()) % 2**shift | exponent << shift | (random() & 1) << bits - 1)
        after = []
        for element in before:
            kind = random() % 20
            step = (0 if random() % 100 >= changed_share else 1 if kind < 8 else -1 if kind < 15 else
                    random() % 40 - 20 if kind < 18 else 2 ** (bits - 1) + random() % 9 if kind < 19 else random())
            after.append((element + step) % 2**bits)
        old[dtype], new[dtype] = (dtype, [e % 2**bits for e in before]), (dtype, after)
        old[dtype + ".small"] = (dtype, old[dtype][1][:40])
        new[dtype + ".small"] = (dtype, new[dtype][1][:40])
    return old, new


def main():
    deltawire = sys.argv[1]
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)

        def diff(old, new, codec):
            subprocess.run([deltawire, "diff", at / old, at / new, "-o", at / "d.safetensors", "--codec", codec, "-q"],
                           check=True)
            seen.update(check(at / "d.safetensors", at / old, at / new))

        subprocess.run([deltawire, "simulate", "--params", "1500k", "-o", at, "-q"], check=True)
        diff("v0.safetensors", "v1.safetensors", "tight")  # a tensor of several blocks
        for path, change in (("a.safetensors", 0), ("b.safetensors", 1)):  # two matrices, tiles of 128 columns and less
            values = b"".join((15000 + i % 999 + (change if i % 613 == 0 else 0)).to_bytes(2, "little") for i in range(2 * 300 * 1027))
            write_checkpoint(at / path, {"experts": ("BF16", [2, 300, 1027], values), "matrix": ("BF16", [300, 1024], values[: 2 * 300 * 1024])})
        diff("a.safetensors", "b.safetensors", "tight")
        assert "tiles" in seen
        for share in (1, 10, 60):
            old, new = every_width(share, share)
            for path, state in (("a.safetensors", old), ("b.safetensors", new)):
                write_checkpoint(at / path, {name: (dtype, [len(elements)], b"".join(
                    element.to_bytes(WIDTH[dtype], "little") for element in elements))
                    for name, (dtype, elements) in state.items()})
            for codec in APPLY:
                diff("a.safetensors", "b.safetensors", codec)
    # Both kinds of model and every layout were read.
    for dtype in KEY:
        for fitted in (0, 1):
            assert ("tight", dtype, fitted) in seen, (dtype, fitted)
        for codec in ("raw", "gaps", "exponents", "adaptive"):
            assert (codec, dtype) in seen, (codec, dtype)
    print(f"{len(seen)} kinds of payload read by docs/format.md alone")


if __name__ == "__main__":
    main()
