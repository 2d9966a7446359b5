"""A plugin hooks into known engines, and leaves others unchanged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from deltawire.engines.versions import TESTED, is_usable

THERE = ("json.dumps", "json.JSONEncoder.encode")


@pytest.mark.parametrize("version", [*TESTED["vllm"], "0.28.0", "0.32.1", "0.32.0+cu130"])
def test_accepts_tested_versions_silently(version: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_usable("vllm", version, THERE)
    assert not caplog.records


@pytest.mark.parametrize("version", ["99.1.0", "99.1.0rc2"])
def test_accepts_newer_versions_with_a_warning(version: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_usable("vllm", version, THERE)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert version in caplog.text


@pytest.mark.parametrize("version", ["dev", "0.1.dev77+g1234", "0.32.1.dev3+gabc"])
def test_accepts_development_builds_with_all_hooks(version: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_usable("vllm", version, THERE)
    assert not is_usable("vllm", version, (*THERE, "json.JSONEncoder.transmogrify"))
    assert "it has no json.JSONEncoder.transmogrify" in caplog.text


@pytest.mark.parametrize(
    ("version", "hooks", "why"),
    [
        ("0.27.1", THERE, "it is older than 0.28"),
        ("0.30.0", ("json.dumps", "json.gone", "nowhere.at.all"), "it has no json.gone, nowhere.at.all"),
    ],
)
def test_refuses_other_versions_with_the_reason(
    version: str, hooks: tuple[str, ...], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_usable("vllm", version, hooks)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"vllm {version} is not supported: {why}" in caplog.text


def test_module_that_fails_to_import_is_a_missing_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken_engine.py").write_text("raise RuntimeError('no such device')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_usable("vllm", "0.30.0", ("broken_engine.Worker",))
    assert "it has no broken_engine.Worker" in caplog.text
    caplog.clear()
    assert not is_usable("vllm", "0.20.0", ("broken_engine.Worker",))
    assert "it is older than 0.28" in caplog.text
