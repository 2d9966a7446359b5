"""Errors: one class for each code of the library, all of them `Error`.

>>> import deltawire as dw
>>> try:
...     dw.verify("/nowhere/a.safetensors", "/nowhere/b.safetensors")
... except dw.NotFound as error:
...     print(error)
...     print(error.code, error.exit_status, error.place)
not found: /nowhere/a.safetensors: no such file or folder
not found 4 /nowhere/a.safetensors
"""

from __future__ import annotations

import json
import re
import sys
from typing import ClassVar

from deltawire import _core


class Error(Exception):
    """Base class of all errors. Only `Unavailable` is worth a retry."""

    exit_status: ClassVar[int] = 13
    """Exit status of the command line."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    @property
    def code(self) -> str:
        """Its name in messages and JSON, such as "base mismatch"."""
        return str(_core.code_name(self.exit_status))

    @property
    def tensor(self) -> str | None:
        """The tensor named in the message."""
        found = re.search(r'tensor ("(?:[^"\\]|\\.)*")', self.message)
        return str(json.loads(found[1])) if found else None

    @property
    def place(self) -> str | None:
        """The file, object or tensor at the start of the message."""
        found = re.match(r'((?:\S*[/.]\S*)?(?:(?:, )?tensor "(?:[^"\\]|\\.)*")?): ', self.message)
        return (found[1] or None) if found else None

    @property
    def next(self) -> str | None:
        """What to do; None: the message says it."""
        return str(_core.next_step(self.exit_status, re.sub(_OPTION, r"set \1", self.message))) or None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code


class InvalidArgument(Error, ValueError):
    """An argument is wrong."""

    exit_status = 2


class Unsupported(Error):
    """This build, store or format cannot do it."""

    exit_status = 3


class NotFound(Error, LookupError):
    """A file, object, version or run does not exist."""

    exit_status = 4


class Conflict(Error):
    """Another writer was first, or holds the lock."""

    exit_status = 5


class Corruption(Error):
    """Data does not match its digest."""

    exit_status = 6


class BaseMismatch(Error):
    """The weights are not the delta's base; nothing was written."""

    exit_status = 7


class IoError(Error, OSError):
    """A disk or file operation failed."""

    exit_status = 8


class Unavailable(Error):
    """The store or network failed; retry."""

    exit_status = 9


class OutOfMemory(Error, MemoryError):
    """Not enough memory."""

    exit_status = 10


class DeviceError(Error):
    """A GPU operation failed."""

    exit_status = 11


class Cancelled(Error):
    """A progress callback returned False."""

    exit_status = 12


class InternalError(Error):
    """A bug in deltawire, or in a store written in Python."""

    exit_status = 13


class MissingExtra(Unsupported, ImportError):
    """A package of one of deltawire's extras is not installed."""


EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "quantize": ("torch", "safetensors"),
    "hf": ("torch", "transformers"),
    "peft": ("torch", "peft"),
    "trl": ("torch", "trl"),
    "verl": ("torch", "verl"),
    "progress": ("tqdm",),
    "nixl": ("nixl",),
}
"""The packages of each extra that deltawire imports."""


def missing_extra(error: ImportError, extra: str) -> ImportError:
    """The error to raise instead if `extra` contains the missing package."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS[extra] or (package in sys.modules and sys.modules[package] is not None):
        return error  # installed, but broken or too old
    return MissingExtra(f"{package} is not installed: pip install 'deltawire[{extra}]'")


_OPTION = r"set options=dw\.PublishOptions\((\w+)=True\)"
"""How messages name an option that the library calls "set NAME"."""

_BY_CODE: dict[int, type[Error]] = {kind.exit_status: kind for kind in Error.__subclasses__()}

# Errors for exceptions of stores written in Python; the first match counts.
_MEANINGS: tuple[tuple[type[BaseException], type[Error]], ...] = (
    (KeyboardInterrupt, Cancelled),
    (FileNotFoundError, NotFound),
    (FileExistsError, Conflict),
    (ConnectionError, Unavailable),
    (TimeoutError, Unavailable),
    (NotImplementedError, Unsupported),
    (MemoryError, OutOfMemory),
    (OSError, IoError),
)


def from_status(code: int, message: str) -> Error:
    """The exception for a status code. Called by the extension."""
    message = re.sub(
        r"\bset (accept_loss|new_run|schema_change|single_writer)\b", r"set options=dw.PublishOptions(\1=True)", message
    )
    return _BY_CODE.get(code, InternalError)(message)


def to_status(exception: BaseException) -> tuple[int, str]:
    """Status code and message for an exception. Called by the extension."""
    if isinstance(exception, Error):
        return exception.exit_status, exception.message
    text = f"{type(exception).__name__}: {exception}"
    for kind, meaning in _MEANINGS:
        if isinstance(exception, kind):
            return meaning.exit_status, text
    return InternalError.exit_status, text
