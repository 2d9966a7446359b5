"""Markdown of measurements: table.py FOLDER, with lines of `deltawire bench --json` on stdin."""

import json
import re
import sys
from pathlib import Path


def label(machine):
    """A file name that says what machine this was and nothing more."""
    cpu = re.sub(r"\(r\)|\(tm\)|\bcpu\b.*|\bprocessor\b", " ", machine["cpu"].lower())
    return re.sub(r"[^a-z0-9_]+", "-", f"{machine['arch']} {cpu} {machine['cores']} cores").strip("-")


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)] + rows
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def rate(bytes_per_s):
    return f"{bytes_per_s / 1e9:.2f}"


def size(num_bytes):
    return "" if num_bytes is None else f"{num_bytes / 1e6:.1f}"


def threads(speeds):
    return [f"{speed['threads']} thr" for speed in speeds]


def bandwidth_table(bandwidths):
    rows = [["read"] + [f"{rate(b['read_bytes_per_s'])}" for b in bandwidths]]
    for key, name in (("diff_same", "diff, nothing changed"), ("diff_changed", "diff of the data")):
        rows.append([name] + [f"{rate(b[key + '_bytes_per_s'])} ({b[key + '_of_read']:.0%})" for b in bandwidths])
    return table(["GB/s of both inputs"] + threads(bandwidths), rows)


def codec_table(title, verb, rows):
    rows = [row for row in rows if "unsupported" not in row]
    if not rows:
        return []
    head = [title, "bytes per change", "× bound"]
    head += [f"{what}, {t}" for what in (verb, "apply") for t in threads(rows[0]["speeds"])]
    head += [f"extra MB, {verb}", "extra MB, apply"]
    lines = []
    for row in rows:
        speeds = row["speeds"]
        line = [row["name"], f"{row['bytes_per_changed'] or 0:.3f}", f"{row['over_bound'] or 0:.3f}"]
        line += [rate(s[f"{what}_bytes_per_s"]) for what in ("encode", "apply") for s in speeds]
        line += [size(speeds[-1]["encode_extra_bytes"]), size(speeds[-1]["apply_extra_bytes"])]
        lines.append(line)
    return table(head, lines)


def section(report):
    data, bound = report["data"], report["bound"]
    source = " → ".join(Path(part).name for part in data["source"].split(" -> "))
    lines = [f"## {source}", ""]
    lines += [
        f"{data['weights_bytes'] / 1e9:.3f} GB in {data['tensors']} tensors, {data['density']:.3%} of the "
        f"elements changed. Bound {bound['bytes']:.0f} bytes, {bound['bytes_per_changed'] or 0:.3f} per change."
    ]
    if report["file_over_bound"]:
        lines += [f"A whole delta on disk: {report['file_bytes']} bytes, **{report['file_over_bound']:.3f} ×** the bound."]
    lines += [""] + bandwidth_table(report["bandwidths"])
    lines += codec_table("codec", "encode", report["codecs"])
    lines += codec_table("pipeline", "publish", report["pipelines"])
    if report["against_slime"]:
        against = report["against_slime"]
        speeds = "; ".join(
            f"{s['threads']} thr: publish {s['publish']:.2f} ×, apply {s['apply']:.2f} ×" for s in against["speeds"]
        )
        lines += [f"deltawire against slime: {against['size']:.2f} × smaller; {speeds}.", ""]
    return lines


def main(folder):
    reports = [json.loads(line) for line in sys.stdin if line.strip()]
    errors = [report["error"]["message"] for report in reports if "error" in report]
    if errors or not reports:
        print("nothing written:", *errors or ["no measurement"], file=sys.stderr)
        return 1
    machine = reports[0]["machine"]
    lines = [
        f"# {machine['cpu']}, {machine['cores']} cores",
        "",
        f"{machine['arch']}, kernels {machine['kernels']}, {machine['compiler']}, the best of {reports[0]['repeat']} or more. "
        "GB/s are of weights where nothing else is said; [README](../README.md) says what is measured and how.",
        "",
    ]
    for report in reports:
        lines += section(report)
    path = Path(folder) / f"{label(machine)}.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
