"""Versions straight from a trainer to its replicas, beside the store or in place of one.

>>> import numpy as np, deltawire as dw, deltawire.ship
>>> weights = {"w": np.zeros(1000, np.float32)}
>>> with deltawire.ship.serve("memory:shipped") as shipper:             # the trainer
...     publisher = dw.Publisher(shipper.store, weights)
...     seed = publisher.publish()
...     store = deltawire.ship.join(shipper.address)                    # a replica, in any process
...     mine = {"w": np.empty(1000, np.float32)}
...     replica = dw.TensorReplica(store, mine)
...     version = replica.pull().version
...     shipper.wait_for(1)                                             # it tells the trainer beside its work
...     report = shipper.settle()                                       # who holds it
...     publisher.close()
>>> version, [one.version for one in report.replicas], report.warnings
(0, [0], ())
"""

from __future__ import annotations

import os

from deltawire import _core, carriers  # noqa: F401, so that all backends are known
from deltawire._internal.options import Keys
from deltawire._internal.steps import Closing
from deltawire._internal.stores import Store, StoreLike, built_in, store_handle
from deltawire.reports import ShipReport


class Shipper(Closing):
    """The trainer's side: what is published to `store` goes to the replicas as well. Made by `serve()`."""

    def __init__(self, core: _core.Shipper) -> None:
        self._core = core

    @property
    def store(self) -> Store:
        """To publish to. It keeps the shipper alive."""
        return built_in(self._core.store)

    @property
    def address(self) -> str:
        """What to join: "host:port"."""
        return self._core.address

    def wait_for(self, count: int, timeout: float = 600) -> None:
        """Wait until so many replicas follow; `Unavailable` when the time is over."""
        self._core.wait_for(count, timeout)

    def settle(self) -> ShipReport:
        """Wait until every replica holds the newest version, has failed, or the timeout is over."""
        return ShipReport.of(self._core.settle())

    def report(self) -> ShipReport:
        """As it is now."""
        return ShipReport.of(self._core.report())

    def close(self) -> None:
        """Let go; replicas are let go of when the publisher that uses `store` is closed, too."""
        self._core.close()


def serve(
    store: StoreLike,
    address: str = "127.0.0.1:0",
    *,
    secret: str = "",
    host: str = "",
    open_to_all: bool = False,
    backend: str = "tcp",
    buffer_bytes: int = 512 << 20,
    timeout: float = 60,
    answer_timeout: float = 5,
    merge_after: int = 4,
    keep_versions: int = 0,
    keys: Keys | None = None,
) -> Shipper:
    """Listen for replicas of the chain in `store`: a folder, S3, or memory.

    Without a `secret` the network decides who may join, and only loopback may be listened on, unless `open_to_all`. Replicas
    reach this process by `host`, where `address` does not say it. `backend` is a carrier: see `deltawire.carriers.backends()`.

    `buffer_bytes` go at once; two are held. `timeout` limits a buffer, and the wait of `settle()`; a replica that is silent for
    `answer_timeout` is left out of the group. One that missed `merge_after` versions finds a merged delta (0: never), signed with
    `keys`. With `keep_versions`, older ones are removed after each version, so that a store in memory does not grow for ever.
    """
    return Shipper(
        _core.Shipper(
            store_handle(store),
            address=address,
            secret=secret,
            host=host,
            open_to_all=open_to_all,
            backend=backend,
            buffer_bytes=buffer_bytes,
            timeout=timeout,
            answer_timeout=answer_timeout,
            merge_after=merge_after,
            keep_versions=keep_versions,
            keys=keys or Keys(),
        )
    )


def join(
    address: str,
    *,
    secret: str = "",
    name: str = "",
    behind: StoreLike | None = None,
    pushed: bool = True,
    buffer_bytes: int = 512 << 20,
    memory_bytes: int = 2 << 30,
    scratch: str | os.PathLike[str] | None = None,
    timeout: float = 30,
) -> Store:
    """Open the store of a publisher that ships, for `Replica`, `TensorReplica` and whatever else reads a chain.

    `behind` is a store with the same chain, read for what was not sent, and while the publisher is away. With `pushed=False`
    nothing is sent here: new versions are told, and read. What was sent waits in `memory_bytes` of memory, the rest in `scratch`.
    It joins again by itself when the publisher comes back. `InvalidArgument` when the secrets differ.
    """
    return built_in(
        _core.join_ship(
            address,
            secret=secret,
            name=name,
            behind=None if behind is None else store_handle(behind),
            pushed=pushed,
            buffer_bytes=buffer_bytes,
            memory_bytes=memory_bytes,
            scratch="" if scratch is None else os.fspath(scratch),
            timeout=timeout,
        )
    )
