"""Tells those who call a constructor with a wrong option what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from deltawire.options import Accept, Anchors, CopyOnWrite, Cuda, Hook, Keys, Limits, Select

_GROUPS: dict[str, type[Any]] = {
    "select": Select,
    "anchors": Anchors,
    "keys": Keys,
    "hook_before_commit": Hook,
    "limits": Limits,
    "cuda": Cuda,
    "accept": Accept,
    "copy_on_write": CopyOnWrite,
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
    known = list(known)
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r}{_hint(name, known)}")
        group, words = _GROUPS.get(name), _WORDS.get(name, ())
        if group is None or value is None or isinstance(value, group) or (isinstance(value, str) and value in words):
            continue
        others = "".join(f' or "{word}"' for word in words)
        raise TypeError(f"{owner}: {name} is {value!r}, and must be {_call(name, fields(group)[0].name)}{others}")


def _hint(name: str, known: list[str]) -> str:
    known = [option for option in known if option != "self"]
    places: dict[str, list[str]] = {}  # what to write, for names of options and of fields
    for option in known:
        if option not in _GROUPS:
            places.setdefault(option, []).append(f"{option}=...")
            continue
        names = [field.name for field in fields(_GROUPS[option])]
        for field in names:
            places.setdefault(field, []).append(f"{option}={_call(option, field)}")
        places.setdefault(option, []).append(f"{option}={_call(option, names[0])}")
    if name in places:
        return ": write " + " or ".join(places[name])
    close = get_close_matches(name, places, n=1)
    return f"; do you mean {' or '.join(places[close[0]])}?" if close else f"; it has {', '.join(known)}"


def _call(option: str, field: str) -> str:
    return f"dw.{_GROUPS[option].__name__}({field}=...)"
