"""`Publisher`: the trainer's side."""

from __future__ import annotations

import logging
import os
import pathlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, overload

from deltawire import _core
from deltawire._internal.options import Anchors, Keys, Path, PublishOptions, Select, explained
from deltawire._internal.output import Progress, callback_of
from deltawire._internal.reader import Choice, cast_name, reader_for
from deltawire._internal.steps import Closing
from deltawire._internal.stores import Store, StoreLike, store_handle
from deltawire._internal.tensors import Source, check_pair, kind_of
from deltawire.errors import InvalidArgument
from deltawire.reports import PublishReport, SnapshotMemory

log = logging.getLogger("deltawire")

Files = Sequence[Path] | None
"""Files beside the weights; None: the last version's."""


class _Outcome(Future[PublishReport]):
    """A future that records whether its result was requested."""

    asked = False

    def result(self, timeout: float | None = None) -> PublishReport:
        try:
            return super().result(timeout)
        finally:
            self.asked = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        finally:
            self.asked = self.done()


class Background:
    """Runs one call at a time in a non-daemon thread, which the interpreter waits for at exit."""

    def __init__(self) -> None:
        self._outcome: _Outcome | None = None
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], PublishReport]) -> Future[PublishReport]:
        """Run `call` in a thread; the previous call must have ended."""
        outcome = self._outcome = _Outcome()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=run, name="deltawire-publish")
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()
        return outcome

    def wait(self) -> None:
        """Wait for a pending version; raise its error unless the future has returned it."""
        outcome, asked = self._outcome, self._outcome is not None and self._outcome.asked
        if outcome is None:
            return
        error = outcome.exception()
        self._outcome = None
        if error is not None and not asked:
            raise error

    def join(self) -> None:
        """Wait until the thread has ended, callbacks included."""
        if self._outcome is not None:  # `wait` was interrupted
            return
        for thread in self._threads:
            if thread is not threading.current_thread():  # `close` was called by a callback of the future
                thread.join()

    def report(self) -> None:
        """Log a failure that can no longer be raised."""
        if self._outcome is not None:
            self._outcome.add_done_callback(_log_failure)


def _log_failure(outcome: Future[PublishReport]) -> None:
    if not getattr(outcome, "asked", False) and (error := outcome.exception()) is not None:
        log.error("the last version was not published: %s", error)


_DENSE_FLOAT32 = (
    "most weights are float32, and most of their elements changed; if engines serve bfloat16, publish bfloat16, "
    'where far fewer elements change: dw.Publisher(store, model, dtype="bfloat16")'
)

if TYPE_CHECKING:
    from deltawire.quantize import Quantizer
    from deltawire.trainers.peft import Adapter


class Publisher(Closing):
    """Publishes successive states of a model as versions of a chain.

    Each state is compared bit by bit with a snapshot of the last committed one. After a failure the next version carries what is
    missing.

    >>> import numpy as np, deltawire as dw
    >>> weights = {"w": np.ones((4, 4), np.float16)}
    >>> with dw.Publisher("memory:publisher", weights) as publisher:
    ...     first = publisher.publish()
    ...     weights["w"][0, 0] = 2
    ...     second = publisher.publish()
    >>> first.number, first.full, second.number, second.num_changed, second.density
    (0, True, 1, 1, 0.0625)
    """

    @explained
    def __init__(
        self,
        store: StoreLike,
        tensors: Source | None = None,
        *,
        dtype: Any = None,
        select: Select | None = None,
        quantize: Any = None,
        adapter: bool | str = False,
        snapshot: Path | None = None,
        anchors: Anchors | Literal["only"] | None = None,
        keys: Keys | None = None,
        group: Any = None,
        codec: str = "auto",
        progress: Progress = False,
        options: PublishOptions | None = None,
    ) -> None:
        """Open the chain at `store`; the first publish may start it.

        `tensors`: a dict of arrays that change in place, (name, array) pairs, a torch module, or a callable that returns one of
        these; `select` filters and renames them. `dtype`: round floating-point weights to it, as torch's `.to()` does.

        `quantize`: the format of quantised weights: a checkpoint's folder, a `quantization_config`, or a name in
        `deltawire.quantize.FORMATS`. Weights are first rounded to `dtype` (default: bfloat16). `adapter`: publish only the LoRA
        adapter of a PEFT model: True (the active one) or its name.

        `snapshot`: a folder, for a restarted trainer, or "memory" (host), "pinned" (pinned host memory) or "device" (GPU);
        default: where the tensors are.

        `anchors`: which versions are also stored whole; "only": every version is whole, without deltas or snapshot. `keys` signs
        versions. `codec`: "auto" is smallest, "gaps" fastest.

        `group`: the torch process group or `Group` whose ranks hold the model; default: all processes if the model has
        `DTensor`s, else this process. Each rank publishes its parts; rank 0 commits when all have reported.

        Refused unless `options` allow it: other tensors than before (`InvalidArgument`), a store that lost versions
        (`Corruption`) or its run (`NotFound`).
        """
        _check_arguments(store, tensors)
        anchors, rare = anchors or Anchors(), options or PublishOptions()
        folder = _snapshot_folder(snapshot)
        if anchors == "only" and snapshot in ("pinned", "device"):
            raise InvalidArgument(f'snapshot="{snapshot}": with anchors="only" there is no snapshot; omit it')
        self._adapter = _adapter_of(adapter, tensors, quantize)
        tensors = tensors if self._adapter is None else self._adapter.tensors
        self._tensors = tensors
        self._store = store_handle(store)
        choice = Choice(select or Select(), cast_name(dtype))
        self._quantizer = _quantizer_of(quantize, choice)
        self._reader = reader_for(tensors, choice, group, on_host=snapshot == "memory", quantizer=self._quantizer)
        self._turn = RLock()  # one publish at a time; reentrant, so that the library can refuse a callback that publishes
        self._background = Background()
        weakref.finalize(self, self._background.report)
        self._core = _core.Publisher(
            self._store,
            folder=folder,
            pinned=snapshot == "pinned",
            anchors=anchors,
            keys=keys or Keys(),
            ranks=self._reader.ranks,
            codec=codec,
            quantization="" if self._quantizer is None else self._quantizer.settings,
            options=replace(rare, cuda=replace(rare.cuda, stream=rare.cuda.stream or self._reader.cuda_stream)),
            progress=callback_of(progress, "publish"),
        )

    @property
    def run(self) -> str:
        """The run's id; empty before the first publish."""
        return self._core.run

    def memory(self) -> SnapshotMemory:
        """What the snapshot takes.

        >>> import numpy as np, deltawire as dw
        >>> publisher = dw.Publisher("memory:snapshot", {"w": np.zeros(1000)})
        >>> version = publisher.publish()
        >>> publisher.memory()
        SnapshotMemory(host=8000, pinned=0, device=0, disk=0)
        """
        return SnapshotMemory.of(self._core.memory())

    @overload
    def publish(
        self, tensors: Source | None = None, extra_files: Files = None, *, wait: Literal[True] = True, step: int | None = None
    ) -> PublishReport: ...

    @overload
    def publish(
        self, tensors: Source | None = None, extra_files: Files = None, *, wait: Literal[False], step: int | None = None
    ) -> Future[PublishReport]: ...

    def publish(
        self, tensors: Source | None = None, extra_files: Files = None, *, wait: bool = True, step: int | None = None
    ) -> PublishReport | Future[PublishReport]:
        """Publish all tensors: those given here, or the constructor's.

        `extra_files`: all files beside the weights; None keeps the last version's. `Conflict`: another publisher committed first;
        the next call continues from its version.

        `wait=False` returns a future once changes are captured; the arrays may then change. The next call waits for it, and
        raises its error unless the future was asked.

        All ranks of a group must call it, with equal `step` if given. If one fails, all raise an error that names it.

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
        self._core.check_process()  # a forked child process would wait forever for the lock
        with self._turn:
            return self._publish(source, extra_files, wait, step)

    def _publish(
        self, source: Source | None, extra_files: Files, wait: bool, step: int | None
    ) -> PublishReport | Future[PublishReport]:
        self._wait_for_last()
        core, reader = self._core, self._reader

        def checked() -> tuple[Source, list[str] | None]:
            if source is None:
                raise InvalidArgument("publish: no tensors were given, here or to the constructor")
            files = extra_files if self._adapter is None else self._adapter.files(extra_files)
            return source, None if files is None else [os.fspath(file) for file in files]

        with reader.failing():
            given, files = reader.together(checked)
            wanted = reader.read(given)
            commit = partial(core.publish, wanted, files, step) if wait else core.finish
            if not wait:
                core.capture(wanted, files, step)

        def finish() -> PublishReport:  # does not refer to the tensors: a traceback would keep them
            with reader.failing():
                version = _reported(commit())
            said = reader.published()
            return replace(version, warnings=(*version.warnings, said)) if said else version

        return finish() if wait else self._background.start(finish)

    def publish_checkpoint(self, checkpoint: Path) -> PublishReport:
        """Publish a folder with its files, or a safetensors file with the last version's files.

        With `quantize` it must be a complete quantised checkpoint. `PublishReport.warnings` counts elements where quantising the
        trainer's weights gives other bytes.
        """
        self._core.check_process()
        with self._turn:
            return self._publish_checkpoint(os.fspath(checkpoint))

    def _publish_checkpoint(self, checkpoint: str) -> PublishReport:
        self._wait_for_last()
        if self._quantizer is not None:
            from deltawire.quantize.checks import check_whole

            check_whole(pathlib.Path(checkpoint), self._quantizer.scheme_of)
        self._reader.failed()  # the last version is the checkpoint, not the model
        version = _reported(self._core.publish_checkpoint(checkpoint))
        if self._quantizer is None or self._tensors is None:
            return version
        try:
            unlike = self._reader.compare(self._tensors, checkpoint)
        except Exception as error:  # the version is already committed
            unlike = f"{checkpoint}: cannot be compared with the trainer's quantised weights: {error}"
        return replace(version, warnings=(*version.warnings, unlike)) if unlike else version

    def close(self) -> None:
        """Wait for a pending version, then release everything."""
        try:
            self._wait_for_last()
        finally:
            self._background.join()
            self._core.close()

    def _wait_for_last(self) -> None:
        self._core.check_process()  # a forked child process has no such thread
        self._background.wait()

    def __repr__(self) -> str:
        return f'Publisher("{self._store.url}")'


def _reported(report: Mapping[str, Any]) -> PublishReport:
    version = PublishReport.of(report)
    if version.dense_float32:
        log.warning(_DENSE_FLOAT32)
    return version


def _check_arguments(store: Any, tensors: Any) -> None:
    """Refuse swapped arguments, and models without names."""
    if not isinstance(store, (str, os.PathLike, Store)):
        swapped = isinstance(tensors, (str, os.PathLike, Store))
        hint = "the store comes first: dw.Publisher(store, model)" if swapped else "a store is a path, a URL or a dw.Store"
        raise InvalidArgument(f"Publisher: the store is of type {kind_of(store)}; {hint}")
    if isinstance(tensors, (str, bytes, os.PathLike)):
        raise InvalidArgument(
            f"Publisher: the tensors are of type {kind_of(tensors)}; give a model or a dict of arrays, "
            "or publish a checkpoint on disk: dw.Publisher(store).publish_checkpoint(path)"
        )
    if isinstance(tensors, Iterator):
        raise InvalidArgument(
            f"Publisher: a {kind_of(tensors)} can be read only once; give the model itself, or dict(model.named_parameters())"
        )
    if isinstance(tensors, (list, tuple)):
        for item in tensors:
            check_pair(item)


def _quantizer_of(spec: Any, choice: Choice) -> Quantizer | None:
    if spec is None:
        return None
    from deltawire.quantize import quantizer_of  # needs torch

    return quantizer_of(spec, choice.cast or "BF16")


def _adapter_of(spec: bool | str, model: Any, quantize: Any) -> Adapter | None:
    if spec is False:
        return None
    if quantize is not None:
        raise InvalidArgument("adapter and quantize: engines load LoRA only in floating point; omit one of them")
    from deltawire.trainers.peft import Adapter  # needs torch and peft

    return Adapter(model, None if spec is True else spec)


def _snapshot_folder(snapshot: Path | None) -> str | None:
    """None: in memory."""
    if snapshot is None or snapshot in ("memory", "pinned", "device"):
        return None
    folder = os.fspath(snapshot)
    if not folder:
        raise InvalidArgument('snapshot: is empty; omit it, or use "memory"')
    return folder
