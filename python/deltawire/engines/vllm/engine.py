"""vLLM's weight-transfer engine `deltawire`, in each worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.parallel_state import get_world_group
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo

from deltawire._internal.identity import Wanted
from deltawire._internal.ranks import Group
from deltawire.engines.group import Alone
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.engines.vllm.plugin import allowed_by, settings_of
from deltawire.errors import InvalidArgument
from deltawire.torch.reader import ProcessGroup

log = logging.getLogger("deltawire")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """`init_weight_transfer_engine {"init_info": {...}}`: fields of `Settings`."""

    settings: dict[str, Any]


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """`update_weights {"update_info": {...}}`: at least that version (default: the newest) of `run` (default: the store's)."""

    version: int | None = None
    run: str | None = None
    manifest: str | None = None
    verify: str | None = None
    timeout: float | None = None


class DeltawireEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Keeps live weights at a version of a chain. The trainer sends at most the number of a version."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(config, vllm_config, device, model)
        self._member: Member | None = None
        self.draft: torch.nn.Module | None = None  # loaded from the same checkpoint
        settings = settings_of(vllm_config)
        if settings is not None and not settings.adapter:  # adapters do not change the model's weights
            self._begin(settings)

    # ---- called by vLLM

    def parse_init_info(self, init_dict: dict[str, Any]) -> InitInfo:
        """Not validated: init_transfer_engine() raises errors."""
        return InitInfo(init_dict)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Set the chain. Does nothing if called again with the same settings."""
        self._said_once(lambda: self._init(init_info.settings))

    def start_weight_update(self) -> None:
        """Nothing to do: versions are staged while the engine serves."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Go to a version; the caller has paused the engine."""
        self._said_once(lambda: self.receive_weights(self.parse_update_info(update_info)))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """The same, for parsed arguments."""
        wanted = Wanted(update_info.version, update_info.run, update_info.manifest)
        self._the_member.update(wanted, update_info.verify, update_info.timeout)

    def finish_weight_update(self) -> None:
        """Nothing to do."""

    def shutdown(self) -> None:
        """Release the local folder."""
        if self._member is not None:
            self._member.close()
            self._member = None

    def sleep(self, level: int) -> None:
        """Before weights leave the GPU: level 1 keeps them in host memory, level 2 nowhere."""
        if self._member is not None:
            self._member.sleep(loses_weights=level > 1)

    def wake(self) -> None:
        """Weights have memory again."""
        if self._member is not None:
            self._member.wake()

    # ---- called by the API server

    def call(self, call: str, **options: Any) -> Any:
        """`Member.call`; returns errors instead of raising them."""
        if self._member is None:
            return {"error": _NO_STORE}
        return self._member.call(call, **options)

    def _init(self, values: dict[str, Any]) -> None:
        settings = Settings.of({"follow": False} | values)
        if settings.adapter:
            raise InvalidArgument("deltawire: `adapter` must be set when the server starts, in --additional-config")
        if self._member is None:
            allowed_by(self.vllm_config).check(settings)
            self._begin(settings)
        known = self._the_member.settings
        if (settings.source, settings.store, settings.local) != (known.source, known.store, known.local):
            raise InvalidArgument(f"deltawire: this server already follows {known.source} in {known.local}")
        self._the_member.begin(settings.timeout)

    @property
    def _the_member(self) -> Member:
        if self._member is None:
            raise InvalidArgument(_NO_STORE)
        return self._member

    def _begin(self, settings: Settings) -> None:
        self._member = Member(
            settings, self.model, engine="vllm", group=_group(), reload=self._reload, drafts=lambda: self._models[1:]
        )

    @property
    def _models(self) -> list[torch.nn.Module]:
        return [self.model] if self.draft is None else [self.model, self.draft]

    def _said_once(self, call: Callable[[], None]) -> None:
        """Raise a failure, which all workers have, only on the last one.

        vLLM stops reading answers at the first failure, and would take the others for answers to its next call.
        """
        try:
            call()
        except Exception as error:
            world = get_world_group()
            if world.rank_in_group == world.world_size - 1:
                raise
            log.warning("deltawire: %s", error)

    def _reload(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Reload tensors of complete modules with vLLM's layerwise reload."""
        from vllm.model_executor.model_loader.reload import layerwise

        known = list(tensors)
        for model in self._models:
            with _packed_anew(model, self.device), _without_warnings(layerwise.logger):
                try:
                    layerwise.initialize_layerwise_reload(model)
                    model.load_weights(iter(known))
                    layerwise.finalize_layerwise_reload(model, self.model_config)
                except BaseException:  # modules are incomplete; the worker restores them
                    for module in model.modules():
                        layerwise.get_layerwise_info(module).reset()
                    raise


@contextmanager
def _without_warnings(logger: logging.Logger) -> Iterator[None]:
    """Suppress vLLM's warnings about modules that are not reloaded."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _packed_anew(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Pack experts on a CPU again: vLLM 0.32 packs them when it creates the kernel, but not in a reload."""
    methods: list[Any] = [getattr(module, "quant_method", None) for module in model.modules()] if device.type == "cpu" else []
    kernels = [(method, method.moe_kernel) for method in methods if getattr(method, "moe_kernel", None) is not None]
    for method, _ in kernels:
        method.moe_kernel = None
    try:
        yield
    finally:
        for method, kernel in kernels:
            if method.moe_kernel is None:  # not reloaded
                method.moe_kernel = kernel


_NO_STORE = "deltawire: no store is set; see /init_weight_transfer_engine"


def _group() -> Group:
    world = get_world_group()
    return ProcessGroup(world.cpu_group) if world.world_size > 1 else Alone()
