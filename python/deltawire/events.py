"""What the library says of its work, as records of `logging`, from the logger "deltawire.events".

They are not printed unless the program configures logging, as with any library. (What the package itself has to say comes
from the logger "deltawire", and its warnings are.)

    logging.basicConfig(level=logging.INFO)

A record's message is the event and its fields; `record.event` has the name ("pull.committed") and `record.fields` a dict.
docs/operations.md lists the events. Handlers must not call deltawire: others may be waiting for them.
"""

from __future__ import annotations

import atexit
import logging
from typing import Any

from deltawire import _core

_LOGGER = logging.getLogger("deltawire.events")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""By the extension's numbers."""


def _listen(level: int, event: str, fields: dict[str, Any]) -> None:
    if not _LOGGER.isEnabledFor(_LEVELS[level]):
        return
    message = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
    _LOGGER.log(_LEVELS[level], "%s", message, extra={"event": event, "fields": fields})


def listen() -> None:
    """Hand events to `logging` from now on, until the interpreter ends. Called when the package is imported."""
    _LOGGER.addHandler(logging.NullHandler())
    _core.set_log_listener(_listen)
    atexit.register(_core.set_log_listener, None)  # threads of the library may outlive it
