"""`deltawire doctor`: its report on Python."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import deltawire as dw
from deltawire._internal.doctor import SUPPORTED, checks

PACKAGE = Path(dw.__file__).parents[1]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which packages are found; it holds only what `install` puts there."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    return tmp_path


def install(site: Path, package: str, version: str, entry_points: str = "") -> None:
    folder = site / f"{package}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


def found() -> dict[str, dict[str, str]]:
    return {one["what"]: one for one in checks()}


@pytest.mark.parametrize(
    ("package", "version", "next"),
    [
        ("vllm", "0.32.0", ""),
        ("vllm", "0.28", ""),
        ("vllm", "0.32.4.post1+cu129", ""),
        ("vllm", "0.27.1", "pip install 'vllm>=0.28,<0.33'"),
        ("vllm", "0.33.0rc1", "if it fails: pip install 'vllm>=0.28,<0.33'"),
        ("vllm", "unknown", "pip install 'vllm>=0.28,<0.33'"),
        ("sglang", "0.5.23", ""),
        ("sglang", "0.4.9", "pip install 'sglang>=0.5.19,<0.5.24'"),
        ("torch", "2.10.0", ""),
        ("torch", "2.5.1", "pip install 'torch>=2.6,<3'"),
        ("peft", "0.21.2", ""),
    ],
)
def test_reports_versions(site: Path, package: str, version: str, next: str) -> None:
    install(site, package, version)
    assert found()[package]["next"] == next
    assert version in found()[package]["detail"]


def test_names_missing_packages_with_their_extras(site: Path) -> None:
    for package in SUPPORTED:
        if package not in ("peft", "nixl"):
            install(site, package, SUPPORTED[package][0])
    assert found()["not installed"]["detail"] == "peft, nixl; if needed: pip install 'deltawire[peft,nixl]'"


def test_reports_plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "vllm plugin" not in found()
    install(site, "vllm", "0.32.0")
    install(site, "sglang", "0.5.23")
    assert "pip install ." in found()["vllm plugin"]["next"]
    install(site, "deltawire", "0.1.0", "[vllm.general_plugins]\ndeltawire = deltawire.engines.vllm.plugin:register\n")
    assert found()["vllm plugin"]["next"] == ""
    assert "pip install ." in found()["sglang plugin"]["next"]
    monkeypatch.setenv("VLLM_PLUGINS", "lora_filesystem_resolver")
    assert "VLLM_PLUGINS" in found()["vllm plugin"]["next"]
    monkeypatch.setenv("VLLM_PLUGINS", "deltawire,lora_filesystem_resolver")
    assert found()["vllm plugin"]["next"] == ""


def test_command_line_shows_them(tmp_path: Path) -> None:
    install(tmp_path, "vllm", "0.27.0")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PACKAGE}"}
    command = [sys.executable, "-m", "deltawire", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = {one["what"]: one for one in json.loads(done.stdout)["checks"]}
    assert sys.executable in said["python"]["detail"]
    assert said["vllm"]["level"] == "warn"
    assert said["kernels"]["level"] == "ok"
    helped = subprocess.run([*command[:-1], "--help"], capture_output=True, text=True, env=environment)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "package-checks" not in helped.stdout
