"""SGLang: a server that follows a chain by itself, or goes to a version when `/update_weights_from_tensor` says so.

See docs/sglang.md. `plugin` is what SGLang calls in its processes, `scheduler` and `server` are the two halves that it hooks in,
and `load` is the custom weight loader.
"""

from __future__ import annotations

import sys

from deltawire.engines import versions
from deltawire.engines.settings import Settings
from deltawire.engines.sglang.loader import load

__all__ = ["load"]

# What is hooked into, by SGLang's own registry. Where one is missing SGLang would not start.
_SERVING = "sglang.srt.utils.common.set_uvicorn_logging_configs"
_UPDATE = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater.update_weights_from_tensor"
_HOOKS = (_SERVING,)
_SCHEDULER_HOOKS = (_UPDATE, "sglang.srt.managers.scheduler.Scheduler.init_request_dispatcher")


def register() -> None:
    """Hook in what this process needs. Modules of SGLang it has not imported are left alone: importing them costs seconds."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.version import __version__

    is_scheduler = "sglang.srt.managers.scheduler" in sys.modules
    if not versions.is_usable("sglang", __version__, _HOOKS + (_SCHEDULER_HOOKS if is_scheduler else ())):
        return
    follows = Settings.from_environment() is not None
    if follows and "sglang.srt.managers.io_struct" in sys.modules:
        import deltawire.engines.sglang.messages  # noqa: F401, also for the process between the server and several schedulers
    if is_scheduler:
        from deltawire.engines.sglang import loader, scheduler

        HookRegistry.register(_UPDATE, loader.report_outcome, HookType.AFTER)
        if follows:
            scheduler.register()
    if follows:
        # The last call before the HTTP server runs; that module is imported only after plugins are.
        HookRegistry.register(_SERVING, _before_serving, HookType.BEFORE)


def _before_serving(*_: object, **__: object) -> None:
    http_server = sys.modules.get("sglang.srt.entrypoints.http_server")
    if http_server is not None:
        from deltawire.engines.sglang.server import follow

        follow(http_server)
