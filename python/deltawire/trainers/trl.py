"""TRL: a weight transfer for `AsyncGRPOTrainer` that publishes versions; inference servers follow the store.

    from deltawire.trainers.trl import WeightTransfer

    transfer = WeightTransfer("s3://bucket/run-7", base_url="http://engine:8000", dtype="bfloat16")
    AsyncGRPOTrainer(model, reward, args, train_dataset=data, weight_transfer=transfer).train()

Trainer and servers share only the store. See docs/trl.md.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args

from deltawire._internal.chain import Chain
from deltawire._internal.identity import Identity
from deltawire._internal.options import Select, check_options
from deltawire._internal.publisher import Publisher
from deltawire._internal.reader import Choice, cast_name
from deltawire._internal.stores import StoreLike, store_handle
from deltawire.errors import BaseMismatch, InvalidArgument, NotFound, Unavailable, missing_extra
from deltawire.reports import PublishReport, TensorSpec

try:
    import torch
except ImportError as error:
    raise missing_extra(error, "trl") from None

from deltawire.engines.checkpoint import DTYPE_NAMES, LocalCheckpoint
from deltawire.engines.ready import wait_until_served

log = logging.getLogger("deltawire")

Wait = Literal["captured", "published", "applied"]
Pairs = Iterable[tuple[str, torch.Tensor]]

_OWN = ("store", "tensors", "dtype", "select", "adapter")
_OPTIONS = [name for name in signature(Publisher).parameters if name not in _OWN]
"""Options that are passed to `Publisher`."""


class WeightTransfer:
    """TRL's `WeightTransferProtocol`, for `AsyncGRPOTrainer(weight_transfer=...)`. TRL calls it on rank 0; each sync is a
    version.
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        base_url: str | Sequence[str] | None = None,
        wait: Wait | None = None,
        timeout: float = 600.0,
        dtype: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        tensors: Callable[[Pairs], Pairs] | None = None,
        select: Select | None = None,
        run: str | None = None,
        **options: Any,
    ) -> None:
        """Publish to `store`; `options` as in `Publisher`.

        `wait` until a sync is "captured" (the weights may change; the next sync raises errors), "published" or "applied"
        (served; default with `base_url`, one or several), at most `timeout` seconds.

        `dtype`: the servers' dtype. `checkpoint`: the folder that the trainer loads: the first version of an empty store, and
        the source of frozen tensors. `tensors` and `select` map TRL's names to the checkpoint's. `run`: refuse any other.
        `snapshot="memory"`: move GPU tensors to the host one by one.
        """
        urls = [] if base_url is None else [base_url] if isinstance(base_url, str) else list(base_url)
        wait = wait or ("applied" if urls else "published")
        if wait not in get_args(Wait):
            raise InvalidArgument(f"WeightTransfer: wait={wait!r}: must be one of {', '.join(get_args(Wait))}")
        if wait == "applied" and not urls:
            raise InvalidArgument('WeightTransfer: wait="applied" needs base_url, the URL of the server')
        if not timeout > 0:
            raise InvalidArgument(f"WeightTransfer: timeout={timeout}: must be more than 0 seconds")
        check_options("WeightTransfer", _OPTIONS, options)
        self._store, self._url = store, store_handle(store).url
        self._servers = [url.rstrip("/") for url in urls]
        self._wait, self._timeout, self._run = wait, timeout, run
        self._choice = Choice(select or Select(), cast_name(dtype))
        self._tensors, self._checkpoint, self._options = tensors, checkpoint, options
        self._publisher: Publisher | None = None
        self._pending: Future[PublishReport] | None = None
        self._wanted: dict[str, TensorSpec] = {}
        self._frozen: dict[str, torch.Tensor] | None = None
        self.version: PublishReport | None = None
        """The newest committed version."""
        self.served: list[Identity] | None = None
        """With wait="applied": the version that each server served after the last sync."""

    @property
    def run(self) -> str:
        """The run's id; empty before the store is opened."""
        return "" if self._publisher is None else self._publisher.run

    def init_weight_transfer(self) -> None:
        """Open the store, and wait until the servers follow it."""
        self._open()
        if self._wait == "applied":
            self.served = wait_until_served(self._servers, None, self._timeout)

    def pause(self) -> None:
        """Does nothing: servers pause themselves when a version is staged."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Publish what changed. The weights may change again when it returns, for every `wait`."""
        began = time.perf_counter()
        pairs = self._read(iterator)  # read everything before anything can fail: other ranks take part in each tensor
        publisher = self._open()
        self._finish_pending()
        tensors = self._complete(pairs)
        self._pending = publisher.publish(tensors, wait=False)
        captured = time.perf_counter() - began
        if self._wait == "captured":
            log.info("deltawire: captured in %.3f s", captured)
            return
        version = self._finish_pending()
        assert version is not None
        if self._wait == "applied":
            self.served = wait_until_served(self._servers, version.identity, self._timeout)
        log.info("deltawire: %r, captured in %.3f s, %s in %.3f s", version, captured, self._wait, time.perf_counter() - began)

    def resume(self) -> None:
        """Does nothing; see `pause`."""

    def destroy(self) -> None:
        """Wait for a pending version, then close the store. May be called twice."""
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        try:
            self._finish_pending()
        finally:
            publisher.close()

    # ---- the chain

    def _open(self) -> Publisher:
        """The publisher; checks the run of the chain first."""
        if self._publisher is not None:
            return self._publisher
        chain = self._chain()
        if self._run is not None and chain is not None and chain.run != self._run:
            raise BaseMismatch(f"{self._url}: holds run {chain.run}, but run {self._run} was requested")
        if self._run is not None and chain is None:
            raise NotFound(f"{self._url}: holds no run, but run {self._run} was requested; is the store mounted?")
        publisher = Publisher(self._store, dtype=self._choice.cast, **self._options)
        try:
            if chain is None and self._checkpoint is not None:
                self.version = self._seed(publisher, Path(self._checkpoint))
                chain = self._chain()
            head = None if chain is None else chain.head
            self._wanted = {} if chain is None or head is None else {spec.name: spec for spec in chain.tensors(head)}
        except BaseException:
            publisher.close()
            raise
        self._publisher = publisher
        return publisher

    def _seed(self, publisher: Publisher, folder: Path) -> PublishReport:
        if self._choice.cast is None:
            return publisher.publish_checkpoint(folder)
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and ".safetensors" not in path.name]
        return publisher.publish(list(LocalCheckpoint(folder).items()), files)

    def _chain(self) -> Chain | None:
        try:
            chain = Chain(self._store, keys=self._options.get("keys"))
        except NotFound:
            return None
        return None if chain.head is None else chain

    def _finish_pending(self) -> PublishReport | None:
        """Wait for the pending version, and raise its error."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        try:
            self.version = pending.result(self._timeout)
        except FutureTimeoutError:
            if pending.done():  # the publish itself timed out
                raise
            self._pending = pending
            late = f"{self._url}: the version was not committed within {self._timeout:g} s; the publisher is still trying"
            raise Unavailable(late) from None
        return self.version

    # ---- the weights

    def _read(self, iterator: Pairs) -> list[tuple[str, torch.Tensor]]:
        pairs = iterator if self._options.get("snapshot") != "memory" else ((name, tensor.cpu()) for name, tensor in iterator)
        if self._tensors is not None:
            pairs = self._tensors(pairs)
        return list(self._choice.renamed((name, tensor) for name, tensor in pairs if self._choice.has(name)))

    def _complete(self, pairs: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
        """Add frozen tensors, so that every version has the same tensors."""
        if not self._wanted:
            self._wanted = {name: TensorSpec(name, self._dtype(tensor), tuple(tensor.shape)) for name, tensor in pairs}
            return pairs
        for name, tensor in pairs:
            self._check(name, tensor)
        missing = sorted(self._wanted.keys() - {name for name, _ in pairs})
        if not missing:
            return pairs
        if self._checkpoint is None:
            raise InvalidArgument(
                f"the trainer does not send {_some(missing)}, which the chain has; if they are frozen, set checkpoint=... to "
                "the folder that the trainer loads"
            )
        if self._frozen is None or self._frozen.keys() != set(missing):
            self._frozen = dict(LocalCheckpoint(Path(self._checkpoint)).items(missing))
            for name in missing:
                if name not in self._frozen:
                    raise InvalidArgument(
                        f'tensor "{name}": the chain has this tensor, but the trainer and {self._checkpoint} lack it'
                    )
                self._check(name, self._frozen[name])
        return [*pairs, *self._frozen.items()]

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        spec = self._wanted.get(name)
        if spec is None:
            raise InvalidArgument(
                f"tensor \"{name}\": the chain has no such tensor; map TRL's names to the chain's with `tensors` or `select`"
            )
        if spec.shape != tuple(tensor.shape):
            raise InvalidArgument(f'tensor "{name}": has shape {list(tensor.shape)}, but {list(spec.shape)} in the chain')
        if spec.dtype != self._dtype(tensor):
            raise InvalidArgument(
                f'tensor "{name}": would be published as {self._dtype(tensor)}, but is {spec.dtype} in the chain; set `dtype`'
            )

    def _dtype(self, tensor: torch.Tensor) -> str:
        own = DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype))
        return self._choice.cast or own if tensor.is_floating_point() else own


def _some(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
