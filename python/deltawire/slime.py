"""slime and miles: functions for their hooks. A slime trainer feeds deltawire replicas, a deltawire trainer slime's engines.

    --custom-update-weight-post-write-path deltawire.slime.post_write       slime generation 3, miles
    --custom-delta-pre-push-path           deltawire.slime.pre_push         slime generations 1 and 2
    --sglang-custom-pull-weights-pre-read-hook deltawire.slime.pre_read     engines: a chain's versions in slime's files

What they need to know is in attributes of slime's arguments (`--custom-config-path` sets them) or in the environment:

| attribute            | variable             | meaning |
|----------------------|----------------------|---|
| `deltawire_store`    | `DELTAWIRE_STORE`    | where the chain is; needed |
| `deltawire_base`     | `DELTAWIRE_BASE`     | what the first version is applied to; default: `--hf-checkpoint` |
| `deltawire_work`     | `DELTAWIRE_WORK`     | a folder of this host for a copy of the model; default: ~/.cache/deltawire |
| `deltawire_on_error` | `DELTAWIRE_ON_ERROR` | "raise" (default), or "log": training goes on, and the next call catches up |
| `deltawire_timeout`  | `DELTAWIRE_TIMEOUT`  | seconds that `pre_read` waits for a version; default 600 |
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from deltawire.bridge import Exporter, Importer
from deltawire.errors import Conflict, Error, InvalidArgument, NotFound

log = logging.getLogger("deltawire")

_VERSION = re.compile(r"weight_v(\d{6,})")

Dialect = Literal["slime", "slime-gen1"]


def post_write(args: Any, version_dir: str, rollout_engines: Sequence[Any] = ()) -> None:
    """Turn the version in `version_dir` into a version of the chain, with the same number, before engines are told of it.

    slime calls it on every rank; rank 0 alone does the work, and sees the files of all. It is called first with the folder of all
    versions, which is empty: then the base becomes version 0. Versions that an earlier call did not import come first, in order;
    a second call for the same version finds it there.
    """
    if _rank() == 0:
        with _raising(_Settings.of(args), version_dir) as settings:
            _import(settings, "slime", args, Path(version_dir))


def pre_push(args: Any, version_dir: str, rollout_engines: Sequence[Any] = ()) -> None:
    """The same for slime generations 1 and 2; which of them it is, `args` tells.

    Generation 1 calls it five times for a version (`1 + _EXPERT_SUBPASSES` of its updater), each time with more files, and
    removes the folder afterwards: the last of these calls imports the version.
    """
    if _rank() != 0:
        return
    with _raising(_Settings.of(args), version_dir) as settings:
        if not hasattr(args, "update_weight_encoding") or hasattr(args, "update_weight_delta_encoding"):
            _import(settings, "slime", args, Path(version_dir))
        elif _passes.count(version_dir):
            _import(settings, "slime-gen1", args, Path(version_dir))


def pre_read(source_dir: str, target_version: int) -> None:
    """Write the chain's versions up to `target_version` into `source_dir`, in slime's files, before an engine reads them.

    The engine's own checkpoint must be version 0 of the chain. Called by every rank of an engine at once: the first does the
    work, the others wait. `NotFound` when the chain does not have the version in time.
    """
    settings = replace(_Settings.of(None), on_error="raise")  # an engine must not read what is not there
    Path(source_dir).mkdir(parents=True, exist_ok=True)
    with _locked(Path(source_dir) / ".deltawire-lock"), _raising(settings, source_dir):
        _export(settings, source_dir, target_version)


# ---- what is asked for


@dataclass(frozen=True)
class _Settings:
    store: str
    base: str | None
    work: Path | None
    on_error: str
    timeout: float

    @classmethod
    def of(cls, args: Any) -> _Settings:
        def value(name: str) -> str | None:
            found = getattr(args, f"deltawire_{name}", None) or os.environ.get(f"DELTAWIRE_{name.upper()}")
            return None if not found else str(found)

        store, on_error = value("store"), value("on_error") or "raise"
        if store is None:
            raise InvalidArgument("deltawire.slime: no store: say DELTAWIRE_STORE=... or set args.deltawire_store")
        if on_error not in ("raise", "log"):
            raise InvalidArgument(f"deltawire.slime: DELTAWIRE_ON_ERROR is {on_error!r}, and must be raise or log")
        work = value("work")
        return cls(
            store=store,
            base=value("base") or getattr(args, "hf_checkpoint", None),
            work=None if work is None else Path(work),
            on_error=on_error,
            timeout=_seconds(value("timeout") or "600"),
        )

    def work_of(self, what: str) -> Path | None:
        """For each store one of its own: the copy that one run leaves is not the next one's."""
        name = f"{what}-{hashlib.sha256(self.store.encode()).hexdigest()[:16]}"
        return None if self.work is None else self.work / name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"deltawire.slime: DELTAWIRE_TIMEOUT is {text!r}, and must be seconds")
    return seconds


# ---- the work


def _import(settings: _Settings, dialect: Dialect, args: Any, folder: Path) -> None:
    found = _VERSION.fullmatch(folder.name)
    root, number = (folder.parent, int(found[1])) if found else (folder, 0)
    if not found and not _is_disk_dir(args, folder):
        raise InvalidArgument(f'"{folder.name}" is not a version: those are called weight_v000001')
    with Importer(
        dialect,
        root,
        settings.store,
        base=settings.base,
        work=settings.work_of("import"),
        last=number,
        source_may_be_empty=True,
    ) as importer:
        for imported in importer:
            log.info("deltawire: %r of %s is in %s", imported, root, settings.store)
        head = importer.head
    if head is None or head < number:
        raise NotFound(f"version {number} is not complete: are the files of all ranks to be seen from rank 0?")
    if head > number:
        raise Conflict(f"slime is at version {number}, and the chain at {head}: a new run needs a store of its own")


def _export(settings: _Settings, target: str, version: int) -> None:
    with Exporter("slime", settings.store, target, work=settings.work_of("export"), last=version) as exporter:
        for exported in exporter.follow(interval=0.1, timeout=settings.timeout):
            log.info("deltawire: %r in %s", exported, target)
        if not exporter.done:
            raise NotFound(f"version {version} did not come in {settings.timeout:g} s; is its number the trainer's?")


def _is_disk_dir(args: Any, folder: Path) -> bool:
    return any(
        given is not None and os.path.abspath(given) == os.path.abspath(folder)
        for given in (getattr(args, "update_weight_disk_dir", None), getattr(args, "update_weight_delta_dir", None))
    )


class _Passes:
    """Counts generation 1's calls for a version: nothing in its files says that a version is complete."""

    def __init__(self) -> None:
        self._folder, self._seen = "", 0

    def count(self, version_dir: str) -> bool:
        """Whether this is the last call for the version."""
        if version_dir != self._folder:
            self._folder, self._seen = version_dir, 0
        self._seen += 1
        if self._seen > _num_passes():
            raise Conflict(f"called {self._seen} times: files were written after the version was imported")
        return self._seen == _num_passes()


_passes = _Passes()


def _num_passes() -> int:
    module = sys.modules.get("slime.backends.megatron_utils.update_weight.update_weight_from_distributed_delta")
    updater = getattr(module, "UpdateWeightFromDistributedDelta", None)
    return 1 + int(getattr(updater, "_EXPERT_SUBPASSES", 4))


def _rank() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", 0))


@contextmanager
def _raising(settings: _Settings, place: str) -> Iterator[_Settings]:
    """Errors say what was about to be done; whether they stop the trainer, its user says."""
    try:
        yield settings
    except Exception as error:
        message = f"deltawire.slime: {place} and {settings.store}: "
        if settings.on_error == "log":
            log.exception("%snot done; training goes on", message)
        elif isinstance(error, Error):
            raise type(error)(message + error.message) from error
        else:
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
