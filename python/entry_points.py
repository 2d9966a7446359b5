"""The entry points of pyproject.toml as an installed package has them: entry_points.py PYPROJECT >entry_points.txt."""

import sys
import tomllib
from pathlib import Path

for group, entries in tomllib.loads(Path(sys.argv[1]).read_text())["project"].get("entry-points", {}).items():
    print(f"[{group}]")
    for name, value in entries.items():
        print(f"{name} = {value}")
