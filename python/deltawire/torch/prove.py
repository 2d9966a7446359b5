"""Verification of a live model by all of its ranks."""

from __future__ import annotations

from typing import Any

import torch

from deltawire import _core
from deltawire._internal.chain import Chain
from deltawire._internal.options import Select
from deltawire._internal.reader import Choice
from deltawire._internal.stores import StoreLike
from deltawire._internal.tensors import Source, Tensor
from deltawire.live import Proof
from deltawire.torch.reader import ranks_of
from deltawire.torch.shards import Piece, piece_of
from deltawire.torch.state import chosen_tensors


def prove(
    model: Source | torch.nn.Module,
    chain: StoreLike | Chain,
    version: int | None = None,
    *,
    group: Any = None,
    select: Select | None = None,
) -> int:
    """Verify that a live model is a version (default: the newest), bit by bit; returns its number.

    All ranks of `group` call it (default: all processes, if sharded). `BaseMismatch` names tensors that differ. `select` must be
    the publisher's.

    >>> import torch, deltawire as dw
    >>> model = torch.nn.Linear(4, 2)
    >>> dw.Publisher("memory:proven", model).publish().number
    0
    >>> dw.torch.prove(model, "memory:proven")
    0
    """
    ranks = ranks_of(model, group)
    choice = Choice(select or Select())
    if ranks is None:
        return _proof(model, choice).check(chain, version)
    own = ranks.all_or_none(lambda: _proof(model, choice))
    texts = ranks.gather("sums", own.text)
    # Rank 0 chooses the version: another rank may see a newer one.
    number = ranks.gather("versions", ranks.all_or_none(lambda: _newest(chain)))[0] if version is None else version

    def add_and_check() -> int:
        whole = Proof()
        for text in texts:
            whole += Proof.parse(text)
        return whole.check(chain, number)

    return ranks.all_or_none(add_and_check)


def _newest(chain: StoreLike | Chain) -> int | None:
    return (chain if isinstance(chain, Chain) else Chain(chain)).head


def _proof(model: Source | torch.nn.Module, choice: Choice) -> Proof:
    proof, there = Proof(), []
    for name, value in chosen_tensors(model, choice):
        piece = piece_of(name, value)
        if piece is None:
            continue
        if isinstance(piece.local, torch.Tensor) and piece.local.is_cuda and _core.has_cuda():
            there.append(piece)
        else:  # one at a time: non-contiguous arrays are copied
            proof.add([(piece.name, _held(piece))])
    for device in {piece.local.device for piece in there}:
        torch.cuda.current_stream(device).synchronize()  # wait for pending writes
        proof.add([(piece.name, _held(piece)) for piece in there if piece.local.device == device])
    return proof


def _held(piece: Piece) -> Any:
    local = piece.local
    if isinstance(local, torch.Tensor):
        local = local.detach() if _core.has_cuda() else local.detach().cpu()
    return local if isinstance(local, Tensor) else piece.placed(local)
