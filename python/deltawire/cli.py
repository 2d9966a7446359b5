"""The command line tool, as the package brings it."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "deltawire"


# Verbs that need torch, which the program does not have.
VERBS = {"quantize": "deltawire.quantize_verb"}


def main() -> None:
    """Become the program `deltawire`, or do what it cannot."""
    if len(sys.argv) > 1 and sys.argv[1] in VERBS:
        sys.exit(import_module(VERBS[sys.argv[1]]).main(sys.argv[2:]))
    os.execv(PROGRAM, ["deltawire", *sys.argv[1:]])
