"""The trainer's side."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from deltawire import _core
from deltawire.choice import Choice, Names, Rename, cast_name
from deltawire.errors import InvalidArgument
from deltawire.flight import Flight
from deltawire.progress import Progress, callback_of
from deltawire.reader import reader_for
from deltawire.reports import SnapshotMemory, Version
from deltawire.stores import StoreLike, store_handle
from deltawire.tensors import Source

if TYPE_CHECKING:
    from deltawire.torch import Tracker


class Publisher:
    """Turns successive states of a model into versions of a chain.

    It holds a snapshot, the last committed state: in memory, or in the folder `snapshot`, where a restarted trainer finds it.
    What differs from it is what a version carries; after any failure the next one carries everything. Elements are compared as
    bits. Arrays are read where they lie; only those whose elements are apart (transposed, expanded) are copied.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.ones((4, 4), np.float16)}
    >>> with dw.Publisher("memory:publisher", weights) as publisher:
    ...     first = publisher.publish()
    ...     weights["w"][0, 0] = 2
    ...     second = publisher.publish()
    >>> first.number, first.full, second.number, second.num_changed, second.density
    (0, True, 1, 1, 0.0625)
    """

    def __init__(
        self,
        store: StoreLike,
        tensors: Source | None = None,
        *,
        dtype: Any = None,
        include: Names | None = None,
        exclude: Names | None = None,
        rename: Rename | None = None,
        trainable_only: bool = False,
        tracker: Tracker | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        codec: str = "auto",
        digest: str = "xxh3-128",
        threads: int = 0,
        part_bytes: int = 64 << 20,
        memory_limit: int = 2 << 30,
        full: bool = False,
        anchor_every: int = 0,
        anchor_by_bytes: bool = True,
        new_run: bool = False,
        single_writer: bool = False,
        sign_key: str | os.PathLike[str] = "",
        trust_key: str | os.PathLike[str] = "",
        change_key: bool = False,
        hook_before_commit: str = "",
        hook_timeout_seconds: float = 600,
        rank: int = 0,
        world: int = 1,
        rank_timeout_seconds: float = 600,
        group: Any = None,
        cuda_stream: int = 0,
        cuda_scratch_bytes: int = 256 << 20,
        progress: Progress = False,
    ) -> None:
        """Open the chain at `store`, or make a run there at the first publish.

        `tensors` is what `publish()` publishes: a dict of arrays that are changed in place, a torch module, or a callable that
        gives one (an iterable of pairs will do). `include` and `exclude` choose by name (patterns as the shell has them, or what
        says yes to a name), `trainable_only` what an optimizer could train; `rename` gives the names in the chain. `dtype` is
        what floating point weights are published as: bfloat16 for masters in float32, as torch's `.to()` rounds them.
        With `tracker`, see `deltawire.torch.track`, what nobody has touched since the last version is not read again.

        `snapshot` is a folder, or "memory" (the host's), "pinned" (the host's, at a GPU's reach) or "device" (a GPU's, of tensors
        that are there); where the tensors are if it is not given. `memory()` says what it takes.

        `full` stores every version whole; else a version is also stored whole every
        `anchor_every` versions and, with `anchor_by_bytes`, when the deltas since have outgrown it. `single_writer` allows a
        store without conditional put. A store that holds no run, though the snapshot is of one, is refused (`NotFound`: its disk
        may not be mounted) unless `new_run`. `memory_limit` bounds what publishing takes beside the snapshot.

        `sign_key` is a private key of `deltawire keygen`, `trust_key` a file of public ones. A version is signed as the one
        before it is, or refused: with `change_key` it may be signed with another key, for the first time or (without `sign_key`)
        no more, which stops replicas that do not trust that.

        Ranks of a sharded trainer (`rank` of `world`) each publish boxes, see `Tensor`; rank 0 commits when all are in. A torch
        model with `DTensor`s says that itself, if all processes hold it; else `group` is the process group of those that do.

        Work on tensors in a GPU's memory goes to `cuda_stream` (a `cudaStream_t` as a number; for torch the one that is current),
        and may take `cuda_scratch_bytes` there.
        """
        if isinstance(tensors, Iterator):
            raise InvalidArgument("Publisher: an iterator can be read only once; give a list, or a callable that gives one")
        self._tensors = tensors
        self._store = store_handle(store)
        choice = Choice(include, exclude, rename, cast_name(dtype), trainable_only)
        self._reader = reader_for(
            tensors, choice, rank=rank, world=world, group=group, tracker=tracker, on_host=snapshot == "memory"
        )
        self._flight = Flight()
        weakref.finalize(self, self._flight.report)
        self._core = _core.Publisher(
            self._store,
            "" if snapshot in (None, "memory", "pinned", "device") else os.fspath(snapshot),
            codec=codec,
            digest=digest,
            threads=threads,
            part_bytes=part_bytes,
            memory_limit=memory_limit,
            full=full,
            anchor_every=anchor_every,
            anchor_by_bytes=anchor_by_bytes,
            new_run=new_run,
            single_writer=single_writer,
            sign_key=os.fspath(sign_key),
            trust_key=os.fspath(trust_key),
            change_key=change_key,
            hook_before_commit=hook_before_commit,
            hook_timeout_seconds=hook_timeout_seconds,
            rank=self._reader.rank,
            world=self._reader.world,
            rank_timeout_seconds=rank_timeout_seconds,
            cuda_stream=cuda_stream or self._reader.cuda_stream,
            pinned_snapshot=snapshot == "pinned",
            cuda_scratch_bytes=cuda_scratch_bytes,
            progress=callback_of(progress, "publish"),
        )

    @property
    def run(self) -> str:
        """The run's id; empty until there is one."""
        return self._core.run

    def memory(self) -> SnapshotMemory:
        """What the snapshot takes, and where.

        >>> import numpy as np, deltawire as dw
        >>> publisher = dw.Publisher("memory:snapshot", {"w": np.zeros(1000)})
        >>> version = publisher.publish()
        >>> publisher.memory()
        SnapshotMemory(host=8000, pinned=0, device=0, disk=0)
        """
        return SnapshotMemory(**self._core.memory())

    @overload
    def publish(
        self,
        tensors: Source | None = None,
        extra_files: Sequence[str | os.PathLike[str]] | None = None,
        *,
        wait: Literal[True] = True,
        step: int | None = None,
    ) -> Version: ...

    @overload
    def publish(
        self,
        tensors: Source | None = None,
        extra_files: Sequence[str | os.PathLike[str]] | None = None,
        *,
        wait: Literal[False],
        step: int | None = None,
    ) -> Future[Version]: ...

    def publish(
        self,
        tensors: Source | None = None,
        extra_files: Sequence[str | os.PathLike[str]] | None = None,
        *,
        wait: bool = True,
        step: int | None = None,
    ) -> Version | Future[Version]:
        """Publish a state, all tensors of the model: those given here, or those given to the constructor.

        `extra_files` (config.json, tokenizer, ...) are the version's files beside the weights, all of them: replicas have
        these and no others. None keeps those of the version before; of ranks, rank 0's are taken. `Conflict` when another
        publisher was first: the next call goes on from its version.

        With `wait=False` it returns as soon as what changed is captured, so that the arrays may change again, and gives a
        future; upload and commit go on in a thread. One version is on its way at a time: the next call waits for it, and
        raises what went wrong with it unless its future was asked.

        `step` is for ranks: those that publish the same step make a version together, also when some of them were restarted.
        Ranks that do not say it count what they publish, a torch process group together, others each from its opening on.

        >>> import numpy as np, deltawire as dw
        >>> weights = {"w": np.zeros(100)}
        >>> with dw.Publisher("memory:in-background", weights) as publisher:
        ...     seed = publisher.publish()
        ...     weights["w"] += 1
        ...     future = publisher.publish(wait=False)
        ...     weights["w"] += 1                              # the next step: not part of version 1
        ...     future.result().number
        1
        """
        source = self._tensors if tensors is None else tensors
        if source is None:
            raise InvalidArgument("publish: no tensors, neither here nor in the constructor")
        self._land()
        core, reader = self._core, self._reader
        files = None if extra_files is None else [os.fspath(file) for file in extra_files]
        with reader.failing():
            wanted = reader.read(source)
            own = reader.step if step is None else step
            if not wait:
                core.capture(wanted, files, own)

        def finish() -> Version:
            with reader.failing():
                version = Version.of(core.publish(wanted, files, own) if wait else core.finish())
            reader.published()
            return version

        return finish() if wait else self._flight.start(finish)

    def publish_checkpoint(self, checkpoint: str | os.PathLike[str]) -> Version:
        """Publish a checkpoint on disk: a folder with the files in it, or a safetensors file, which keeps those of before."""
        self._land()
        self._reader.failed()  # the last version is not the model's
        return Version.of(self._core.publish_checkpoint(os.fspath(checkpoint)))

    def close(self) -> None:
        """Wait for the version that is on its way, then let go of snapshot and store. A second time does nothing."""
        try:
            self._land()
        finally:
            self._core.close()

    def _land(self) -> None:
        self._core.check_process()  # a forked child has no thread to wait for
        self._flight.land()

    def __repr__(self) -> str:
        return f'Publisher("{self._store.url}")'

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
