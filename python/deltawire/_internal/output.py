"""Output for people: numbers with units, progress bars, log records."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any

from deltawire import _core
from deltawire.errors import missing_extra


def human_bytes(count: float) -> str:
    """Three digits and a unit: "4.00 kB"."""
    if count < 1000:
        return f"{count:.0f} B"
    units = ["TB", "GB", "MB", "kB"]
    count /= 1000
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop()
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    return f"{count:.{digits}f} {units[-1]}"


def percent(part: float, whole: float) -> str:
    """A share: "0.100 %"."""
    return f"{100 * part / whole:.3f} %" if whole else "0 %"


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 tensor", "2 tensors"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


Callback = Callable[[int, int], bool | None]
"""Called regularly with the bytes done and the total; False or an exception cancels."""

Progress = bool | Callback
"""True: a tqdm bar (`pip install 'deltawire[progress]'`)."""


def callback_of(progress: Progress, label: str) -> Callback | None:
    """The callback for the extension, if any."""
    if callable(progress):
        return progress
    return _bar(label) if progress else None


def _bar(label: str) -> Callback:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise missing_extra(error, "progress") from None
    bar, ended = None, False

    def show(done: int, total: int) -> None:
        nonlocal bar, ended
        if done >= total and ended:  # a repeated last call
            return
        if bar is not None and done < bar.n:  # the previous operation was interrupted
            bar.close()
            bar = None
        if bar is None:
            bar = tqdm(desc=label, total=total, unit="B", unit_scale=True, leave=False)
        bar.total = total
        bar.update(done - bar.n)
        ended = done >= total
        if ended:
            bar.close()
            bar = None

    return show


_LOGGER = logging.getLogger("deltawire.events")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""By the level numbers of the extension."""


def _listen(level: int, event: str, fields: dict[str, Any]) -> None:
    if not _LOGGER.isEnabledFor(_LEVELS[level]):
        return
    message = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
    _LOGGER.log(_LEVELS[level], "%s", message, extra={"event": event, "fields": fields})


def listen() -> None:
    """Send events to `logging` until the interpreter exits. Called when the package is imported."""
    _LOGGER.addHandler(logging.NullHandler())
    _core.set_log_listener(_listen)
    atexit.register(_core.set_log_listener, None)  # threads of the library may outlive the interpreter
