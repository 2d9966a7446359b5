"""The command line tool, as the package brings it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Become the program `deltawire`."""
    program = Path(__file__).parent / "bin" / "deltawire"
    os.execv(program, ["deltawire", *sys.argv[1:]])
