#!/usr/bin/env python3
"""The figures of the README: bench/readme.py [--check]

Writes the part of README.md between the comments `figures` and docs/figures.svg, from bench/results. With --check it only says
whether they are what it would write, as the test `readme.figures` does.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
MACHINE = "x86_64-intel-xeon-2-cores"
CODECS, CHAIN, SERVED = (RESULTS / name for name in (f"{MACHINE}.md", f"chain-{MACHINE}.md", "engines-h200.md"))
LINK, FOLDER = "100 MB/s, 50 ms to replica", "a folder"
WAYS = {  # in the README: in the table of `bench chain`
    "full copy": "full copy",
    "TRL: int32 positions + values": None,  # no transport of its own: bytes alone
    "slime: XOR + zstd-1 + xxh3-128": "slime's pipeline",
    "deltawire": "deltawire, memory",
}


def cells(path: Path, *first: str) -> list[str]:
    """The first row of a table in `path`, of Markdown or as `deltawire bench` prints it, that begins with these cells."""
    for line in path.read_text().splitlines():
        columns = line.strip("|").split("|") if line.startswith("|") else re.split(" {2,}", line.strip())
        row = [cell.strip().strip("*") for cell in columns]
        if row[: len(first)] == list(first):
            return row
    raise SystemExit(f"{path.relative_to(ROOT)}: no row {' | '.join(first)}")


def short(seconds: str) -> str:
    return f"{float(seconds.split()[0]):.1f} s"


def measured() -> list[tuple[str, float, str | None, str | None]]:
    """A name, megabytes, and seconds over the link and in a folder."""
    found = []
    for name, how in WAYS.items():
        if how is None:
            found.append((name, int(cells(CODECS, "trl-v1")[1]) / 1e6, None, None))
            continue
        over_link, in_folder = cells(CHAIN, LINK, how), cells(CHAIN, FOLDER, how)
        number, unit = in_folder[2].split()
        found.append((name, float(number) * {"MB": 1, "GB": 1000}[unit], short(over_link[5]), short(in_folder[5])))
    return found


def table() -> str:
    lines = [
        "| 1 GB of bf16 weights, 1.2 % changed | bytes sent | seconds over a link of 100 MB/s, round trip 50 ms | through a local folder |",
        "|---|---|---|---|",
    ]
    for name, megabytes, *seconds in measured():
        sent = f"{megabytes / 1000:.2f} GB" if megabytes >= 1000 else f"{megabytes:.1f} MB"
        row = [name, sent, *(second or "not measured" for second in seconds)]
        lines.append("| " + " | ".join(f"**{cell}**" if name == "deltawire" else cell for cell in row) + " |")
    return "\n".join(lines)


def sentence() -> str:
    served, pause = (f"{float(cells(SERVED, name)[1]):.0f}" for name in ("publish() → served", "pause, in the worker"))
    return f"""With a real vLLM 0.32 server on an H200 (CUDA graphs, 8.19 B bf16 weights, 1.2 % changed, under load), {served} ms pass from `publish()` until the version is served.
The worker pauses for {pause} ms of that, including the verification of all weights: `scripts/gpu engines` ([results](bench/results/{SERVED.name}))."""


def panel(left: int, title: str, bars: list[tuple[str, float, str]]) -> str:
    """Horizontal bars, the largest as wide as the panel."""
    widest, out = max(value for _, value, _ in bars), [f'<text x="{left}" y="26" font-weight="600">{escape(title)}</text>']
    for row, (name, value, label) in enumerate(bars):
        top, width = 42 + 44 * row, max(2, round(230 * value / widest))
        colour = "#1f6feb" if name == "deltawire" else "#8b949e"
        out.append(f'<text x="{left}" y="{top + 10}" fill="#57606a">{escape(name)}</text>')
        out.append(f'<rect x="{left}" y="{top + 15}" width="{width}" height="14" rx="2" fill="{colour}"/>')
        out.append(f'<text x="{left + width + 6}" y="{top + 27}">{escape(label)}</text>')
    return "\n".join(out)


def chart() -> str:
    """Bytes without the full copy, beside which nothing else would be seen; its number is in the title."""
    ways = [(name.split(":")[0], *rest) for name, *rest in measured()]
    sent = [(name, size, f"{size:.3g} MB") for name, size, *_ in ways if name != "full copy"]
    slow = [(name, float(link.split()[0]), link) for name, _, link, _ in ways if link]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 190" font-family="system-ui, sans-serif" font-size="12">
<title>Bytes and time of one step of 1 GB of weights</title>
<rect width="700" height="190" rx="6" fill="#ffffff"/>
{panel(16, "Bytes of one step (a full copy: 1,000 MB)", sent)}
{panel(366, "publish() to verified, 100 MB/s and 50 ms", slow)}
</svg>
"""


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text()
    begin, end = "<!-- figures, by bench/readme.py -->\n", "<!-- end of figures -->\n"
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(end)
    if not (rest and after):
        raise SystemExit(f"README.md: no part between {begin.strip()} and {end.strip()}")
    figures = f"""{table()}

![Bytes and seconds of one step, by way](docs/figures.svg)

Machine: two cores of an x86-64 Xeon server with AVX-512, 500 M simulated weights. Bytes: `deltawire bench codecs`
([results](bench/results/{CODECS.name})). Seconds: `deltawire bench chain`, from `publish()` until a replica in memory holds the version
([results](bench/results/{CHAIN.name})). slime's and TRL's formats are reimplemented in C++: the projects' own Python is not timed.

{sentence()}
"""
    wanted = {readme: before + begin + figures + end + after, ROOT / "docs" / "figures.svg": chart()}
    changed = [path for path, content in wanted.items() if not path.exists() or path.read_text() != content]
    if "--check" in sys.argv[1:]:
        for path in changed:
            print(f"{path.relative_to(ROOT)}: not what bench/results say; run bench/readme.py", file=sys.stderr)
        return 1 if changed else 0
    for path in changed:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
