"""SGLang: a server that follows a chain by itself, or goes to a version when `/update_weights_from_tensor` says so.

See docs/sglang.md. `plugin` is what SGLang calls in its processes, `scheduler` and `server` are the two halves that it hooks in,
and `load` is the custom weight loader.
"""

from __future__ import annotations

import sys

from deltawire.engines.settings import Settings
from deltawire.engines.sglang.loader import load

__all__ = ["load"]


def register() -> None:
    """Hook in what this process needs. Modules of SGLang it has not imported are left alone: importing them costs seconds."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    follows = Settings.from_environment() is not None
    if follows and "sglang.srt.managers.io_struct" in sys.modules:
        import deltawire.engines.sglang.messages  # noqa: F401, also for the process between the server and several schedulers
    if "sglang.srt.managers.scheduler" in sys.modules:
        from deltawire.engines.sglang import loader, scheduler

        updater = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
        HookRegistry.register(f"{updater}.update_weights_from_tensor", loader.report_outcome, HookType.AFTER)
        if follows:
            scheduler.register()
    if follows:
        # The last call before the HTTP server runs; that module is imported only after plugins are.
        HookRegistry.register("sglang.srt.utils.common.set_uvicorn_logging_configs", _before_serving, HookType.BEFORE)


def _before_serving(*_: object, **__: object) -> None:
    http_server = sys.modules.get("sglang.srt.entrypoints.http_server")
    if http_server is not None:
        from deltawire.engines.sglang.server import follow

        follow(http_server)
