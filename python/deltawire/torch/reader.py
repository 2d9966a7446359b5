"""Reads torch models for `Publisher`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire._internal.ranks import Ranks
from deltawire._internal.reader import Choice, Reader, cast
from deltawire._internal.tensors import Source, readable
from deltawire.errors import InvalidArgument
from deltawire.torch.gpu import gpu_of, in_reach, stays_there, stream_of, values_of, wait_for_current_stream
from deltawire.torch.shards import Piece, is_sharded, piece_of
from deltawire.torch.state import chosen_tensors


class ProcessGroup:
    """A process group of torch, as a `Group`."""

    def __init__(self, group: Any) -> None:
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            raise InvalidArgument("group: this process is not one of its members")
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, data: bytes) -> list[bytes]:
        """The data of every rank, by rank."""
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, data, group=self._group)
        return gathered


def ranks_of(source: Any, group: Any) -> Ranks | None:
    """The ranks that hold a model; None: only this process. Without a `group`, all processes hold shards."""
    if group is None and (not dist.is_available() or not dist.is_initialized() or not _has_shards(source)):
        return None
    if group is None or (dist.is_available() and isinstance(group, (dist.ProcessGroup, int))):
        group = ProcessGroup(dist.group.WORLD if group is None else group)
    ranks = Ranks(group)
    return ranks if ranks.world > 1 else None


def _has_shards(source: Any) -> bool:
    if isinstance(source, torch.nn.Module):
        return any(map(is_sharded, source.parameters()))
    return isinstance(source, Mapping) and any(map(is_sharded, source.values()))


if TYPE_CHECKING:
    from deltawire.quantize.quantizer import Quantised, Quantizer
    from deltawire.quantize.scheme import Agreed


class TorchReader(Reader):
    """Reads modules, tied weights and shards of `DTensor`s."""

    def __init__(
        self,
        choice: Choice,
        ranks: Ranks | None,
        source: Any,
        *,
        on_host: bool,
        quantizer: Quantizer | None = None,
    ) -> None:
        self._choice = choice
        self._quantizer = quantizer
        self._on_host = on_host
        self.ranks = ranks
        self._constants: set[str] = set()  # tensors of the newest version that are the same in every version
        self._new_constants: dict[str, bool] = {}  # the same of the version being published; value: the model lacks it
        self._shared: set[str] = set()
        self._gpu = gpu_of(values_of(source))
        self.cuda_stream = stream_of(self._gpu)

    def read(self, source: Source) -> list[_core.Tensor]:
        """This rank's part of the model; if one rank fails, all ranks raise."""
        pieces = self.together(lambda: self._pieces(source))
        if self.ranks is None:
            return self._tensors(pieces, pieces, None)
        own = self.ranks.share_out(piece.form for piece in pieces)
        agreed = self._agreed(pieces, self.ranks)
        return self.together(lambda: self._tensors([piece for piece in pieces if piece.form in own], pieces, agreed))

    def compare(self, source: Source, checkpoint: str) -> str:
        """A warning if the checkpoint differs from the quantised model, or ""."""
        assert self._quantizer is not None
        from deltawire.quantize.checks import differences, words_of
        from deltawire.torch.quantised import shard_of

        coded = self._quantizer.quantised(map(shard_of, self._pieces(source)), constants=False)
        return words_of(differences(coded, Path(checkpoint)), Path(checkpoint))

    def published(self) -> str:
        """The last `read` was published. Returns a warning, once, about tensors that the model lacks."""
        carried = sorted(name for name, carried in self._new_constants.items() if carried and name not in self._shared)
        self._shared.update(carried)
        self._constants, self._new_constants = set(self._new_constants), {}
        return self._quantizer.words_of(carried) if self._quantizer is not None and carried else ""

    def failed(self) -> None:
        """The version was not published, or its outcome is unknown."""
        if self.ranks is not None:
            self.ranks.forget()
        self._constants, self._new_constants = set(), {}

    def _pieces(self, source: Source) -> list[Piece]:
        found = (piece_of(name, value) for name, value in chosen_tensors(source, self._choice))
        pieces = [piece for piece in found if piece is not None]
        for piece in pieces:
            if self.ranks is None and is_sharded(piece.whole) and not piece.form.whole:
                raise InvalidArgument(
                    f'tensor "{piece.name}": is sharded, but this publisher has no group; pass the module, or '
                    "group=torch.distributed.group.WORLD, to the constructor on every rank"
                )
        return pieces

    def _agreed(self, pieces: list[Piece], ranks: Ranks) -> Agreed | None:
        if self._quantizer is None:
            return None
        from deltawire.torch.quantised import agreed_amaxes

        return agreed_amaxes(self._quantizer, pieces, ranks)

    def _tensors(self, pieces: list[Piece], held: list[Piece], agreed: Agreed | None) -> list[_core.Tensor]:
        """The tensors to publish for `pieces`. `held`: all of this rank's pieces; `agreed`: amaxes of all ranks."""
        if self._gpu is None:
            self._gpu = gpu_of(piece.local for piece in pieces)
        if self._quantizer is not None:
            return self._quantised(self._quantizer, pieces, held, agreed)
        wait_for_current_stream(self._gpu, self.cuda_stream)
        return readable((piece.name, self._tensor(piece)) for piece in pieces)

    def _quantised(
        self, quantizer: Quantizer, pieces: list[Piece], held: list[Piece], agreed: Agreed | None
    ) -> list[_core.Tensor]:
        """Tensors of the quantised checkpoint, computed while the library reads them."""
        from deltawire.quantize.kernels import Fp8BlocksOnGpu
        from deltawire.torch.quantised import RecentTensors, publishable, shard_of

        tensors: list[_core.Tensor] = []
        forms: list[Quantised] = []
        first = self.ranks is None or self.ranks.rank == 0
        elsewhere = set() if self.ranks is None else self.ranks.names - {piece.name for piece in held}
        recent, shards, beside = RecentTensors(), map(shard_of, pieces), map(shard_of, held)
        for key, plan in enumerate(quantizer.planned(shards, beside, first, agreed, self._stays, elsewhere)):
            forms += plan.forms
            if plan.make is None:
                tensors += self._there(plan.forms)
            else:
                tensors += publishable(plan, key, recent, self._reachable, self._stays(plan.device))
        if self._gpu is not None:
            Fp8BlocksOnGpu.check(tensors, self._gpu)
            # Other threads read the tensors, on other streams.
            torch.cuda.current_stream(self._gpu).synchronize()
        self._new_constants = {form.shard.name: form.carried for form in forms if form.constant}
        for tensor, form in zip(tensors, forms, strict=True):
            tensor.unchanged = form.constant and not form.sources and form.shard.name in self._constants
        return tensors

    def _there(self, coded: Iterable[Quantised]) -> list[_core.Tensor]:
        """Tensors that need no computation, for the library."""
        from deltawire.torch.quantised import boxed

        return readable((one.shard.name, cast(boxed(one, self._reachable(one)), self._choice.cast)) for one in coded)

    def _stays(self, device: Any) -> bool:
        return stays_there(device, self._on_host, self._gpu)

    def _reachable(self, coded: Quantised) -> Any:
        dtype = self._choice.cast if coded.dtype is None else None
        return in_reach(coded.shard.tensor, dtype, self._on_host, self._gpu)

    def _tensor(self, piece: Piece) -> Any:
        local, dtype = piece.local, self._choice.cast
        if isinstance(local, torch.Tensor):
            local = in_reach(local.detach(), dtype, self._on_host, self._gpu)
        return cast(piece.placed(local) if is_sharded(piece.whole) else local, dtype)
