"""Events of the library go to `logging`."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw


def pull(folder: Path) -> None:
    """A replica's first pull, which logs an event."""
    store = folder / "store"
    dw.Publisher(store, {"w": np.zeros(1000, np.uint8)}).publish()
    with dw.Replica(store, folder / "local") as replica:
        assert replica.pull().version == 0


def test_events_are_logging_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="deltawire"):
        pull(tmp_path)
    [record] = [record for record in caplog.records if record.name == "deltawire.events"]
    own: Any = record
    assert (record.levelno, own.event, own.fields["version"]) == (logging.INFO, "replica.committed", 0)
    assert record.getMessage().startswith("replica.committed ")
    assert " version=0" in record.getMessage()
    assert isinstance(own.fields["bytes"], int)


def test_disabled_level_makes_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="deltawire"):
        pull(tmp_path)
    assert not [record for record in caplog.records if record.name == "deltawire.events"]


def test_handler_may_call_the_library_and_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, failures = [], []

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heads.append(dw.Chain(tmp_path / "store").head)
            raise RuntimeError("a handler that fails")

    handler, logger = Failing(), logging.getLogger("deltawire")
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    logger.addHandler(handler)
    try:
        pull(tmp_path)
    finally:
        logger.removeHandler(handler)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    assert heads == [0]
    assert [type(failure.exc_value) for failure in failures] == [RuntimeError]


def test_prints_nothing(tmp_path: Path) -> None:
    script = f"""
import numpy as np, deltawire as dw
store, weights = {str(tmp_path / "store")!r}, {{"w": np.zeros(1000, np.uint8)}}
publisher = dw.Publisher(store, weights)
publisher.publish()
replica = dw.Replica(store, {str(tmp_path / "local")!r})
replica.pull()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
