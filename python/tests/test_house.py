"""Type checker and linter accept the package."""

import subprocess
import sys
from pathlib import Path

import pytest

import deltawire as dw

ROOT = Path(__file__).parents[2]


def run(*command: str, folder: Path = ROOT) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_type_checker_passes(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    package = Path(dw.__file__).parents[1]
    run("mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path), "-p", "deltawire", folder=package)


def test_linter_passes() -> None:
    pytest.importorskip("ruff")
    run("ruff", "check", "--no-cache", "python", "scripts", "examples")
    run("ruff", "format", "--no-cache", "--check", "python", "examples")


def test_versions_agree() -> None:
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == dw.__version__
