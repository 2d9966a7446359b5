"""The command line tool, as the package brings it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "deltawire"


def main() -> None:
    """Become the program `deltawire`."""
    os.execv(PROGRAM, ["deltawire", *sys.argv[1:]])
