"""Which tensors of a model are published, under which names, and as what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from deltawire.errors import InvalidArgument
from deltawire.options import Names, Select

# What weights may be published as; the names that numpy and torch have for it.
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True)
class Choice:
    """What the caller said of a model's tensors. Names are the model's own; renaming comes last."""

    select: Select
    cast: str | None = None

    def has(self, name: str) -> bool:
        """Whether a tensor of the model is meant."""
        include, exclude = self.select.include, self.select.exclude
        wanted = include is None or _named(include, name)
        return wanted and not (exclude is not None and _named(exclude, name))

    def renamed(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The pairs under their names in the chain. One may come several times, for boxes of a tensor, but not by accident."""
        origin: dict[str, str] = {}
        rename = self.select.rename
        for name, value in pairs:
            if not isinstance(name, str):
                raise InvalidArgument(f"names of tensors are str, and {name!r} is {type(name).__name__}")
            new = name if rename is None else rename(name)
            if not isinstance(new, str):
                raise InvalidArgument(f'tensor "{name}": rename gave {new!r}, no name')
            if origin.setdefault(new, name) != name:
                raise InvalidArgument(f'tensor "{new}": both "{origin[new]}" and "{name}" are renamed to it')
            yield new, value


def cast_name(dtype: Any) -> str | None:
    """What a dtype of torch or numpy, or its name, is called in the safetensors format.

    >>> cast_name("bfloat16"), cast_name("BF16"), cast_name(None)
    ('BF16', 'BF16', None)
    """
    if dtype is None:
        return None
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name in _DTYPES.values():
        return name
    if name not in _DTYPES:
        raise InvalidArgument(f"dtype: weights are published as {', '.join(_DTYPES)} or as they are, not as {name}")
    return _DTYPES[name]


def _named(names: Names, name: str) -> bool:
    if callable(names):
        return bool(names(name))
    patterns = [names] if isinstance(names, str) else names
    return any(fnmatchcase(name, pattern) for pattern in patterns)
