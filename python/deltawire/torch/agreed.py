"""What ranks agree on before each quantises its shards: the largest size of what a scale is of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltawire.quantize.amax import Agreed, by_name
from deltawire.ranks import Ranks
from deltawire.torch.quantised import shard_of
from deltawire.torch.shards import Piece

if TYPE_CHECKING:
    from deltawire.quantize.amax import Amax
    from deltawire.quantize.quantizer import Quantizer


def agreed_amaxes(quantizer: Quantizer, held: list[Piece], ranks: Ranks) -> Agreed | None:
    """Those of all ranks, where a scale may be of what two of them hold; None: there is nothing to agree on.

    All ranks call it. They send a number for each tensor that is cut, or one for each row, and no weights.
    """
    if not quantizer.agrees:
        return None

    def own() -> list[Amax]:
        return [replace(amax, values=amax.values.cpu()) for amax in quantizer.amaxes(map(shard_of, held))]

    return by_name(ranks.tell("scales", ranks.all_or_none(own)))
