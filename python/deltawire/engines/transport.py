"""How versions come to a host: out of a store, or straight from the publisher (docs/carriers.md)."""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from deltawire._internal.stores import Store, StoreLike
from deltawire.errors import Conflict, InvalidArgument

if TYPE_CHECKING:
    from deltawire.engines.settings import Settings
    from deltawire.ship import Shipper

Transport = Literal["store", "tcp", "gloo", "nccl"]

_JOIN_SECONDS = 5.0
"""After which it is tried again: the publisher may not be there yet."""


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
        raise InvalidArgument(f"deltawire: secret_file: {secret_file}: holds no secret")
    return first


def serve(
    transport: str, store: StoreLike, *, address: str = "127.0.0.1", port: int = 0, secret: str = "", **options: Any
) -> Shipper:
    """The trainer's end: publish to the `store` of what this gives. Without a store the chain is in this process's memory."""
    from deltawire import ship

    if transport not in get_args(Transport)[1:]:
        raise InvalidArgument(f"deltawire: transport={transport!r}: must be one of {', '.join(get_args(Transport)[1:])}")
    place = store or f"memory:{uuid.uuid4().hex}"
    return ship.serve(place, f"{address}:{port}", secret=secret, backend=transport, **options)


def join(settings: Settings) -> Store:
    """The store of a publisher that ships: what it sends is there, and what it did not is asked for.

    `Unavailable` when there is none.
    """
    from deltawire import ship

    return ship.join(
        f"{settings.master_address}:{settings.master_port}",
        secret=secret_of(settings.secret, settings.secret_file),
        name=_name(settings),
        behind=settings.store or None,
        timeout=_JOIN_SECONDS,
    )


def check_free(local: str) -> None:
    """`Conflict` when another process keeps the folder: a publisher need not hear of all workers of a host, each second."""
    with suppress(FileNotFoundError), Path(local, ".deltawire", "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"{local}: another process keeps it") from None


def _name(settings: Settings) -> str:
    """What the publisher's events call this connection."""
    rank = "" if settings.rank_offset is None else f" rank {settings.rank_offset}"
    return f"{socket.gethostname()}-{os.getpid()}{rank}"
