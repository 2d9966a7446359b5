"""A missing package gives an error that says what to install, without a traceback on the command line."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import deltawire as dw
from deltawire.errors import EXTRAS

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
PACKAGE = Path(dw.__file__).parent.parent


# The call that needs a package, and the extra that provides it. Each in a process forked after torch was loaded.
FAILS = {
    ("torch", "import deltawire.torch"): "torch",
    ("torch", "dw.torch.follow"): "torch",
    ("torch", "import deltawire.quantize"): "quantize",
    ("safetensors", "from deltawire.quantize.files import quantize_checkpoint"): "quantize",
    ("torch", "import deltawire.trainers.hf"): "hf",
    ("transformers", "import deltawire.trainers.hf"): "hf",
    ("torch", "import deltawire.trainers.trl"): "trl",
    ("peft", "import deltawire.trainers.peft"): "peft",
    ("tqdm", "dw.Publisher('memory:x', {'w': np.zeros(4)}, progress=True)"): "progress",
    ("nixl", "dw.nixl.NixlStore('http://127.0.0.1:1')"): "nixl",
    ("nixl", "dw.serve('memory:x', nixl_bytes=1 << 20)"): "nixl",
}
COMMAND = "sys.argv = ['deltawire', 'quantize', *{}]; from deltawire.__main__ import main; main()"
RUN = """
import contextlib, io, json, os, sys, numpy as np
with contextlib.suppress(ImportError): import torch
results = []
for missing, code in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        sys.modules |= dict.fromkeys(missing.split())
        result = dict(kind="", status=0, words="")
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                import deltawire as dw
                exec(code)
            except SystemExit as end:
                result["status"] = end.code
            except ImportError as error:
                result |= dict(kind=type(error).__name__, status=getattr(error, "exit_status", 0), words=str(error))
        os.write(writer, json.dumps(result | dict(out=out.getvalue(), errors=errors.getvalue())).encode())
        os._exit(0)
    os.close(writer)
    results.append(json.loads(os.read(reader, 1 << 16)))
print(json.dumps(results))
"""


def without(*cases: tuple[str, str]) -> list[SimpleNamespace]:
    """The result of each snippet in a Python without these packages."""
    command, environment = [sys.executable, "-c", RUN, json.dumps(cases)], {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return [SimpleNamespace(**result) for result in json.loads(done.stdout)]


def test_names_a_missing_package_with_its_extra(tmp_path: Path) -> None:
    assert issubclass(dw.errors.MissingExtra, dw.Unsupported)
    assert issubclass(dw.errors.MissingExtra, ImportError)
    call = COMMAND.format([str(tmp_path), str(tmp_path / "out"), "--format", "fp8-block"])
    commands = [("torch safetensors", COMMAND.format(["--help"])), ("torch", call), ("safetensors", call)]
    results = without(*FAILS, *commands)
    for ((package, code), extra), result in zip(FAILS.items(), results, strict=False):
        words = f"unsupported: {package} is not installed: pip install 'deltawire[{extra}]'"
        assert (result.kind, result.status, result.words) == ("MissingExtra", 3, words), code
    helped, *failed = results[len(FAILS) :]
    assert (helped.status, helped.errors) == (0, "")
    assert helped.out.startswith("usage: deltawire quantize")
    for (package, _), result in zip(commands[1:], failed, strict=True):
        assert (result.status, result.out) == (3, "")
        assert result.errors == f"error: unsupported: {package} is not installed: pip install 'deltawire[quantize]'\n"


def test_every_named_extra_exists() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        brought = {re.split(r"[\[<>=]", wanted)[0] for wanted in extras[extra]}
        assert set(packages) <= brought, extra
    assert {"torch", "tqdm", "transformers"} <= set().union(*EXTRAS.values())


def test_every_help_lists_quantize() -> None:
    """Also the help of the bare program: it says where to get the verb."""
    program = PACKAGE / "deltawire/bin/deltawire"
    assert re.search(r"^ +quantize ", subprocess.run([program, "--help"], capture_output=True, text=True).stdout, re.M)
    for words in (["quantize", "--help"], ["quantize", "-h"]):
        done = subprocess.run([program, *words], capture_output=True, text=True)
        assert done.returncode == 0
        assert "pip install '.[quantize]'" in done.stdout
    done = subprocess.run([program, "quantize", "a", "b", "--format", "fp8-block"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install '.[quantize]'" in done.stderr
