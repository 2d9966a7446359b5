"""Options in groups, each with one idea. A group is only needed where something in it is not as usual.

>>> import numpy as np, deltawire as dw
>>> publisher = dw.Publisher(
...     "memory:options",
...     {"w": np.zeros(8)},
...     anchors=dw.Anchors(every=50),
...     hook_before_commit=dw.Hook("true", timeout_seconds=10),
...     limits=dw.Limits(threads=2),
... )
>>> publisher.publish().number
0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    What finds no room is decoded again in the pause. None: a quarter of what is free."""


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
