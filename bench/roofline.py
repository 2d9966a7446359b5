"""How near to the machine's bounds: roofline.py FOLDER, with lines of `deltawire bench --device cuda --json` on stdin.

Writes FOLDER/<device>-<model>.svg, a bar for each measurement that has a bound: the time that the
machine needs at least, over the time that was taken.
"""

import json
import re
import sys
from html import escape
from pathlib import Path

WIDTH, LABEL, ROW, BAR, TOP, RIGHT = 960, 330, 26, 14, 64, 210
SCALE = WIDTH - LABEL - RIGHT  # pixels of 100 %


def text(x, y, words, anchor="start", size=12, colour="#222"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def grid(height):
    lines = []
    for percent in range(0, 101, 20):
        x = LABEL + SCALE * percent / 100
        lines.append(f'<line x1="{x:.0f}" y1="{TOP - 8}" x2="{x:.0f}" y2="{height - 14}" stroke="#ddd"/>')
        lines.append(text(x, TOP - 14, f"{percent} %", "middle", 11, "#777"))
    return lines


def bar(row, y):
    share = row["bound_milliseconds"] / row["milliseconds"]
    colour = "#999" if row["what"].startswith("baseline") else "#2a6fb0"
    return [
        text(LABEL - 10, y + BAR - 3, row["what"], "end"),
        f'<rect x="{LABEL}" y="{y}" width="{SCALE * min(share, 1):.1f}" height="{BAR}" fill="{colour}"/>',
        text(
            LABEL + SCALE * min(share, 1) + 6,
            y + BAR - 3,
            f"{share:.0%}: {row['milliseconds']:.2f} ms of {row['bound_milliseconds']:.2f}",
            size=11,
        ),
    ]


def picture(report):
    rows = [row for row in report["rows"] if row["bound_milliseconds"] > 0]
    height = TOP + ROW * len(rows) + 20
    title = (
        f"{report['device']}, {report['model']}: {report['elements'] / 1e9:.3f} B elements of bf16 in "
        f"{report['tensors']} tensors, {report['changed'] / report['elements']:.2%} changed"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        text(14, 24, title, size=14),
    ]
    lines += grid(height)
    for i, row in enumerate(rows):
        lines += bar(row, TOP + ROW * i)
    return "\n".join(lines + ["</svg>", ""])


def main(folder):
    for line in sys.stdin:
        if not line.strip():
            continue
        report = json.loads(line)
        if "rows" not in report:
            print(f"left out: {report}", file=sys.stderr)
            continue
        device = re.sub(r"[^a-z0-9]+", "-", report["device"].lower().replace("nvidia ", "")).strip("-")
        path = Path(folder) / f"{device}-{report['model']}.svg"
        path.write_text(picture(report))
        print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
