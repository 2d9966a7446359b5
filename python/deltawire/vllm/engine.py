"""vLLM's weight-transfer engine `deltawire`: one in each worker."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from vllm.distributed.parallel_state import get_world_group
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo

from deltawire.engines.group import Alone, Group, TorchGroup
from deltawire.engines.host import Host
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Worker
from deltawire.errors import Error, InvalidArgument
from deltawire.vllm.engine_settings import settings_of

log = logging.getLogger("deltawire")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """`init_weight_transfer_engine {"init_info": {...}}`: the names of `deltawire.engines.Settings`."""

    settings: dict[str, Any]


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """`update_weights {"update_info": {...}}`: at least that version, or the newest."""

    version: int | None = None
    verify: str | None = None
    timeout: float | None = None


class DeltawireEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Live weights at a version of a chain. Nothing comes from the trainer but the number of a version, if that."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(config, vllm_config, device, model)
        self._settings: Settings | None = None
        self._host: Host | None = None
        self._worker: Worker | None = None
        self._stop = threading.Event()
        self._staging_error: str | None = None
        settings = settings_of(vllm_config)
        if settings is not None:
            self._begin(settings)

    # ---- what vLLM calls

    def parse_init_info(self, init_dict: dict[str, Any]) -> InitInfo:
        """What is wrong with it is said by init_transfer_engine()."""
        return InitInfo(init_dict)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Name the chain. Again with the same words: nothing happens."""
        self._said_once(lambda: self._init(init_info.settings))

    def _init(self, values: dict[str, Any]) -> None:
        settings = Settings.of({"follow": False} | values)
        if self._settings is not None and (settings.store, settings.local) != (self._settings.store, self._settings.local):
            raise InvalidArgument(f"deltawire: this server follows {self._settings.store} in {self._settings.local} already")
        if self._settings is None:
            self._begin(settings)
        self._attached()

    def start_weight_update(self) -> None:
        """Nothing is prepared here: that was done while the engine served."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Go to a version; the caller has paused the engine."""
        self._said_once(lambda: self.receive_weights(self.parse_update_info(update_info)))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """The same, from typed words."""
        self._update(update_info.version, update_info.verify, update_info.timeout)

    def finish_weight_update(self) -> None:
        """Everything is done."""

    def shutdown(self) -> None:
        """Let go of the local folder."""
        self._stop.set()
        if self._worker is not None:
            self._worker.close()
        if self._host is not None:
            self._host.close()
            self._host = None

    # ---- what the server's half calls

    def call(self, call: str, **options: Any) -> Any:
        """`status`, `attach`, `update` or `prove`, with an answer instead of an exception."""
        calls = {"status": self._status, "attach": self._attached, "update": self._update, "prove": self._prove}
        try:
            return {"ok": calls[call](**options)}
        except Exception as error:  # an answer on every worker, whatever happens
            if not isinstance(error, Error):
                log.exception("deltawire: %s", call)
            return {"error": f"{type(error).__name__}: {error}"}

    def _said_once(self, call: Callable[[], None]) -> None:
        """A failure of all workers is raised by the last of them.

        vLLM stops to read answers at the first failure: those of workers behind it would be taken for answers to the next call.
        """
        try:
            call()
        except Exception as error:
            world = get_world_group()
            if world.rank_in_group == world.world_size - 1:
                raise
            log.warning("deltawire: %s", error)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self._host = Host(settings)
        threading.Thread(target=self._stage_ahead, name="deltawire-stage", daemon=True).start()

    def _attached(self) -> int:
        """The version that is served. The first time all weights are compared with the local checkpoint."""
        if self._settings is None or self._host is None:
            raise InvalidArgument("deltawire: no store was named; see /init_weight_transfer_engine")
        if self._worker is None:
            host, timeout = self._host, self._settings.timeout
            worker = Worker(
                self.model,
                self._settings.local,
                name=f"vllm-{socket.gethostname()}-{os.getpid()}",
                group=_group(),
                reload=self._reload,
                device_bytes=self._settings.device_bytes,
            )
            worker.agree(lambda: host.wait_for(0, timeout))
            worker.attach()
            self._worker = worker
            self._host.look()
        assert self._worker.version is not None
        return self._worker.version

    def _update(self, version: int | None = None, verify: str | None = None, timeout: float | None = None) -> int:
        self._attached()
        assert self._settings is not None
        assert self._host is not None
        assert self._worker is not None
        if version is not None or not self._settings.follow:
            host, seconds = self._host, self._settings.timeout if timeout is None else timeout
            self._worker.agree(lambda: host.wait_for(version, seconds))
        reached = self._worker.update(None, verify or self._settings.verify)
        self._host.look()
        return reached

    def _prove(self, mode: str = "all") -> dict[str, Any]:
        self._attached()
        assert self._worker is not None
        return asdict(self._worker.prove(mode))

    def _status(self) -> dict[str, Any]:
        report = {} if self._worker is None else asdict(self._worker.report)
        host = self._host
        return report | {
            "pid": os.getpid(),
            "host_error": None if host is None else host.error,
            "staging_error": self._staging_error,
        }

    def _stage_ahead(self) -> None:
        """While the engine serves: what the host has pulled is made ready beside the weights."""
        while not self._stop.wait(0.02):
            worker = self._worker
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

    def _reload(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        """As vLLM reloads weights that are not kept as they are: complete modules, processed, put in their old place."""
        from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload, initialize_layerwise_reload

        initialize_layerwise_reload(self.model)
        try:
            self.model.load_weights(tensors)
        finally:
            finalize_layerwise_reload(self.model, self.model_config)


def _group() -> Group:
    world = get_world_group()
    return TorchGroup(world.cpu_group) if world.world_size > 1 else Alone()
