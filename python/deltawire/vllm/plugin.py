"""What vLLM calls in each of its processes."""

from __future__ import annotations

from typing import Any

BACKEND = "deltawire"


def register() -> None:
    """Make the backend `deltawire` known; called any number of times."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    _register(WeightTransferEngineFactory, "deltawire.vllm.engine", "DeltawireEngine")
    _register(WeightTransferTrainerFactory, "deltawire.vllm.trainer", "DeltawireTrainer")
    _give_workers_a_call()
    _add_routes()


def _register(factory: Any, module: str, name: str) -> None:
    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, module, name)


def _give_workers_a_call() -> None:
    """`collective_rpc("deltawire", ...)` reaches the engine of each worker, and brings back an answer."""
    from vllm.v1.worker.worker_base import WorkerBase

    def deltawire(self: Any, call: str, **options: Any) -> Any:
        engine = getattr(self, "weight_transfer_engine", None)
        if engine is None or not hasattr(engine, "call"):
            raise RuntimeError('the server was not started with --weight-transfer-config \'{"backend": "deltawire"}\'')
        return engine.call(call, **options)

    WorkerBase.deltawire = deltawire


def _add_routes() -> None:
    """Routes of endpoint plugins are added for those that VLLM_PLUGINS names; this backend is asked for by its own flag."""
    import vllm.plugins as plugins

    known = getattr(plugins, "load_endpoint_plugins", None)
    if known is None or getattr(known, "has_deltawire", False):
        return

    def load_endpoint_plugins(*args: Any, **options: Any) -> list[Any]:
        from deltawire.vllm.server import ServerPlugin

        found = known(*args, **options)
        return found if any(isinstance(plugin, ServerPlugin) for plugin in found) else [*found, ServerPlugin()]

    load_endpoint_plugins.has_deltawire = True  # type: ignore[attr-defined]
    plugins.load_endpoint_plugins = load_endpoint_plugins
