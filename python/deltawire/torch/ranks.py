"""Which ranks hold a model: those of a process group of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from deltawire.errors import InvalidArgument
from deltawire.ranks import Ranks
from deltawire.torch.shards import is_sharded


class _ProcessGroup:
    """A process group of torch, as a `Group`."""

    def __init__(self, group: Any) -> None:
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            raise InvalidArgument("group: this process is none of its ranks")
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, data: bytes) -> list[bytes]:
        heard: list[Any] = [None] * self.size
        dist.all_gather_object(heard, data, group=self._group)
        return heard


def ranks_of(source: Any, group: Any) -> Ranks | None:
    """The ranks that hold a model; None: this process holds all of it. Without a `group`, shards are those of all processes."""
    if group is None and (not dist.is_available() or not dist.is_initialized() or not _has_shards(source)):
        return None
    if group is None or (dist.is_available() and isinstance(group, (dist.ProcessGroup, int))):
        group = _ProcessGroup(dist.group.WORLD if group is None else group)
    ranks = Ranks(group)
    return ranks if ranks.world > 1 else None


def _has_shards(source: Any) -> bool:
    if isinstance(source, torch.nn.Module):
        return any(map(is_sharded, source.parameters()))
    return isinstance(source, Mapping) and any(map(is_sharded, source.values()))
