"""Settings of an engine that follows a chain."""

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
    """From `--additional-config '{"deltawire": {...}}'` of vLLM, or from DELTAWIRE_STORE, DELTAWIRE_LOCAL, ..."""

    store: str = ""
    """The chain: a folder, S3, or the URL of a trainer or relay that serves it."""
    local: str = ""
    """Folder of the host's checkpoint, for all engines of the host."""
    transport: Transport = "store"
    """How versions arrive: "store"; "nixl", for an http:// store; or "group", a `torch.Broadcast` in addition to the store."""
    shards: bool = False
    """Fetch only what this host's workers hold; the checkpoint in `local` is then updated only if they need it."""
    master_address: str = ""
    """Address of the publisher, rank 0 of the group."""
    master_port: int = 0
    world_size: int | None = None
    """Size of the group: the publisher and one rank per `local`."""
    rank_offset: int | None = None
    """This host's rank in the group."""
    group_name: str = "deltawire"
    backend: str = "gloo"
    """Backend for parts: "gloo", or "nccl" between GPUs."""
    token: str = field(default="", repr=False)
    """Bearer token of an `http(s)://` store; prefer `token_file`."""
    token_file: str = ""
    trust: str | None = None
    """File of public keys; versions not signed by one of them are refused."""
    run: str = ""
    """Refuse other runs; empty: use the store's run."""
    verify: Verify = "all"
    """Tensors to verify in the pause: "all", or a rotating "sample"; "behind": all, after the pause; "off": none."""
    follow: bool = True
    """Update to new versions automatically; False: only on request."""
    interval: float = 5.0
    """Seconds between queries of a store that does not notify."""
    timeout: float = 600.0
    """Seconds to wait for a requested version."""
    keep_cache: bool = True
    """Running requests keep the KV cache of the old version; False: drop caches with every version."""
    adapter: str = ""
    """The chain contains LoRA adapters, served under this name (docs/lora.md)."""
    base_model: str = ""
    """Accept only adapters whose configuration names this model; empty: any that fit."""
    device_bytes: int | None = None
    """GPU memory for a staged version; None: half of the free memory."""

    def __post_init__(self) -> None:
        """Refuse invalid combinations."""
        if self.transport not in get_args(Transport):
            raise InvalidArgument(f"deltawire: transport={self.transport!r}: must be one of {', '.join(get_args(Transport))}")
        if not (self.store and self.local):
            raise InvalidArgument("deltawire: `store` and `local` are required")
        if self.transport == "nixl" and not self.store.startswith(("http://", "https://")):
            raise InvalidArgument('deltawire: transport="nixl" needs a `store` at http:// or https://')
        if self.transport == "group":
            self._check_group()
        if self.shards and self.verify not in ("all", "behind"):
            raise InvalidArgument('deltawire: `shards` needs verify="all" or "behind"; only these verify partial objects')
        if self.adapter:
            self._check_adapter()
        elif self.base_model:
            raise InvalidArgument("deltawire: `base_model` is for adapters; set `adapter`")
        if self.verify not in get_args(Verify):
            raise InvalidArgument(f"deltawire: verify={self.verify!r}: must be one of {', '.join(get_args(Verify))}")
        if self.verify == "behind" and self.adapter:
            raise InvalidArgument('deltawire: verify="behind" is for a model, not for an `adapter`')
        if self.timeout <= 0 or self.interval <= 0:
            raise InvalidArgument("deltawire: `timeout` and `interval` must be more than 0 seconds")

    def _check_adapter(self) -> None:
        if self.shards:
            raise InvalidArgument("deltawire: `shards` is for models; an adapter is always fetched whole")
        if "@" in self.adapter or not self.adapter.isprintable():
            raise InvalidArgument(f"deltawire: adapter={self.adapter!r}: must not contain @, which precedes the version (NAME@7)")

    def _check_group(self) -> None:
        if not self.master_address or not 0 < self.master_port < 1 << 16:
            raise InvalidArgument('deltawire: transport="group" needs `master_address` and `master_port` of the publisher')
        if self.world_size is None or self.rank_offset is None or not 0 < self.rank_offset < self.world_size:
            given = f"rank_offset={self.rank_offset}, world_size={self.world_size}"
            raise InvalidArgument(f"deltawire: {given}: the group needs both; rank 0 is the publisher")
        if self.backend not in ("gloo", "nccl"):
            raise InvalidArgument(f"deltawire: backend={self.backend!r}: must be one of gloo, nccl")

    def open_store(self) -> Store:
        """Open the chain's store."""
        if isinstance(self.store, Store):  # in tests, with the keeper in the same process
            return self.store
        return open_store(self.store, token=self.token, token_file=self.token_file)

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of this host's rank."""
        from deltawire.torch import Rendezvous  # imports torch

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
        """Where versions come from, for messages."""
        if self.transport != "group":
            return self.store
        return f"{self.transport}://{self.master_address}:{self.master_port}"

    @property
    def accept(self) -> Accept:
        """Options of the host's replica."""
        return Accept(trust=self.trust or None, run=self.run or None)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """From names and values; refuses unknown names."""
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
        """From DELTAWIRE_STORE, DELTAWIRE_LOCAL, DELTAWIRE_VERIFY, ...; None: not set."""
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
    """The stores and folders that requests to an engine may name.

    From `allow_stores` and `allow_locals` in the settings, or DELTAWIRE_ALLOW_STORES and DELTAWIRE_ALLOW_LOCALS, separated by
    commas. Each includes everything below it.
    """

    stores: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Allowed:
        """From names and values, or from the environment."""
        return cls(*(_listed(values.get(name, os.environ.get(f"DELTAWIRE_{name.upper()}", ""))) for name in _ALLOWED))

    @staticmethod
    def without(values: Mapping[str, Any]) -> dict[str, Any]:
        """The values without those of this class."""
        return {name: value for name, value in values.items() if name not in _ALLOWED}

    def check(self, settings: Settings) -> None:
        """`InvalidArgument` if settings of a request name something that is not allowed."""
        files = [path for path in (settings.local, settings.trust, settings.token_file) if path]
        stores = [one for place in (settings.source, settings.store) for one in _sources(place)]
        for kind, allowed, given in (("stores", self.stores, stores), ("locals", self.locals, files)):
            for place in filter(None, given):
                if not any(_is_below(place, root) for root in allowed):
                    raise InvalidArgument(
                        f"deltawire: {place}: this server does not accept this setting from requests; its operator can allow it "
                        f'with "allow_{kind}" in the settings, or with DELTAWIRE_ALLOW_{kind.upper()}'
                    )


_ALLOWED = ("allow_stores", "allow_locals")


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",") if isinstance(value, str) else value))


def _sources(place: str) -> list[str]:
    """URLs of servers are separated by commas, which folder names may contain."""
    return place.split(",") if place.startswith(("http://", "https://")) else [place]


def _path_of(place: str) -> str:
    rest = place.removeprefix("file://")
    return place if rest == place else unquote(rest.removeprefix("localhost"))


def _is_below(place: str, root: str) -> bool:
    """Whether a place is the root or below it. Resolves symbolic links."""
    place, root = _path_of(place), _path_of(root)
    if "://" not in place and "://" not in root:
        return Path(place).resolve().is_relative_to(Path(root).resolve())
    return ".." not in place.split("/") and (place == root or place.startswith(f"{root.rstrip('/')}/"))


_ALIAS = "use_p2p_weight_update"  # slime's name of `shards`


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


def token_of(token: str, token_file: str) -> str:
    """The token, or the first line of the file."""
    if token and token_file:
        raise InvalidArgument("deltawire: set `token` or `token_file`, not both")
    if not token_file:
        return token
    try:
        first = Path(token_file).read_text().partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise InvalidArgument(f"deltawire: token_file: {token_file}: {error.strerror}") from error
    if not first:
        raise InvalidArgument(f"deltawire: token_file: {token_file}: contains no token")
    return first
