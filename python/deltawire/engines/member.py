"""One worker process of an engine: the host's replica, the worker, a thread that stages. It answers instead of raising."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import torch

from deltawire.engines.group import Alone, Group, agree
from deltawire.engines.host import Host, local_version
from deltawire.engines.settings import Settings
from deltawire.engines.shard_link import ShardLink
from deltawire.engines.shard_worker import ShardWorker
from deltawire.engines.worker import Reload, Worker
from deltawire.errors import Error, InvalidArgument, Unavailable

log = logging.getLogger("deltawire")

AnyWorker = TypeVar("AnyWorker", bound=Worker)


class Member:
    """A worker process of an engine that follows a chain. All processes of the engine make the same calls in the same order."""

    def __init__(
        self,
        settings: Settings,
        model: torch.nn.Module,
        *,
        engine: str,
        group: Group | None = None,
        reload: Reload | None = None,
        drafts: Callable[[], Sequence[torch.nn.Module]] = tuple,
        reloads_all: bool = False,
    ) -> None:
        """`reloads_all`: the engine's `reload` takes all tensors of the model or none."""
        self.settings, self.model, self._reloads_all = settings, model, reloads_all
        self._drafts = drafts  # engines make them after the model
        self.group: Group = group or Alone()
        self.worker: Worker | None = None
        self._name = f"{engine}-{socket.gethostname()}-{os.getpid()}"
        self._reload = reload
        self._staging_error: str | None = None
        self._stop = threading.Event()
        self._host: Host | ShardLink = self._shard_link() if settings.shards else Host(settings)
        self._thread = threading.Thread(target=self._stage_ahead, name="deltawire-stage", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int | None:
        """What is served, as far as it is known."""
        return None if self.worker is None else self.worker.version

    def call(self, call: str, **options: Any) -> dict[str, Any]:
        """`attach`, `update`, `prove` or `status`: `{"ok": ...}` or `{"error": words}`."""
        calls: dict[str, Callable[..., Any]] = {
            "attach": self.attach, "update": self.update, "prove": self.prove, "status": self.status,
        }  # fmt: skip
        try:
            return {"ok": calls[call](**options)}
        except Exception as error:  # an answer on every worker, whatever happens
            if isinstance(error, Error):
                return {"error": str(error)}
            log.exception("deltawire: %s", call)
            return {"error": f"{type(error).__name__}: {error}"}

    def attach(self) -> int:
        """The version that is served. The first time all weights are compared with the local checkpoint and brought to it."""
        if self.settings.shards:
            if self.worker is None:
                self.worker = self._new_worker(ShardWorker)
            return self.worker.attach()
        if self.worker is None or self.worker.version is None:
            worker = self._new_worker(Worker)
            if self.worker is not None:
                self.worker.close()  # two of one name cannot read the feed
            try:
                worker.attach()
            except BaseException:
                worker.close()
                raise
            self.worker = worker
            self._host.look()
        assert self.worker.version is not None
        return self.worker.version

    def begin(self, timeout: float) -> None:
        """Attach as soon as there is a version. With shards the trainer waits for this worker, and not the other way round."""
        if not self.settings.shards:
            self.wait_for(0, timeout)
        try:
            self.attach()
        except Unavailable:
            if not self.settings.shards:
                raise

    @property
    def newest(self) -> int | None:
        """The version that an update would go to."""
        if not self.settings.shards:
            return local_version(self.settings.local)
        if self.worker is None:
            return None
        staged = self.worker.report.staged
        return self.worker.version if staged is None else staged

    def _new_worker(self, kind: type[AnyWorker]) -> AnyWorker:
        worker = kind(
            self.model,
            self.settings.local,
            name=self._name,
            group=self.group,
            reload=self._reload,
            drafts=self._drafts(),
            device_bytes=self.settings.device_bytes,
        )
        worker.reloads_all = self._reloads_all
        return worker

    def _shard_link(self) -> ShardLink:
        offset, size = self.settings.rank_offset, self.settings.world_size
        assert offset is not None
        assert size is not None
        if offset + self.group.size > size:
            raise InvalidArgument(
                f"deltawire: rank_offset={offset}: {self.group.size} workers are more than the rest of {size} ranks"
            )
        found = lambda: self.worker if isinstance(self.worker, ShardWorker) else None  # noqa: E731
        return ShardLink(self.settings, offset + self.group.rank, self.group.size, found)

    def update(self, version: int | None = None, verify: str | None = None, timeout: float | None = None) -> int:
        """Go to the local version. With a number it is waited for, and the engine waits too: ask for what is there already."""
        if not self.settings.shards or self.worker is None:
            self.attach()
        assert self.worker is not None
        if version is not None or not self.settings.follow:
            self.wait_for(version, self.settings.timeout if timeout is None else timeout)
        reached = self.worker.update(None, verify or self.settings.verify)
        self._host.look()
        return reached

    def prove(self, mode: str = "all") -> dict[str, Any]:
        """What all workers hold against what the version says."""
        self.attach()
        assert self.worker is not None
        return asdict(self.worker.prove(mode))

    def status(self) -> dict[str, Any]:
        """How things are here."""
        report = {} if self.worker is None else asdict(self.worker.report)
        return report | {"pid": os.getpid(), "host_error": self._host.error, "staging_error": self._staging_error}

    def close(self) -> None:
        """Let go of the local folder."""
        self._stop.set()
        self._thread.join(timeout=10)
        if self.worker is not None:
            self.worker.close()
        self._host.close()

    def wait_for(self, version: int | None, timeout: float) -> None:
        """Until the host holds it, on all workers; without a number, the newest of the store."""
        agree(self.group, lambda: self._host.wait_for(version, timeout))

    def _stage_ahead(self) -> None:
        """While the engine serves: what the host has pulled is made ready beside the weights."""
        while not self._stop.wait(0.02):
            worker = self.worker
            if worker is None:
                continue
            try:
                worker.stage()
                self._staging_error = None
            except Exception as error:  # told again by the update that finds nothing staged
                if str(error) != self._staging_error:
                    log.warning("deltawire: staging: %s", error)
                self._staging_error = str(error)
                self._stop.wait(0.5)
