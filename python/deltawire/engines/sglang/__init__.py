"""SGLang: a server that follows a chain, or goes to a version on `/update_weights_from_tensor` (docs/sglang.md).

`register` is the plugin, `scheduler` and `server` are hooked into SGLang's processes, and `load` is the custom weight loader.
"""

from __future__ import annotations

import sys

from deltawire.engines import versions
from deltawire.engines.settings import Settings
from deltawire.engines.sglang.loader import load

__all__ = ["load"]

# Functions to hook with SGLang's registry. SGLang would not start if one is missing.
_SERVING = "sglang.srt.utils.common.set_uvicorn_logging_configs"
_UPDATE = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater.update_weights_from_tensor"
_HOOKS = (_SERVING,)
_SCHEDULER_HOOKS = (_UPDATE, "sglang.srt.managers.scheduler.Scheduler.init_request_dispatcher")


def register() -> None:
    """Install the hooks for this process. Does not import modules of SGLang, which takes seconds."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.version import __version__

    is_scheduler = "sglang.srt.managers.scheduler" in sys.modules
    if not versions.is_usable("sglang", __version__, _HOOKS + (_SCHEDULER_HOOKS if is_scheduler else ())):
        return
    follows = Settings.from_environment() is not None
    if follows and "sglang.srt.managers.io_struct" in sys.modules:
        import deltawire.engines.sglang.messages  # noqa: F401, also for the process between server and schedulers
    if is_scheduler:
        from deltawire.engines.sglang import loader, scheduler

        HookRegistry.register(_UPDATE, loader.report_outcome, HookType.AFTER)
        if follows:
            scheduler.register()
    if follows:
        # The last call before the HTTP server runs; its module is imported after plugins.
        HookRegistry.register(_SERVING, _before_serving, HookType.BEFORE)


def _before_serving(*_: object, **__: object) -> None:
    http_server = sys.modules.get("sglang.srt.entrypoints.http_server")
    if http_server is not None:
        from deltawire.engines.sglang.server import follow

        follow(http_server)
