"""Options in groups, each with one idea. A group is only needed where something in it is not as usual.

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
"""Some of a model's names: patterns as the shell has them (`"*.lora_?.*"`), or what says yes to a name."""

Rename = Callable[[str], str]
"""From a name in the model to the one in the chain."""


@dataclass(frozen=True, kw_only=True)
class Select:
    """Which tensors of a model are meant, and what they are called in the chain."""

    include: Names | None = None
    """Patterns as the shell has them (`"*.lora_?.*"`), or a function that says yes to a name; None: all."""
    exclude: Names | None = None
    """As `include`: what is left out of that."""
    rename: Rename | None = None
    """From a name in the model to the one in the chain."""
    trainable_only: bool = False
    """Of a torch module: what an optimizer could train."""


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Which versions are stored whole beside their deltas."""

    every: int = 0
    """Every so many versions; 0: none for that reason."""
    by_bytes: bool = True
    """When the deltas since the last one have outgrown it."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Key files of `deltawire keygen`. What is added to a chain is signed as what it builds upon, or refused."""

    sign: Path | None = None
    """A private key: signs what is added."""
    trust: Path | None = None
    """A file of public keys: what none of them has signed is refused."""
    change: bool | Literal["unsigned"] = False
    """True: `sign` may be another key than before, or the first. "unsigned": nothing is signed from now on."""

    def __post_init__(self) -> None:
        """Refuse what could be misunderstood."""
        _refuse_empty(self, "sign", "trust")
        if self.change not in (False, True, "unsigned"):
            raise InvalidArgument(f'Keys(change={self.change!r}): must be False, True or "unsigned"')


@dataclass(frozen=True)
class Hook:
    """A shell command. If it does not exit with 0 in time, nothing is committed."""

    command: str
    """It finds DELTAWIRE_VERSION, DELTAWIRE_STORE and DELTAWIRE_RUN in its environment."""
    timeout_seconds: float = 600

    def __post_init__(self) -> None:
        """Refuse what does nothing."""
        if not self.command:
            raise InvalidArgument("Hook: there is no command; leave the hook out")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What work may take of a machine."""

    threads: int = 0
    """0: one per core."""
    memory_bytes: int = 2 << 30
    """Beside arrays, mapped files and the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """For tensors in a GPU's memory."""

    stream: int = 0
    """Where work goes: a `cudaStream_t` as a number, `stream.cuda_stream` of torch; 0: the one that torch uses now."""
    scratch_bytes: int = 256 << 20
    """Of the GPU's memory, beside weights and snapshot."""
    kept_bytes: int | None = None
    """Of the GPU's memory, on top, for what a replica has decoded before its pause: some 5 bytes for each element that changes.
    What does not fit is decoded again in the pause. None: a quarter of what is free."""


@dataclass(frozen=True, kw_only=True)
class Accept:
    """What a replica takes from a store."""

    trust: Path | None = None
    """A file of public keys: what none of them has signed is refused."""
    run: str | None = None
    """An id: any other run is refused."""
    at_least: int = 0
    """Any version below this one is refused."""

    def __post_init__(self) -> None:
        """Refuse what could be misunderstood."""
        _refuse_empty(self, "trust", "run")


@dataclass(frozen=True, kw_only=True)
class CopyOnWrite:
    """Versions in folders of their own, `current` pointing to the newest: for engines that map their files."""

    keep: int = 2
    """How many of the older ones stay."""


def _refuse_empty(group: Any, *names: str) -> None:
    """An empty path is a variable that nobody has set, and would mean: without."""
    for name in names:
        value = getattr(group, name)
        if value == "":
            raise InvalidArgument(f"{type(group).__name__}({name}={value!r}): is empty; leave it out to go without")


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """What few publishers need."""

    hysteresis: float = 0.0
    """With `quantize`: a band such as 0.03. A scale stays what it was while the one that is needed is no farther from it: fewer
    scales change, and the bytes are no longer those of the reference library."""
    hook_before_commit: Hook | None = None
    """Called when all parts are in the store."""
    limits: Limits = Limits()
    """What work may take of the machine."""
    cuda: Cuda = Cuda()
    """For tensors in a GPU's memory."""
    part_bytes: int = 64 << 20
    """Of one part."""
    plain_files: bool = False
    """Whole versions are checkpoints that engines can load from the store, larger by 40 % in bfloat16; else they are packed."""
    schema_change: bool = False
    """Allow a version whose tensors are not those of the one before (added, removed, of another shape or dtype)."""
    accept_loss: bool = False
    """Go on from what the store has, though it has lost versions or holds others under their numbers: the first version is
    stored whole."""
    new_run: bool = False
    """Allow a store that holds no run, though the snapshot is of one: its disk may not be mounted."""
    single_writer: bool = False
    """Allow a store without conditional put: there is no other writer."""

    def __post_init__(self) -> None:
        """Refuse what is none of the choices."""
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
"""The options that are groups, under their names."""

_WORDS = {"anchors": ("only",)}
"""What may stand in place of a group."""

P = ParamSpec("P")


def explained(init: Callable[P, None]) -> Callable[P, None]:
    """For an `__init__`: a `TypeError` says where an unknown option belongs, and how a group is written."""
    known = list(signature(init).parameters)

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        check_options(type(args[0]).__name__, known, kwargs)
        init(*args, **kwargs)

    return checked


def check_options(owner: str, known: Iterable[str], given: Mapping[str, Any]) -> None:
    """`TypeError` for names that are not known, and for groups that are something else."""
    known = [name for name in known if name != "self"]
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r}{_hint(name, known)}")
        group, words = _GROUPS.get(name), _WORDS.get(name, ())
        if group is None or value is None or isinstance(value, group) or (isinstance(value, str) and value in words):
            continue
        others = "".join(f' or "{word}"' for word in words)
        first = fields(group)[0].name
        raise TypeError(f"{owner}: {name} is {value!r}, and must be dw.{group.__name__}({first}=...){others}")


def _hint(name: str, known: list[str]) -> str:
    places: dict[str, list[str]] = {}  # what to write, for names of options and of fields
    for option, text in _places(known):
        places.setdefault(option, []).append(text)
    if name in places:
        return ": write " + " or ".join(places[name])
    close = get_close_matches(name, places, n=1)
    return f"; do you mean {' or '.join(places[close[0]])}?" if close else f"; it has {', '.join(known)}"


def _places(options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of options, and of fields of groups, with what to write for each."""
    for option in options:
        group = _GROUPS.get(option)
        inner = [(option, "...")] if group is None else list(_places(field.name for field in fields(group)))
        if group is not None:
            yield option, f"{option}=dw.{group.__name__}({inner[0][1]})"
        for name, text in inner:
            yield name, f"{option}=..." if group is None else f"{option}=dw.{group.__name__}({text})"
