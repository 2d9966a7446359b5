"""Options in groups. Pass a group only to change its defaults.

>>> import numpy as np, deltawire as dw
>>> publisher = dw.Publisher(
...     "memory:options",
...     {"w": np.zeros(8)},
...     anchors=dw.Anchors(every=50),
...     options=dw.PublishOptions(hook_before_commit=dw.Hook("true", timeout_seconds=10), limits=dw.Limits(threads=2)),
... )
>>> publisher.publish().number
0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, Literal, ParamSpec

from deltawire.errors import InvalidArgument

Path = str | os.PathLike[str]

Names = str | Sequence[str] | Callable[[str], bool]
"""Selects names of a model: shell patterns (`"*.lora_?.*"`), or a function that returns whether to use a name."""

Rename = Callable[[str], str]
"""Maps a name in the model to the name in the chain."""


@dataclass(frozen=True, kw_only=True)
class Select:
    """Which tensors of a model to use, and their names in the chain."""

    include: Names | None = None
    """Shell patterns (`"*.lora_?.*"`), or a function of the name; None: all."""
    exclude: Names | None = None
    """The same, for what to leave out."""
    rename: Rename | None = None
    """From names in the model to names in the chain."""
    trainable_only: bool = False
    """Only parameters that an optimizer can train."""


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Which versions are stored whole as well."""

    every: int = 0
    """Every N versions."""
    by_bytes: bool = True
    """When deltas outgrow the last anchor."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Key files from `deltawire keygen`."""

    sign: Path | None = None
    """File of the private key that signs."""
    trust: Path | None = None
    """File of public keys; other records are refused."""
    change: bool | Literal["unsigned"] = False
    """True: allow another `sign` key. "unsigned": stop signing."""

    def __post_init__(self) -> None:
        """Refuse empty paths and unknown values."""
        _refuse_empty(self, "sign", "trust")
        if self.change not in (False, True, "unsigned"):
            raise InvalidArgument(f'Keys(change={self.change!r}): must be False, True or "unsigned"')


@dataclass(frozen=True)
class Hook:
    """A shell command. If it fails or exceeds the timeout, nothing is committed."""

    command: str
    """Gets DELTAWIRE_VERSION, DELTAWIRE_STORE and DELTAWIRE_RUN in its environment."""
    timeout_seconds: float = 600

    def __post_init__(self) -> None:
        """Refuse an empty command."""
        if not self.command:
            raise InvalidArgument("Hook: the command is empty; omit the hook")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits."""

    threads: int = 0
    """0: one per core."""
    memory_bytes: int = 2 << 30
    """Without arrays, mapped files and the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """For tensors in GPU memory."""

    stream: int = 0
    """`stream.cuda_stream` of torch; 0: torch's current stream."""
    scratch_bytes: int = 256 << 20
    """GPU memory beside weights and snapshot."""
    kept_bytes: int | None = None
    """More GPU memory for prepared data, about 5 bytes per changed element; the rest is decoded again in the pause. None: a
    quarter of free memory.
    """


@dataclass(frozen=True, kw_only=True)
class Accept:
    """What a replica accepts from a store."""

    trust: Path | None = None
    """File of public keys; other versions are refused."""
    run: str | None = None
    """Refuse any other run."""
    at_least: int = 0
    """Refuse lower versions."""

    def __post_init__(self) -> None:
        """Refuse empty paths and runs."""
        _refuse_empty(self, "trust", "run")


@dataclass(frozen=True, kw_only=True)
class CopyOnWrite:
    """Each version in its own folder, `current` linking to the newest: for engines that map files."""

    keep: int = 2
    """How many older versions to keep."""


def _refuse_empty(group: Any, *names: str) -> None:
    """Refuse an empty path: it is usually an unset variable."""
    for name in names:
        value = getattr(group, name)
        if value == "":
            raise InvalidArgument(f"{type(group).__name__}({name}={value!r}): is empty; omit it if it is not needed")


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Rarely needed options of a publisher."""

    hook_before_commit: Hook | None = None
    """Called when all parts are in the store."""
    limits: Limits = Limits()
    cuda: Cuda = Cuda()
    part_bytes: int = 64 << 20
    plain_files: bool = False
    """Engines can load whole versions from the store; 40 % larger in bfloat16."""
    schema_change: bool = False
    """Allow other tensors, shapes or dtypes."""
    accept_loss: bool = False
    """Continue although the store lost versions, with a whole version."""
    new_run: bool = False
    """Allow an empty store although the snapshot has a run. Is the store mounted?"""
    single_writer: bool = False
    """Allow a store without conditional put."""

    def __post_init__(self) -> None:
        """Check the types of option groups."""
        check_options("PublishOptions", [field.name for field in fields(self)], vars(self))


_GROUPS: dict[str, type[Any]] = {
    "select": Select,
    "anchors": Anchors,
    "keys": Keys,
    "hook_before_commit": Hook,
    "limits": Limits,
    "cuda": Cuda,
    "accept": Accept,
    "copy_on_write": CopyOnWrite,
    "options": PublishOptions,
}
"""Option groups by option name."""

_WORDS = {"anchors": ("only",)}
"""Words that are accepted instead of a group."""

P = ParamSpec("P")


def explained(init: Callable[P, None]) -> Callable[P, None]:
    """Decorator of an `__init__`: the `TypeError` for a wrong option says how to write it."""
    known = list(signature(init).parameters)

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        check_options(type(args[0]).__name__, known, kwargs)
        init(*args, **kwargs)

    return checked


def check_options(owner: str, known: Iterable[str], given: Mapping[str, Any]) -> None:
    """`TypeError` for unknown options, and for values of groups that have another type."""
    known = [name for name in known if name != "self"]
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r}{_hint(name, known)}")
        group, words = _GROUPS.get(name), _WORDS.get(name, ())
        if group is None or value is None or isinstance(value, group) or (isinstance(value, str) and value in words):
            continue
        others = "".join(f' or "{word}"' for word in words)
        first = fields(group)[0].name
        raise TypeError(f"{owner}: {name}={value!r}: must be dw.{group.__name__}({first}=...){others}")


def _hint(name: str, known: list[str]) -> str:
    places: dict[str, list[str]] = {}  # option or field: how to write it
    for option, text in _places(known):
        places.setdefault(option, []).append(text)
    if name in places:
        return ": write " + " or ".join(places[name])
    close = get_close_matches(name, places, n=1)
    return f"; did you mean {' or '.join(places[close[0]])}?" if close else f"; it has {', '.join(known)}"


def _places(options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of options and of fields of groups, with how to write each."""
    for option in options:
        group = _GROUPS.get(option)
        inner = [(option, "...")] if group is None else list(_places(field.name for field in fields(group)))
        if group is not None:
            yield option, f"{option}=dw.{group.__name__}({inner[0][1]})"
        for name, text in inner:
            yield name, f"{option}=..." if group is None else f"{option}=dw.{group.__name__}({text})"
