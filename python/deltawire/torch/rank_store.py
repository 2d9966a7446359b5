"""`RankStore`: a chain in the memory of a sharded trainer's ranks."""

from __future__ import annotations

import torch.distributed as dist

from deltawire import _core
from deltawire._internal.ranks import Group, Ranks
from deltawire._internal.steps import Closing
from deltawire._internal.stores import BuiltinStore, Store
from deltawire.errors import InvalidArgument
from deltawire.torch.reader import ProcessGroup


class RankStore(Closing):
    """Each rank keeps its parts and serves them over HTTP; rank 0 holds the rest and redirects readers.

    >>> import torch, deltawire as dw, deltawire.torch as dwt
    >>> class Alone:
    ...     rank, size = 0, 1
    ...     def all_gather(self, data): return [data]
    >>> model = torch.nn.Linear(4, 2)
    >>> with dwt.RankStore(Alone()) as ranks:                      # on every rank of the trainer
    ...     publisher = dw.Publisher(ranks.store, model)
    ...     report = publisher.publish()
    ...     number = dw.Chain(ranks.url).head                       # anybody
    >>> number
    0
    """

    def __init__(
        self,
        group: Group | dist.ProcessGroup | None = None,
        address: str = "127.0.0.1:0",
        *,
        token: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        client_ca: str = "",
        ca_file: str = "",
        client_cert: str = "",
    ) -> None:
        """All ranks of `group` (default: all processes) make one. `address` is how others reach this rank; the rest is as in
        `serve` and `open_store`.
        """
        if address.startswith(("0.0.0.0:", "[::]:")):
            raise InvalidArgument(f"{address}: readers are redirected to each rank; use an address that they can reach")
        if group is None or isinstance(group, dist.ProcessGroup):
            group = ProcessGroup(dist.group.WORLD if group is None else group)
        ranks = Ranks(group)
        own = _core.memory_store(f"rank {ranks.rank}")
        self._server: _core.ChainServer | None = None

        def serve(is_mine: bool, holders: list[str]) -> str:
            if is_mine:
                self._server = _core.ChainServer(own, address, token, tls_cert, tls_key, client_ca, holders)
            return self._server.url if is_mine and self._server is not None else ""

        others = ranks.gather("servers", ranks.all_or_none(lambda: serve(ranks.rank != 0, [])))
        (self.url, *_) = ranks.gather("rank 0", ranks.all_or_none(lambda: serve(ranks.rank == 0, others)))
        urls = [self.url, *others[1:]]
        handle = ranks.all_or_none(lambda: _core.open_rank_store(ranks.rank, own, urls, token, ca_file, client_cert))
        self.store: Store = BuiltinStore(handle)
        """To publish to, on this rank."""

    url: str
    """Rank 0's server, for readers."""

    def close(self) -> None:
        """End this rank's server, and drop its parts."""
        if self._server is not None:
            self._server.close()
