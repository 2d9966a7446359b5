"""What operators say of an engine that follows a chain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import unquote

from deltawire._internal.options import Accept
from deltawire._internal.stores import Store, open_store
from deltawire.errors import InvalidArgument

if TYPE_CHECKING:
    from deltawire.torch import Rendezvous

Verify = Literal["all", "sample", "behind", "off"]
Transport = Literal["store", "nixl", "group"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The same for every engine: `--additional-config '{"deltawire": {...}}'` of vLLM, or DELTAWIRE_STORE, DELTAWIRE_LOCAL ..."""

    store: str = ""
    """Where the chain is: a folder, S3, or the URL of a trainer or relay that serves it."""
    local: str = ""
    """The host's copy of the checkpoint, one for all engines of the host."""
    transport: Transport = "store"
    """How versions come: from the store, which "nixl" reads at http://; or by a "group", a `torch.Broadcast` in front of it."""
    shards: bool = False
    """Fetch just what this host's workers hold; `local`, which the server is started from, is patched only when they need all."""
    master_address: str = ""
    """Of the publisher, which is rank 0 of the group."""
    master_port: int = 0
    world_size: int | None = None
    """Of the group: the publisher and a rank for each `local`."""
    rank_offset: int | None = None
    """This host's rank in the group."""
    group_name: str = "deltawire"
    backend: str = "gloo"
    """What parts go by: "gloo", or "nccl" from GPU to GPU."""
    secret: str = field(default="", repr=False)
    """The bearer token of an `http(s)://` store; better in a file."""
    secret_file: str = ""
    trust: str | None = None
    """A file of public keys: versions that none of them signed are refused."""
    run: str = ""
    """Take no other run; empty: the store's."""
    verify: Verify = "all"
    """What is proven in the pause: all tensors, or a sample that goes round; "behind": all, after the pause; "off": nothing."""
    follow: bool = True
    """Update to new versions automatically; False: only on request."""
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
        if not (self.store and self.local):
            raise InvalidArgument("deltawire: both `store` and `local` are needed")
        if self.transport == "nixl" and not self.store.startswith(("http://", "https://")):
            raise InvalidArgument('deltawire: transport="nixl" needs a `store` at http:// or https://')
        if self.transport == "group":
            self._check_group()
        if self.shards and self.verify not in ("all", "behind"):
            raise InvalidArgument('deltawire: `shards` needs verify="all" or "behind": only these verify parts of objects')
        if self.adapter:
            self._check_adapter()
        elif self.base_model:
            raise InvalidArgument("deltawire: `base_model` is for adapters: set `adapter`")
        if self.verify not in get_args(Verify):
            raise InvalidArgument(f"deltawire: verify={self.verify!r}: must be one of {', '.join(get_args(Verify))}")
        if self.verify == "behind" and self.adapter:
            raise InvalidArgument('deltawire: verify="behind" is for a model, not for an `adapter`')
        if self.timeout <= 0 or self.interval <= 0:
            raise InvalidArgument("deltawire: `timeout` and `interval` are seconds, more than 0")

    def _check_adapter(self) -> None:
        if self.shards:
            raise InvalidArgument("deltawire: `shards` is for models; an adapter is always fetched whole")
        if "@" in self.adapter or not self.adapter.isprintable():
            raise InvalidArgument(f"deltawire: adapter={self.adapter!r}: must be a name without @: versions are called NAME@7")

    def _check_group(self) -> None:
        if not self.master_address or not 0 < self.master_port < 1 << 16:
            raise InvalidArgument('deltawire: transport="group" needs `master_address` and `master_port` of the publisher')
        if self.world_size is None or self.rank_offset is None or not 0 < self.rank_offset < self.world_size:
            given = f"rank_offset={self.rank_offset}, world_size={self.world_size}"
            raise InvalidArgument(f"deltawire: {given}: the group needs both, and rank 0 is the publisher")
        if self.backend not in ("gloo", "nccl"):
            raise InvalidArgument(f"deltawire: backend={self.backend!r}: must be one of gloo, nccl")

    def open_store(self) -> Store:
        """Where the chain is."""
        if isinstance(self.store, Store):  # of tests, whose keeper is a thread of theirs
            return self.store
        return open_store(self.store, secret=self.secret, secret_file=self.secret_file)

    @property
    def rendezvous(self) -> Rendezvous:
        """Of the group, as this host's rank."""
        from deltawire.torch import Rendezvous  # which loads torch

        assert self.world_size is not None
        assert self.rank_offset is not None
        return Rendezvous(
            master_address=self.master_address,
            master_port=self.master_port,
            world_size=self.world_size,
            rank=self.rank_offset,
            group_name=self.group_name,
            backend=self.backend,  # type: ignore[arg-type] # checked
        )

    @property
    def source(self) -> str:
        """Where versions come from, in words."""
        if self.transport != "group":
            return self.store
        return f"{self.transport}://{self.master_address}:{self.master_port}"

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
        return cls.of(values) if "local" in values and "store" in values else None


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
        stores = [one for place in (settings.source, settings.store) for one in _sources(place)]
        for kind, allowed, given in (("stores", self.stores, stores), ("locals", self.locals, files)):
            for place in filter(None, given):
                if not any(_is_below(place, root) for root in allowed):
                    raise InvalidArgument(
                        f"deltawire: {place}: this server does not accept this setting from requests; its operator can allow it "
                        f'with "allow_{kind}" beside the settings, or with DELTAWIRE_ALLOW_{kind.upper()}'
                    )


_ALLOWED = ("allow_stores", "allow_locals")


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",") if isinstance(value, str) else value))


def _sources(place: str) -> list[str]:
    """Servers of a chain come with commas; folders may have some in their names."""
    return place.split(",") if place.startswith(("http://", "https://")) else [place]


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
        raise InvalidArgument(f"deltawire: `{_ALIAS}` is an alias of `shards`, and their values differ")
    return said


def _parsed(name: str, text: str) -> Any:
    if name in ("follow", "keep_cache", "shards"):
        return text.lower() not in ("0", "false", "no", "off")
    if name in ("interval", "timeout"):
        return float(text)
    return int(text) if name in ("device_bytes", "master_port", "world_size", "rank_offset") else text


def secret_of(secret: str, secret_file: str) -> str:
    """The words themselves, those in the file, or none."""
    if secret and secret_file:
        raise InvalidArgument("deltawire: `secret` or `secret_file`, not both")
    if not secret_file:
        return secret
    try:
        first = Path(secret_file).read_text().partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise InvalidArgument(f"deltawire: secret_file: {secret_file}: {error.strerror}") from error
    if not first:
        raise InvalidArgument(f"deltawire: secret_file: {secret_file}: contains no secret")
    return first
