"""In SGLang's HTTP server: follows the chain, and adds routes for operators."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from sglang.srt.utils.auth import AuthLevel

from deltawire._internal.identity import Identity
from deltawire.engines.follower import Follower
from deltawire.engines.routes import add_routes
from deltawire.engines.settings import Settings
from deltawire.engines.sglang.messages import DeltawireReqInput, DeltawireReqOutput

log = logging.getLogger("deltawire")


def follow(http_server: Any) -> None:
    """Add the routes, and a task that runs as long as the server."""
    app, state, settings = http_server.app, http_server.get_global_state(), Settings.from_environment()
    add_routes(app, "docs/sglang.md")
    for route in app.routes:
        if getattr(route, "path", None) in ("/deltawire/prove", "/deltawire/update"):
            route.endpoint._auth_level = AuthLevel.ADMIN_OPTIONAL  # as for /update_weights_from_tensor
    app.state.deltawire = None
    if state is None or settings is None or not getattr(app, "is_single_tokenizer_mode", False):
        log.warning("deltawire: a server with --tokenizer-worker-num over 1 cannot follow a chain")
        return
    begun = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with begun(app) as values:
            follower = Follower(settings, SglangDoor(state.tokenizer_manager))
            app.state.deltawire = follower
            task = asyncio.create_task(follower.run(), name="deltawire")
            try:
                yield values
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    app.router.lifespan_context = lifespan


class SglangDoor:
    """Calls to the schedulers from the HTTP server, in SGLang's own channel.

    It needs no pause: a scheduler handles a call between two steps, and retracts requests and drops caches itself. If another
    caller has paused the server, it stays paused.
    """

    def __init__(self, manager: Any) -> None:
        from sglang.srt.managers.communicator import FanOutCommunicator
        from sglang.srt.runtime_context import get_parallel
        from sglang.utils import TypeBasedDispatcher

        self._manager = manager
        # Of the last update, without waiting for the running step.
        self.paused_seconds: float | None = None
        # `dp_size` before 0.5.22; later, that does not count attention-DP groups.
        parallel = get_parallel()
        self.num_engines: int = parallel.num_dp_ranks if hasattr(parallel, "num_dp_ranks") else parallel.dp_size
        self._ask = FanOutCommunicator(manager._dispatch_to_scheduler, self.num_engines)
        manager._result_dispatcher += TypeBasedDispatcher([(DeltawireReqOutput, self._ask.handle_recv)])

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        """Call all workers, between two steps."""
        self._manager.auto_create_handle_loop()
        # Shielded: the answer of a cancelled call would be taken for that of the next call.
        outputs = await asyncio.shield(self._ask(DeltawireReqInput(call=call, options=options)))
        answers = [answer for output in outputs for answer in output.answers]
        if call == "update":
            self.paused_seconds = max(answer.get("seconds", 0.0) for answer in answers)
        return answers

    async def pause(self, keep_cache: bool) -> None:
        """Part of the update."""

    async def resume(self) -> None:
        """Part of the update."""

    async def set_version(self, served: Identity) -> None:
        """Set SGLang's weight version, which it returns with every output."""
        from sglang.srt.managers.io_struct import UpdateWeightVersionReqInput

        words = UpdateWeightVersionReqInput(new_version=str(served.version), abort_all_requests=False)
        await self._manager.update_weight_version(words)
