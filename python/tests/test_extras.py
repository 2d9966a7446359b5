"""A package that is not installed: an error of ours that says what to install, and no traceback on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import deltawire as dw
from deltawire.errors import EXTRAS

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
PACKAGE = Path(dw.__file__).parent.parent


def python(code: str, *missing: str) -> subprocess.CompletedProcess[str]:
    """A Python without these packages."""
    block = f"import sys\nfor name in {missing!r}: sys.modules[name] = None\n"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, env=environment, timeout=300)


RAISE = """
import numpy as np, deltawire as dw
weights = {{"w": np.zeros(4)}}
try:
    {}
except dw.Unsupported as error:
    print(type(error).__name__, error.exit_status, error, sep="|")
"""
CASES = [
    ("torch", "torch", "import deltawire.torch"),
    ("torch", "torch", "dw.torch.follow"),
    ("torch", "quantize", "import deltawire.quantize"),
    ("safetensors", "quantize", "from deltawire.quantize.files import quantize_checkpoint"),
    ("torch", "hf", "import deltawire.trainers.hf"),
    ("transformers", "hf", "import deltawire.trainers.hf"),
    ("torch", "trl", "import deltawire.trainers.trl"),
    ("peft", "peft", "import deltawire.trainers.peft"),
    ("tqdm", "progress", "dw.Publisher('memory:x', weights, progress=True)"),
]


@pytest.mark.parametrize(("package", "extra", "call"), CASES, ids=lambda value: str(value)[:30])
def test_a_missing_package_is_named_with_its_extra(package: str, extra: str, call: str) -> None:
    done = python(RAISE.format(call), package)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"MissingExtra|3|unsupported: {package} is not installed: pip install 'deltawire[{extra}]'"


def test_it_is_an_import_error_too() -> None:
    assert issubclass(dw.errors.MissingExtra, dw.Unsupported)
    assert issubclass(dw.errors.MissingExtra, ImportError)
    done = python("try:\n    import deltawire.trainers.hf\nexcept ImportError:\n    print('skipped')", "torch")
    assert done.stdout == "skipped\n", done.stderr


def test_every_extra_that_is_named_can_be_installed() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        brought = {re.split(r"[\[<>=]", wanted)[0] for wanted in extras[extra]}
        assert set(packages) <= brought, extra
    assert {"torch", "tqdm", "transformers"} <= set().union(*EXTRAS.values())


def test_the_help_of_quantize_needs_nothing() -> None:
    call = "sys.argv = ['deltawire', 'quantize', '--help']\nfrom deltawire.__main__ import main\nmain()"
    done = python(call, "torch", "safetensors")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: deltawire quantize")
    assert done.stderr == ""


@pytest.mark.parametrize("missing", ["torch", "safetensors"])
def test_quantize_says_what_to_install(tmp_path: Path, missing: str) -> None:
    call = f"sys.argv = ['deltawire', 'quantize', {str(tmp_path)!r}, {str(tmp_path / 'out')!r}, '--format', 'fp8-block']\n"
    done = python(call + "from deltawire.__main__ import main\nmain()", missing)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr == f"error: unsupported: {missing} is not installed: pip install 'deltawire[quantize]'\n"


def test_every_help_lists_quantize(tmp_path: Path) -> None:
    """The program's own, too: it says where the verb is to be had."""
    program = PACKAGE / "deltawire/bin/deltawire"
    assert re.search(r"^ +quantize ", subprocess.run([program, "--help"], capture_output=True, text=True).stdout, re.M)
    for words in (["quantize", "--help"], ["quantize", "-h"]):
        done = subprocess.run([program, *words], capture_output=True, text=True)
        assert done.returncode == 0
        assert "pip install 'deltawire[quantize]'" in done.stdout
    done = subprocess.run([program, "quantize", "a", "b", "--format", "fp8-block"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'deltawire[quantize]'" in done.stderr
