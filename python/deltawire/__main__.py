"""`python -m deltawire`: the command line tool, as the package brings it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "deltawire"


def main() -> None:
    """Become the program `deltawire`; `quantize` needs torch, which the program does not have."""
    if sys.argv[1:2] == ["quantize"]:
        from deltawire.quantize.verb import main as quantize

        sys.exit(quantize(sys.argv[2:]))
    os.execv(PROGRAM, ["deltawire", *sys.argv[1:]])


if __name__ == "__main__":
    main()
