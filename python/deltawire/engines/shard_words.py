"""What a trainer's rank 0 and the other ranks of a group say to each other, beside the weights: small words through a hub."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from deltawire.errors import Corruption, Unavailable

Words = dict[str, Any]


def packed(**words: Any) -> bytes:
    """For the other end."""
    return json.dumps(words).encode()


def parsed(message: bytes) -> Words:
    """What the other end said. `Corruption` when it is another program's."""
    try:
        words = json.loads(message)
    except ValueError:
        words = None
    if not isinstance(words, dict):
        raise Corruption(f"not a word about shards: {message[:80]!r}")
    return words


def heard(hear: Callable[[float], bytes], did: str, about: int | str, timeout: float) -> Words:
    """That it was done, with what belongs to it, or that it failed. Words about what came before are of no use any more."""
    end = time.monotonic() + timeout
    while True:
        words = parsed(hear(max(0.001, end - time.monotonic())))
        if words.get("about") == about and ("error" in words or words.get("did") == did):
            return words
        if time.monotonic() >= end:
            raise Unavailable(f'"{did}" of {about} was waited for in vain')
