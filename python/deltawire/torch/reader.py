"""Torch models for `Publisher`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from deltawire import _core
from deltawire.choice import Choice
from deltawire.errors import InvalidArgument
from deltawire.options import Ranks
from deltawire.reader import Reader, cast
from deltawire.tensors import Source, Tensor, readable
from deltawire.torch.gpu import home_of, in_reach, stays_there, stream_of, values_of, wait_for_current_stream
from deltawire.torch.ranks import ranks_of
from deltawire.torch.shards import Piece, is_sharded, piece_of
from deltawire.torch.state import chosen_tensors
from deltawire.torch.tracker import Tracker
from deltawire.torch.untouched import Untouched

if TYPE_CHECKING:
    from deltawire.quantize.quantizer import Quantised, Quantizer


class TorchReader(Reader):
    """Knows modules, tied weights, shards of `DTensor`s, and what was not touched since the last version."""

    def __init__(
        self,
        choice: Choice,
        ranks: Ranks,
        source: Any,
        *,
        tracker: Tracker | None,
        on_host: bool,
        quantizer: Quantizer | None = None,
    ) -> None:
        self._choice = choice
        self._quantizer = quantizer
        self._on_host = on_host
        self._ranks = ranks_of(source, ranks.group) if ranks.world is None else None
        if self._ranks is not None:
            self.rank, self.world = self._ranks.rank, self._ranks.world
        else:
            self.rank, self.world = ranks.rank or 0, 1 if ranks.world is None else ranks.world
        self._untouched = Untouched(tracker)
        self._home = home_of(values_of(source))
        self.cuda_stream = stream_of(self._home)

    def read(self, source: Source) -> list[_core.Tensor]:
        """This rank's part of the model as it is now; a failure of one rank is raised by all."""
        if self._ranks is None:
            pieces = self._pieces(source)
            return self._tensors(pieces, pieces)
        pieces = self._ranks.all_or_none(lambda: self._pieces(source))
        own = self._ranks.share_out([piece.form for piece in pieces])
        self.step = self._ranks.step
        return self._ranks.all_or_none(lambda: self._tensors([piece for piece in pieces if piece.form in own], pieces))

    def compare(self, source: Source, checkpoint: str) -> str:
        """Where the checkpoint is not what the model is quantised to, in words; empty: nowhere."""
        assert self._quantizer is not None
        from deltawire.quantize.seed import differences, words_of
        from deltawire.torch.quantised import quantised

        pieces = self._pieces(source)
        made = quantised(self._quantizer, pieces, pieces, first=False)
        return words_of(differences(made, Path(checkpoint)), Path(checkpoint))

    def published(self) -> None:
        """What `read` gave last is the newest version."""
        self._untouched.published()

    def failed(self) -> None:
        """It is not, or nobody knows."""
        self._untouched.forget()

    def _pieces(self, source: Source) -> list[Piece]:
        found = (piece_of(name, value) for name, value in chosen_tensors(source, self._choice))
        pieces = [piece for piece in found if piece is not None]
        for piece in pieces:
            if self.world == 1 and is_sharded(piece.whole) and not piece.form.whole:
                raise InvalidArgument(
                    f'tensor "{piece.name}": is sharded, and this publisher is alone: give the constructor the module, or '
                    "ranks=dw.Ranks(group=torch.distributed.group.WORLD), on every rank"
                )
        return pieces

    def _tensors(self, pieces: list[Piece], held: list[Piece]) -> list[_core.Tensor]:
        """What is to be published of `pieces`; `held` is all that this rank has."""
        if self._home is None:
            self._home = home_of(piece.local for piece in pieces)
        if self._quantizer is not None:
            return self._quantised(self._quantizer, pieces, held)
        wait_for_current_stream(self._home, self.cuda_stream)
        tensors = readable((piece.name, self._tensor(piece)) for piece in pieces)
        untouched = self._untouched.find(pieces)
        for piece, tensor in zip(pieces, tensors, strict=True):
            tensor.unchanged = piece.form in untouched
        return tensors

    def _quantised(self, quantizer: Quantizer, pieces: list[Piece], held: list[Piece]) -> list[_core.Tensor]:
        """The tensors of the quantised checkpoint, made as the library reads them."""
        from deltawire.torch.quantised import Window, boxed, planned, publishable

        window = Window()
        tensors: list[_core.Tensor] = []
        sources: list[tuple[str, ...]] = []

        def there(device: Any) -> bool:
            return stays_there(device, self._on_host, self._home)

        for key, plan in enumerate(planned(quantizer, pieces, held, self.rank == 0, there)):
            sources += [form.sources for form in plan.forms]
            if plan.make is not None:
                tensors += publishable(plan, key, window, self._reachable, there(plan.device))
                continue
            named = ((one.shard.name, cast(boxed(one, self._reachable(one)), self._choice.cast)) for one in plan.forms)
            tensors += readable(named)
        if self._home is not None:  # they are made by other threads, and on other streams
            torch.cuda.current_stream(self._home).synchronize()
        untouched = self._untouched.find(held)
        touched = {piece.name for piece in held if piece.form not in untouched}
        for tensor, of in zip(tensors, sources, strict=True):
            tensor.unchanged = bool(of) and touched.isdisjoint(of)
        return tensors

    def _reachable(self, made: Quantised) -> Any:
        dtype = self._choice.cast if made.dtype is None else None
        return in_reach(made.shard.tensor, dtype, self._on_host, self._home)

    def _tensor(self, piece: Piece) -> Any:
        local, dtype = piece.local, self._choice.cast
        if isinstance(local, torch.Tensor):
            local = in_reach(local.detach(), dtype, self._on_host, self._home)
        if is_sharded(piece.whole) and not piece.form.whole:
            local = Tensor(local, shape=piece.form.shape, offset=piece.form.offset)
        return cast(local, dtype)
