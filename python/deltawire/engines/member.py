"""A worker process of an engine: its `Worker`, its `Host` and its staging thread."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from deltawire import _core
from deltawire._internal.identity import Identity, Wanted
from deltawire._internal.ranks import Group
from deltawire.engines.group import Alone, agree, failed, gather
from deltawire.engines.host import Host, local_identity, look_now
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Reload, Worker

log = logging.getLogger("deltawire")

_LOOK_SECONDS = 0.25  # maximum time between checks for versions to stage


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
        """`reloads_all`: the engine's `reload` needs all tensors of the model."""
        self.settings, self.model, self._reloads_all = settings, model, reloads_all
        self._drafts = drafts  # engines make them after the model
        self.group: Group = group or Alone()
        self.worker: Worker | None = None
        self._name = f"{engine}-{socket.gethostname()}-{os.getpid()}"
        self._reload = reload
        self._staging_error: str | None = None
        self._goal: Identity | None = None  # the version that all workers must stage; None: the newest
        self._may_revert = False  # keep replaced weights until all engines have succeeded
        self._stop = threading.Event()
        self._events = _core.FolderEvents()  # wakes the thread that stages
        self._host = Host(settings)
        self._thread = threading.Thread(target=self._stage_ahead, name="deltawire-stage", daemon=True)
        self._thread.start()

    @property
    def served(self) -> Identity | None:
        """The served version, if known."""
        return None if self.worker is None else self.worker.served

    @property
    def is_suspect(self) -> bool:
        """Whether verification of the served weights has failed."""
        return self.worker is not None and self.worker.report.suspect is not None

    def call(self, call: str, **options: Any) -> dict[str, Any]:
        """`attach`, `stage`, `update`, `revert`, `prove`, `served` or `status`: `{"ok": result}` or `{"error": message}`."""
        calls: dict[str, Callable[..., Any]] = {
            "attach": self.attach, "stage": self.stage, "update": self.update, "revert": self.revert, "prove": self.prove,
            "served": lambda: self.served, "status": self.status,
        }  # fmt: skip
        try:
            return {"ok": calls[call](**options)}
        except Exception as error:
            return failed(call, error)

    def attach(self) -> Identity:
        """Return the served version. The first call compares all weights with the local checkpoint and updates them."""
        if self.worker is None:
            self.worker = self._new_worker()
        if self.worker.served is None:
            try:
                self.worker.attach()
            except BaseException:
                self.worker.close()
                raise
            look_now(self.settings.local)
        assert self.worker.served is not None
        return self.worker.served

    def begin(self, timeout: float) -> None:
        """Wait for a version, then attach."""
        self.wait_for(Wanted(0), timeout, in_checkpoint=True)
        self.attach()

    @property
    def newest(self) -> Identity | None:
        """The version that an update would go to."""
        if self.worker is not None:
            return self.worker.newest
        return local_identity(self.settings.local)

    def stage(self, goal: Sequence[Any]) -> dict[str, Any]:
        """Stage this version, instead of the newest, until it is written. Returns `status` immediately."""
        self._goal = Identity(*goal)
        self._staging_error = None
        self._events.wake()
        return self.status()

    def _new_worker(self) -> Worker:
        worker = Worker(
            self.model,
            self.settings.local,
            name=self._name,
            group=self.group,
            reload=self._reload,
            drafts=self._drafts(),
            device_bytes=self.settings.device_bytes,
        )
        worker.reloads_all, worker.by_boxes = self._reloads_all, self.settings.shards
        return worker

    def update(
        self, wanted: Sequence[Any] = (), verify: str | None = None, timeout: float | None = None, keep: bool = False
    ) -> Identity:
        """Go to the wanted version (default: the local one). Waits for it while the engine is paused.

        `keep`: keep the replaced weights in memory, for `revert`, until the next version is staged.
        """
        goal = Wanted(*wanted)
        self.attach()
        worker = self.worker
        assert worker is not None
        if goal.version is not None or not self.settings.follow:
            goal = self.wait_for(goal, self.settings.timeout if timeout is None else timeout)
        self._may_revert = keep
        try:
            reached = worker.update(goal, verify or self.settings.verify, keep=keep)
        finally:
            self._goal = None
        look_now(self.settings.local)
        self._events.wake()
        return reached

    def revert(self) -> Identity | None:
        """Restore the weights before the last `update(keep=True)`, because another engine of the server failed."""
        try:
            return None if self.worker is None else self.worker.revert()
        finally:
            self._may_revert = False

    def prove(self, mode: str = "all") -> dict[str, Any]:
        """Compare the weights of all workers with the version."""
        self.attach()
        assert self.worker is not None
        return asdict(self.worker.prove(mode))

    def sleep(self, *, loses_weights: bool) -> None:
        """See `Worker.sleep`."""
        if self.worker is not None:
            self.worker.sleep(loses_weights=loses_weights)

    def wake(self) -> None:
        """See `Worker.wake`."""
        if self.worker is not None:
            self.worker.wake()
            self._events.wake()

    def status(self) -> dict[str, Any]:
        """Report the state of this worker."""
        self._may_revert = False  # the caller has got the answers of all engines
        report = {} if self.worker is None else asdict(self.worker.report)
        host = {"host_error": self._host.error, "is_blocked": self._host.is_blocked}
        return report | host | {"pid": os.getpid(), "name": self._name, "staging_error": self._staging_error}

    def close(self) -> None:
        """Stop, and release the local folder."""
        self._stop.set()
        self._events.wake()
        self._thread.join(timeout=10)
        if self.worker is not None:
            self.worker.close()
        self._host.close()

    def wait_for(self, wanted: Wanted, timeout: float, *, in_checkpoint: bool = False) -> Wanted:
        """Wait on all workers until the version (default: the store's newest) is staged or on the host.

        Returns the version that rank 0 has found: workers may see different newest versions.
        """

        def held() -> Identity:
            staged = None if self.worker is None else self.worker.staged
            if wanted.run is not None and wanted.is_met_by(staged):
                assert staged is not None
                return staged
            needs_files = in_checkpoint or (self.worker is not None and self.worker.reads_checkpoint)
            return self._host.wait_for(wanted, timeout, in_checkpoint=needs_files)

        found: Identity = agree(self.group, held)
        (first, *_) = gather(self.group, found)
        return Wanted(first.version if wanted.version is None else wanted.version, first.run, wanted.manifest)

    def _stage_ahead(self) -> None:
        """The thread that stages versions while the engine serves."""
        own, failures = Path(self.settings.local, ".deltawire"), 0
        while not self._stop.is_set():
            self._events.watch(own)  # changes of the checkpoint
            self._events.watch(own / "spool" / "manifests")  # new deltas
            worker, goal = self.worker, self._goal
            # A staged version is kept for the follower, or it would starve if versions arrive faster than they are staged.
            waits = goal is None and self.settings.follow and worker is not None and worker.staged is not None
            if worker is not None and not self._may_revert and not waits:
                words = None
                worker.say()
                try:
                    worker.sum_up()
                    worker.stage(goal)
                    failures = 0
                except Exception as error:  # also raised by the update that finds nothing staged
                    words, failures = str(error), failures + 1
                if words != self._staging_error:
                    if words is not None:
                        log.warning("deltawire: staging: %s", words)
                    self._staging_error = words
                    worker.say(staging_error=words)
            self._events.wait(_LOOK_SECONDS)
            if failures > 1:  # every retry decodes everything again
                self._stop.wait(min(self.settings.interval, _LOOK_SECONDS * 2 ** min(failures, 10)))
