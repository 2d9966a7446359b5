"""Selects, renames and casts a trainer's tensors for a publish."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from deltawire import _core
from deltawire._internal.options import Names, Select
from deltawire._internal.ranks import Ranks
from deltawire._internal.tensors import Source, Tensor, named_tensors, readable
from deltawire.errors import InvalidArgument

# Dtypes that weights can be cast to, by their names in numpy and torch.
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True)
class Choice:
    """The caller's selection of tensors. It applies to names in the model; renaming comes last."""

    select: Select
    cast: str | None = None

    def has(self, name: str) -> bool:
        """Whether a tensor of the model is selected."""
        include, exclude = self.select.include, self.select.exclude
        wanted = include is None or _named(include, name)
        return wanted and not (exclude is not None and _named(exclude, name))

    def refuse_trainable_only(self) -> None:
        """Called for arrays."""
        if self.select.trainable_only:
            raise InvalidArgument("trainable_only: needs a torch module; arrays do not say what is trainable")

    def of(self, source: Source) -> Iterator[tuple[str, Any]]:
        """The selected tensors, under the model's names."""
        return ((name, value) for name, value in named_tensors(source) if self.has(name))

    def renamed(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The pairs under their names in the chain. Two names of the model must not become one."""
        origin: dict[str, str] = {}
        rename = self.select.rename
        for name, value in pairs:
            if not isinstance(name, str):
                raise InvalidArgument(f"names of tensors must be str, not {type(name).__name__}: {name!r}")
            new = name if rename is None else rename(name)
            if not isinstance(new, str):
                raise InvalidArgument(f'tensor "{name}": rename returned {new!r}, which is not a str')
            if origin.setdefault(new, name) != name:
                raise InvalidArgument(f'tensor "{new}": both "{origin[new]}" and "{name}" are renamed to it')
            yield new, value


def cast_name(dtype: Any) -> str | None:
    """The safetensors name of a dtype of torch or numpy, or of its name.

    >>> cast_name("bfloat16"), cast_name("BF16"), cast_name(None)
    ('BF16', 'BF16', None)
    """
    if dtype is None:
        return None
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name in _DTYPES.values():
        return name
    if name not in _DTYPES:
        raise InvalidArgument(f"dtype: weights can be published as {', '.join(_DTYPES)} or unchanged, not as {name}")
    return _DTYPES[name]


def _named(names: Names, name: str) -> bool:
    if callable(names):
        return bool(names(name))
    patterns = [names] if isinstance(names, str) else names
    return any(fnmatchcase(name, pattern) for pattern in patterns)


Result = TypeVar("Result")


class Reader:
    """Reads arrays of any kind; `deltawire.torch` has a subclass for modules and shards."""

    cuda_stream = 0

    def __init__(self, choice: Choice, ranks: Ranks | None) -> None:
        choice.refuse_trainable_only()
        self._choice = choice
        self.ranks = ranks

    def together(self, call: Callable[[], Result]) -> Result:
        """The result of `call`; if it fails on one rank, all ranks raise."""
        return call() if self.ranks is None else self.ranks.all_or_none(call)

    def read(self, source: Source) -> list[_core.Tensor]:
        """This rank's current tensors; if one rank fails, all ranks raise."""
        choice = self._choice
        return self.together(
            lambda: readable(choice.renamed((name, cast(value, choice.cast)) for name, value in choice.of(source)))
        )

    def compare(self, source: Source, checkpoint: str) -> str:
        """With a quantizer: a warning if the checkpoint differs from the quantised model, or ""."""
        return ""

    def published(self) -> str:
        """The tensors that `read` returned last were published. Returns a warning, or ""."""
        return ""

    def failed(self) -> None:
        """The version was not published, or its outcome is unknown."""

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Call `failed` if the block raises."""
        try:
            yield
        except BaseException:
            self.failed()
            raise


def cast(value: Any, dtype: str | None) -> Any:
    """The array, to be published in that dtype if it holds floats."""
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    if dtype is None or tensor.cast is not None or tensor.dtype is not None:
        return value
    name = str(getattr(tensor.array, "dtype", "")).removeprefix("torch.")
    return replace(tensor, cast=dtype) if name in ("float64", "float32", "float16", "bfloat16") else value


def reader_for(source: Source | None, choice: Choice, group: Any, **options: Any) -> Reader:
    """A reader for torch if torch is imported already, or is needed to quantise."""
    if "torch" not in sys.modules and options.get("quantizer") is None:
        ranks = None if group is None else Ranks(group)
        return Reader(choice, ranks if ranks is not None and ranks.world > 1 else None)
    from deltawire.torch.reader import TorchReader, ranks_of

    return TorchReader(choice, ranks_of(source, group), source, **options)
