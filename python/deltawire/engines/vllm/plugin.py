"""The plugin that vLLM calls in each of its processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from deltawire.engines import versions
from deltawire.engines.settings import Allowed, Settings


def settings_of(vllm_config: Any) -> Settings | None:
    """`--additional-config '{"deltawire": {"store": ..., "local": ...}}'`, or DELTAWIRE_STORE and DELTAWIRE_LOCAL."""
    values = Allowed.without(_values(vllm_config))
    return Settings.of(values) if values else Settings.from_environment()


def allowed_by(vllm_config: Any) -> Allowed:
    """What callers of `/init_weight_transfer_engine` may name, from the same place."""
    return Allowed.of(_values(vllm_config))


def _values(vllm_config: Any) -> dict[str, Any]:
    extra = getattr(vllm_config, "additional_config", None)
    return (extra.get("deltawire") if isinstance(extra, dict) else None) or {}


BACKEND = "deltawire"

# Internals of vLLM that are wrapped here and in `core`, since there are no hooks that work without flags.
_HOOKS = (
    "vllm.distributed.weight_transfer.factory.WeightTransferTrainerFactory",
    "vllm.v1.worker.worker_base.WorkerBase",
    "vllm.v1.worker.gpu_worker.Worker.load_model",
    "vllm.v1.worker.gpu_worker.Worker.sleep",
    "vllm.v1.worker.gpu_worker.Worker.wake_up",
    "vllm.plugins.load_endpoint_plugins",
)
_CORE_HOOKS = tuple(
    f"vllm.v1.engine.core.EngineCore.{name}"
    for name in ("collective_rpc", "set_weight_version", "preprocess_add_request", "add_request")
)


def register() -> None:
    """Register the backend `deltawire`, if this vLLM is supported. May be called several times."""
    from vllm.version import __version__

    is_core = "vllm.v1.engine.core" in sys.modules
    if not versions.is_usable("vllm", __version__, _HOOKS + (_CORE_HOOKS if is_core else ())):
        return
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    _register(WeightTransferEngineFactory, "deltawire.engines.vllm.engine", "DeltawireEngine")
    _register(WeightTransferTrainerFactory, "deltawire.engines.vllm.trainer", "DeltawireTrainer")
    _give_workers_a_call()
    _show_the_draft()
    _tell_of_sleep()
    _add_routes()
    if is_core:
        from deltawire.engines.vllm import core

        core.install()


def _register(factory: Any, module: str, name: str) -> None:
    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, module, name)


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorator: replace a function of vLLM, once. The new one gets the original as its first argument."""

    def install(wrapper: Callable[..., Any]) -> None:
        known = getattr(owner, name)
        if not getattr(known, "has_deltawire", False):

            @wraps(known)
            def call(*args: Any, **options: Any) -> Any:
                return wrapper(known, *args, **options)

            call.has_deltawire = True  # type: ignore[attr-defined]
            setattr(owner, name, call)

    return install


def _give_workers_a_call() -> None:
    """Add methods for `collective_rpc("deltawire", ...)` and `"deltawire_adapter"` to workers."""
    from vllm.v1.worker.worker_base import WorkerBase

    def deltawire(self: Any, call: str, **options: Any) -> Any:
        engine = getattr(self, "weight_transfer_engine", None)
        if engine is None or not hasattr(engine, "call"):
            raise RuntimeError('the server was not started with --weight-transfer-config \'{"backend": "deltawire"}\'')
        return engine.call(call, **options)

    def deltawire_adapter(self: Any, call: str, **options: Any) -> Any:
        from deltawire.engines.vllm import adapter_worker

        return adapter_worker.call(self, call, **options)

    WorkerBase.deltawire, WorkerBase.deltawire_adapter = deltawire, deltawire_adapter


def _show_the_draft() -> None:
    """Give the engine the draft model too, if it is from the same checkpoint (multi-token prediction)."""
    from vllm.v1.worker.gpu_worker import Worker

    @wrap(Worker, "load_model")
    def load_model(known: Any, self: Any, *args: Any, **options: Any) -> Any:
        result = known(self, *args, **options)
        engine, speculation = self.weight_transfer_engine, self.vllm_config.speculative_config
        config = None if speculation is None else speculation.draft_model_config
        if hasattr(engine, "draft") and config is not None and config.model == self.vllm_config.model_config.model:
            engine.draft = self.get_draft_model()
        return result


def _tell_of_sleep() -> None:
    """Tell the engine of sleep and wake-up: weights must not be read while they have no memory."""
    from vllm.v1.worker.gpu_worker import Worker

    @wrap(Worker, "sleep")
    def sleep(known: Any, self: Any, level: int = 1, *args: Any, **options: Any) -> Any:
        if hasattr(self.weight_transfer_engine, "wake"):
            self.weight_transfer_engine.sleep(level)
        return known(self, level, *args, **options)

    @wrap(Worker, "wake_up")
    def wake_up(known: Any, self: Any, tags: list[str] | None = None, *args: Any, **options: Any) -> Any:
        result = known(self, tags, *args, **options)
        if hasattr(self.weight_transfer_engine, "wake") and (tags is None or "weights" in tags):
            self.weight_transfer_engine.wake()
        return result


def _add_routes() -> None:
    """Add our endpoint plugin even if VLLM_PLUGINS does not name it."""
    import vllm.plugins as plugins

    @wrap(plugins, "load_endpoint_plugins")
    def load_endpoint_plugins(known: Any, *args: Any, **options: Any) -> list[Any]:
        from deltawire.engines.vllm.server import ServerPlugin

        found = known(*args, **options)
        return found if any(isinstance(plugin, ServerPlugin) for plugin in found) else [*found, ServerPlugin()]
