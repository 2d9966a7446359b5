"""Reads `adaptive` payloads, written from docs/format.md only; used by format_test.py."""


class Bit:
    def __init__(self, zero=None):
        self.zero, self.seen = (32768, 0) if zero is None else (zero, 3)


class Coder:
    def __init__(self, stream):
        self.stream, self.at = stream, 0
        self.code, self.range = 0, 2**32 - 1
        self.models = {}
        for _ in range(4):
            self.code = self.code << 8 | self.byte()

    def byte(self):
        self.at += 1
        return self.stream[self.at - 1] if self.at <= len(self.stream) else 0

    def normalise(self):
        while self.range < 2**24:
            self.code = (self.code << 8 | self.byte()) % 2**32
            self.range <<= 8

    def bit(self, *name):
        model = self.models.setdefault(name, Bit(57344 if name[0] == "far" else None))
        bound = (self.range >> 12) * min(max(model.zero >> 4, 1), 4095)
        value = int(self.code >= bound)
        if value:
            self.range -= bound
            self.code -= bound
        else:
            self.range = bound
        divisor = 2 * model.seen + 3
        if value:
            model.zero -= 2 * model.zero // divisor
        else:
            model.zero += 2 * (65536 - model.zero) // divisor
        model.seen = min(model.seen + 1, 255)
        self.normalise()
        return value

    def raw(self, count):
        value = 0
        for _ in range(count):
            self.range >>= 1
            one = int(self.code >= self.range)
            self.code -= self.range * one
            value = 2 * value + one
            self.normalise()
        return value

    def tree(self, bits, *name):
        value = 1
        for _ in range(bits):
            value = 2 * value + self.bit("tree", *name, value)
        return value - 2**bits

    def number(self, learned, *name):
        length = self.tree(6, *name)
        if length < 2:
            return length
        value, left = 1, length - 1
        for _ in range(min(learned, left)):
            value = 2 * value + self.bit("below", *name, length, value)
            left -= 1
        return value << left | self.raw(left)


def expect_gaps(coder, mean):
    weights = [1] * 64
    for i, weight in enumerate((17, 50, 64, 52, 33, 19, 10, 5, 3)):
        if 0 <= mean + 2 - i < 64:
            weights[mean + 2 - i] = weight
    sums = [0] * 64 + weights
    for node in range(63, 0, -1):
        sums[node] = sums[2 * node] + sums[2 * node + 1]
        for short in (False, True):
            coder.models["tree", "gaps", short, node] = Bit(65536 * sums[2 * node] // sums[node])


def new_code(coder, old):
    if not coder.bit("far", old):
        return (old + (-1 if coder.bit("minus", old) else 1)) % 16
    return (old + coder.tree(4, "steps", old in (0, 8))) % 16


def new_element(coder, old, bits):
    top = old >> bits - 1
    size = coder.number(1, "sizes") + 1 if coder.bit("far", top) else 1
    return (old - size if coder.bit("minus", top) else old + size) % 2**bits


def apply_changes(view, count, stream, old, width):
    """The new elements; `stream` follows the count."""
    bits = 4 if view == 1 else 8 * width
    each = 8 * width // bits
    new = list(old)
    coder, position, gap = Coder(stream), -1, 32
    expect_gaps(coder, (len(old) * each // count).bit_length())
    for _ in range(count):
        gap = coder.number(2, "gaps", gap < 32)
        position += 1 + gap
        element, shift = position // each, position % each * bits
        before = old[element] >> shift & 2**bits - 1
        after = new_code(coder, before) if view == 1 else new_element(coder, before, bits)
        assert before != after
        new[element] ^= (before ^ after) << shift
    assert coder.raw(8) == 0xA5 and coder.at == len(stream) + 3
    return new
