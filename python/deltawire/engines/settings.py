"""What operators say of an engine that follows a chain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

from deltawire._internal.options import Accept
from deltawire.engines.transport import Transport
from deltawire.errors import InvalidArgument

Verify = Literal["all", "sample", "off"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The same for every engine: `--additional-config '{"deltawire": {...}}'` of vLLM, or DELTAWIRE_STORE, DELTAWIRE_LOCAL ..."""

    store: str = ""
    """Where the chain is; with another transport than "store" it may be empty, and is read for what did not come."""
    local: str = ""
    """The host's copy of the checkpoint, one for all engines of the host."""
    transport: Transport = "store"
    """How versions come: "store", or straight from the publisher, by the carrier that it has."""
    shards: bool = False
    """From the trainer's ranks into each worker, box by box; `local` is the checkpoint that the server is started from."""
    master_address: str = ""
    """Of the publisher."""
    master_port: int = 0
    world_size: int | None = None
    """Of the group, as the trainer counts it; groups are made by the publisher, of who is there, or with `shards` of all."""
    rank_offset: int | None = None
    """In that group: the publisher's events name the host's connection by it; with `shards` it is the first worker's rank."""
    secret: str = field(default="", repr=False)
    """What the publisher asks for; better in a file."""
    secret_file: str = ""
    trust: str | None = None
    """A file of public keys: versions that none of them signed are refused."""
    run: str = ""
    """Take no other run; empty: the store's."""
    verify: Verify = "all"
    """What is proven in the pause: all tensors, a sample that goes round, nothing."""
    follow: bool = True
    """Go to new versions by itself; else when it is told to."""
    interval: float = 5.0
    """Seconds between looks into a store that does not say when it changes."""
    timeout: float = 600.0
    """Seconds to wait for a version that was asked for."""
    keep_cache: bool = True
    """Requests go on with the keys and values that the version before computed; else caches are dropped with every version."""
    adapter: str = ""
    """The chain is one of LoRA adapters, served under this name beside the model (docs/lora.md)."""
    base_model: str = ""
    """Of an adapter: take only those whose configuration names this model; empty: those that fit."""
    device_bytes: int | None = None
    """Of GPU memory for a version that waits to be written; None: half of what is free then."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.transport not in get_args(Transport):
            raise InvalidArgument(f"deltawire: transport={self.transport!r}: must be one of {', '.join(get_args(Transport))}")
        if self.transport == "store" and not (self.store and self.local):
            raise InvalidArgument("deltawire: both `store` and `local` are needed")
        if self.transport != "store":
            self._check_carrier()
        if self.shards and (self.transport == "store" or self.rank_offset is None):
            raise InvalidArgument("deltawire: `shards` needs a `transport` other than store, `world_size` and `rank_offset`")
        if self.adapter:
            self._check_adapter()
        elif self.base_model:
            raise InvalidArgument("deltawire: `base_model` is for adapters: name the `adapter`")
        if self.verify not in get_args(Verify):
            raise InvalidArgument(f"deltawire: verify={self.verify!r}: must be one of {', '.join(get_args(Verify))}")
        if self.timeout <= 0 or self.interval <= 0:
            raise InvalidArgument("deltawire: `timeout` and `interval` are seconds, more than 0")

    def _check_adapter(self) -> None:
        if self.shards:
            raise InvalidArgument("deltawire: `shards` are of a model; an adapter is small, and comes whole")
        if "@" in self.adapter or not self.adapter.isprintable():
            raise InvalidArgument(f"deltawire: adapter={self.adapter!r}: is a name, without @: versions are called NAME@7")

    def _check_carrier(self) -> None:
        if not self.local:
            raise InvalidArgument("deltawire: `local` is needed")
        if not self.master_address or not 0 < self.master_port < 1 << 16:
            raise InvalidArgument(
                f"deltawire: transport={self.transport!r} needs `master_address` and `master_port`, of the publisher"
            )
        if (self.world_size is None) != (self.rank_offset is None):
            raise InvalidArgument("deltawire: `world_size` and `rank_offset` go together")
        if self.world_size is not None and self.rank_offset is not None and not 0 < self.rank_offset < self.world_size:
            raise InvalidArgument(
                f"deltawire: rank_offset={self.rank_offset}: must be one of the {self.world_size} ranks, and 0 is the publisher's"
            )

    @property
    def source(self) -> str:
        """Where versions come from, in words."""
        if self.transport == "store":
            return self.store
        return f"{self.transport}{'-shards' if self.shards else ''}://{self.master_address}:{self.master_port}"

    @property
    def accept(self) -> Accept:
        """For the host's replica."""
        return Accept(trust=self.trust or None, run=self.run or None)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """From names and values; one that is not known is refused."""
        values = _without_alias(values)
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InvalidArgument(f"deltawire: unknown setting {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        try:
            return cls(**values)
        except TypeError as error:
            raise InvalidArgument(f"deltawire: {error}") from error

    @classmethod
    def from_environment(cls) -> Settings | None:
        """From DELTAWIRE_STORE, DELTAWIRE_LOCAL, DELTAWIRE_VERIFY ...; None: there are none."""
        values: dict[str, Any] = {}
        for item in fields(cls):
            text = os.environ.get(f"DELTAWIRE_{item.name.upper()}")
            if text:
                values[item.name] = _parsed(item.name, text)
        alias = os.environ.get(f"DELTAWIRE_{_ALIAS.upper()}")
        if alias:
            values[_ALIAS] = _parsed("shards", alias)
        return cls.of(values) if "local" in values and {"store", "master_address"} & values.keys() else None


@dataclass(frozen=True)
class Allowed:
    """Which stores and folders callers of an engine may name: those that its operator has said, and no others.

    `allow_stores` and `allow_locals` beside the settings, or DELTAWIRE_ALLOW_STORES and DELTAWIRE_ALLOW_LOCALS, with commas: each
    stands for itself and what is below it.
    """

    stores: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Allowed:
        """From names and values, or else from the environment."""
        return cls(*(_listed(values.get(name, os.environ.get(f"DELTAWIRE_{name.upper()}", ""))) for name in _ALLOWED))

    @staticmethod
    def without(values: Mapping[str, Any]) -> dict[str, Any]:
        """The settings beside it."""
        return {name: value for name, value in values.items() if name not in _ALLOWED}

    def check(self, settings: Settings) -> None:
        """Of a caller: `InvalidArgument` when they name something that is not allowed."""
        files = [path for path in (settings.local, settings.trust, settings.secret_file) if path]
        for kind, allowed, given in (("stores", self.stores, [settings.source, settings.store]), ("locals", self.locals, files)):
            for place in filter(None, given):
                if not any(_is_below(place, root) for root in allowed):
                    raise InvalidArgument(
                        f"deltawire: {place}: this server was not started to be told that by its callers; its operator allows it "
                        f'with "allow_{kind}" beside the settings, or with DELTAWIRE_ALLOW_{kind.upper()}'
                    )


_ALLOWED = ("allow_stores", "allow_locals")


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",") if isinstance(value, str) else value))


def _path_of(place: str) -> str:
    rest = place.removeprefix("file://")
    return place if rest == place else unquote(rest.removeprefix("localhost"))


def _is_below(place: str, root: str) -> bool:
    """Folders are followed through links to where they are, so that no link leads out."""
    place, root = _path_of(place), _path_of(root)
    if "://" not in place and "://" not in root:
        return Path(place).resolve().is_relative_to(Path(root).resolve())
    return ".." not in place.split("/") and (place == root or place.startswith(f"{root.rstrip('/')}/"))


_ALIAS = "use_p2p_weight_update"  # what slime calls `shards`


def _without_alias(values: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(values)
    alias = said.pop(_ALIAS, None)
    if alias is None:
        return said
    if said.setdefault("shards", alias) != alias:
        raise InvalidArgument(f"deltawire: `{_ALIAS}` is another name of `shards`, and they say different things")
    return said


def _parsed(name: str, text: str) -> Any:
    if name in ("follow", "keep_cache", "shards"):
        return text.lower() not in ("0", "false", "no", "off")
    if name in ("interval", "timeout"):
        return float(text)
    return int(text) if name in ("device_bytes", "master_port", "world_size", "rank_offset") else text
