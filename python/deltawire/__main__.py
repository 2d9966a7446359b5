"""`python -m deltawire`: the command line tool of the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from deltawire.errors import Error, IoError, Unsupported

PROGRAM = Path(__file__).parent / "bin" / "deltawire"


def main() -> None:
    """Run the program `deltawire`; commands that need Python packages run here."""
    if sys.argv[1:2] == ["quantize"]:
        sys.exit(quantize(sys.argv[2:]))
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:
        from deltawire._internal.doctor import checks

        arguments[1:1] = ["--package-checks", json.dumps(checks())]
    os.execv(PROGRAM, ["deltawire", *arguments])


def quantize(arguments: list[str]) -> int:
    """`deltawire quantize`, which needs torch. Returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        from deltawire.quantize.files import quantize_checkpoint

        report = quantize_checkpoint(
            options.checkpoint,
            options.out,
            options.like or options.format,
            rounded=options.rounded,
        )
    except Error as error:
        return _fail(options, error)
    except ImportError as error:
        return _fail(options, Unsupported(str(error)))
    except OSError as error:
        return _fail(options, IoError(str(error)))
    if options.json:
        print(json.dumps(report))
    else:
        print(f"quantised {report['quantised']} of {report['tensors']} tensors")
        print(f"written   {options.out}: {report['bytes']:,} bytes for {report['from_bytes']:,}, in {report['files']} files")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deltawire quantize",
        description="Quantise a Hugging Face checkpoint, to the same bytes that Publisher(quantize=...) publishes.",
    )
    parser.add_argument("checkpoint", metavar="CKPT", help="a folder, or a safetensors file; weights in BF16, F16 or F32")
    parser.add_argument("out", metavar="OUT", help="the folder to create; it must not exist")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--like", metavar="CKPT", help="a quantised checkpoint whose configuration and tensors to follow")
    how.add_argument("--format", metavar="NAME", help="one of docs/quantised.md: fp8-block, nvfp4, int4-g32, ...")
    parser.add_argument(
        "--rounded", default="BF16", choices=["BF16", "F16", "F32"], help="dtype that weights are rounded to first (default BF16)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _fail(options: Any, error: Error) -> int:
    """Report an error like the program does."""
    if options.json:
        said = {"code": error.code, "message": error.message, "next": error.next}
        print(json.dumps({"error": {name: value for name, value in said.items() if value}}))
    print(f"error: {error}", file=sys.stderr)
    if error.next:
        print(f"next:  {error.next}", file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    main()
