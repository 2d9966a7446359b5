"""Numbers for people, as the command line tool writes them."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Three digits and a unit: "4.00 kB"."""
    if count < 1000:
        return f"{count:.0f} B"
    units = ["TB", "GB", "MB", "kB"]
    count /= 1000
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop()
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    return f"{count:.{digits}f} {units[-1]}"


def percent(part: float, whole: float) -> str:
    """A share: "0.100 %"."""
    return f"{100 * part / whole:.3f} %" if whole else "0 %"


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 tensor", "2 tensors"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
