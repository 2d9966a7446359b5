"""Supported versions of engines, and whether the installed one has the functions that the plugin hooks."""

from __future__ import annotations

import logging
import pydoc
import re
from collections.abc import Iterable

log = logging.getLogger("deltawire")

TESTED = {"vllm": ("0.28", "0.32"), "sglang": ("0.5.19", "0.5.23")}
"""Oldest and newest release that passed `make test-engines ENGINE=NAME==VERSION` (docs/versions.md)."""


def is_usable(engine: str, version: str, hooks: Iterable[str]) -> bool:
    """Whether the plugin can be used; logs the reason if not, and a warning for untested versions."""
    oldest, newest = TESTED[engine]
    too_old = is_older(version, oldest)
    missing = [] if too_old else [hook for hook in hooks if not _is_there(hook)]
    if too_old or missing:
        why = f"it is older than {oldest}" if too_old else f"it has no {', '.join(missing)}"
        log.error(
            "deltawire: %s %s is not supported: %s; deltawire is off in this process; tested versions: %s to %s",
            engine, version, why, oldest, newest,
        )  # fmt: skip
        return False
    if is_newer(version, newest):
        log.warning("deltawire: %s %s is newer than %s, the newest tested release", engine, version, newest)
    return True


def _is_there(hook: str) -> bool:
    try:
        return pydoc.locate(hook) is not None
    except pydoc.ErrorDuringImport:  # the module exists but cannot be imported in this process
        return False


def is_older(version: str, oldest: str) -> bool:
    """Whether a version is older. Development builds never are."""
    return "dev" not in version and _numbers(version) < _numbers(oldest)


def is_newer(version: str, newest: str) -> bool:
    """Whether a version is newer. 0.32.1 is not newer than "0.32"; nothing is newer than ""."""
    last = _numbers(newest)
    return "dev" not in version and _numbers(version)[: len(last)] > last


def _numbers(version: str) -> list[int]:
    """[0, 32, 1] for "0.32.1rc1+cu129"."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in release[0].split(".")] if release else [0]
