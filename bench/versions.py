"""Markdown of one measurement: versions.py FOLDER, with a line of `deltawire bench versions --json` on stdin."""

import json
import sys
from pathlib import Path

from table import label, table


def milliseconds(value):
    return f"{value * 1e3:.2f}"


def main():
    report = json.load(sys.stdin)
    machine, records = report["machine"], report["records"]
    rows = [
        [
            f"{row['versions']:,}",
            row["what"],
            str(row["requests"]),
            milliseconds(row["memory_seconds"]),
            milliseconds(row["folder_seconds"]),
            str(row["hops"] or ""),
        ]
        for row in report["rows"]
    ]
    size = lambda name: f"{records[name] / 1e6:.2f} MB, {records[name] / records['tensors']:.1f} bytes per tensor"
    lines = [
        f"# Cost of age and of tensors: {machine['cpu']}, {machine['cores']} cores",
        "",
        "`deltawire bench versions`, the best of 5, milliseconds. A chain of 1 GB of weights of which each version "
        "changes 1 %, an anchor every 256 versions, merged deltas of 4, 16 and 64; records only. A folder "
        "of 100,000 manifests is read whole to list it: one request all the same.",
        "",
    ]
    lines += table(["versions", "what", "requests", "in memory", "in a folder", "hops"], rows)
    lines += [
        f"Records of {records['tensors']:,} tensors: a manifest has {size('manifest_bytes')}, is read in "
        f"{milliseconds(records['read_manifest_seconds'])} ms and written in "
        f"{milliseconds(records['write_manifest_seconds'])} ms. The schema, which versions share, has "
        f"{size('schema_bytes')} and is read in {milliseconds(records['read_schema_seconds'])} ms.",
        "",
        f"Goals: at most 64 requests for each ({report['goals']['most_requests']}: "
        f"{'met' if report['goals']['requests_met'] else 'missed'}); a manifest read in 10 ms "
        f"({'met' if report['goals']['read_met'] else 'missed'}).",
        "",
    ]
    path = Path(sys.argv[1]) / f"versions-{label(machine)}.md"
    path.write_text("\n".join(lines))
    print(path)


if __name__ == "__main__":
    main()
