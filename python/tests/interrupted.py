"""Ctrl-C during a call."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Interrupt the body after `seconds`; it must raise KeyboardInterrupt."""
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.cancel()
