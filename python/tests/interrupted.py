"""A Ctrl-C that comes while something runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def _soon(seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """What runs inside is interrupted after `seconds`, and must end by that."""
    with pytest.raises(KeyboardInterrupt), _soon(seconds):
        yield
