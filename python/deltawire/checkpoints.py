"""Checkpoints on disk: diff, apply, verify. The same as the verbs of the command line tool."""

from __future__ import annotations

import os

from deltawire import _core
from deltawire.progress import Progress, callback_of
from deltawire.reports import Applied, Diffed, Verified

Path = str | os.PathLike[str]


def diff_checkpoints(
    old: Path,
    new: Path,
    out: Path,
    *,
    codec: str = "auto",
    threads: int = 0,
    part_bytes: int = 1 << 30,
    progress: Progress = False,
) -> Diffed:
    """Write what changed between two checkpoints to `out`: one file when it ends in ".safetensors", else a folder of parts."""
    return Diffed.of(
        _core.diff_checkpoints(
            os.fspath(old),
            os.fspath(new),
            os.fspath(out),
            codec=codec,
            threads=threads,
            part_bytes=part_bytes,
            progress=callback_of(progress, "diff"),
        )
    )


def apply_delta(delta: Path, base: Path, out: Path, *, threads: int = 0, progress: Progress = False) -> Applied:
    """Write to `out` the checkpoint that `delta` makes of `base`; `BaseMismatch` when it was made from another."""
    return Applied(
        **_core.apply_delta(
            os.fspath(delta),
            os.fspath(base),
            os.fspath(out),
            threads=threads,
            progress=callback_of(progress, "apply"),
        )
    )


def verify(a: Path, b: Path, *, threads: int = 0, progress: Progress = False) -> Verified:
    """Compare two checkpoints bit by bit; the answer is true when they are the same.

    >>> import tempfile, numpy as np, deltawire as dw
    >>> version = dw.Publisher("memory:verify", {"w": np.arange(4)}).publish()
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     for folder in a, b:
    ...         with dw.Replica("memory:verify", folder) as replica:
    ...             pulled = replica.pull()
    ...     dw.verify(a, b)
    Verified(bit-identical: 1 tensor, 4 elements)
    """
    return Verified.of(
        _core.verify_checkpoints(os.fspath(a), os.fspath(b), threads=threads, progress=callback_of(progress, "verify"))
    )
