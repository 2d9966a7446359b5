"""In SGLang's scheduler processes, which hold the weights: handles calls of the server between two steps."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from deltawire._internal.identity import Identity, salted
from deltawire.engines.group import agree, failed, gather
from deltawire.engines.member import Member
from deltawire.engines.sglang import loader
from deltawire.engines.sglang.messages import DeltawireReqInput, DeltawireReqOutput

log = logging.getLogger("deltawire")

_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
_NAMESPACE = "_maybe_namespace_elastic_radix_cache"  # by which SGLang separates cached prefixes


def register() -> None:
    """Hooks of a scheduler process."""
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{_SCHEDULER}.init_request_dispatcher", _take_calls, HookType.AFTER)
    HookRegistry.register(f"{_SCHEDULER}.__init__", _attach, HookType.AFTER)
    if hasattr(Scheduler, _NAMESPACE):
        HookRegistry.register(f"{_SCHEDULER}.{_NAMESPACE}", _salt, HookType.AFTER)


def _take_calls(_: Any, scheduler: Any) -> None:
    from sglang.utils import TypeBasedDispatcher

    scheduler._request_dispatcher += TypeBasedDispatcher([(DeltawireReqInput, lambda request: _answer(scheduler, request))])


def _attach(_: Any, scheduler: Any, *__: Any, **___: Any) -> None:
    """Attach after the model is loaded and processed, before requests are served."""
    if getattr(scheduler, "draft_worker", None) is not None:
        log.warning("deltawire: the draft model is not updated; fewer of its tokens will be accepted")
    loader.on_version = lambda: _note_version(scheduler)
    answer = _call(scheduler, "attach", {})
    if "error" in answer:  # the follower retries and reports it
        log.warning("deltawire: %s", answer["error"])


def _answer(scheduler: Any, request: DeltawireReqInput) -> DeltawireReqOutput:
    answer = _call(scheduler, request.call, request.options)
    return DeltawireReqOutput(answers=_all_answers(answer))


def _all_answers(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of all workers: only the first one can reply to the server."""
    try:
        return gather(loader._group(), answer)
    except Exception as error:
        return [answer if "error" in answer else {"error": str(error)}]


def _call(scheduler: Any, call: str, options: dict[str, Any]) -> dict[str, Any]:
    """Call the member. An exception would end the server."""
    try:
        member = loader.member_of(scheduler.tp_worker.model_runner.model)
        if call not in ("update", "revert"):
            return member.call(call, **options)
        began = time.perf_counter()
        with _stopped(scheduler, member):
            answer = member.call(call, **options)
        return answer | {"seconds": time.perf_counter() - began}
    except Exception as error:
        return failed(call, error)


@contextlib.contextmanager
def _stopped(scheduler: Any, member: Member) -> Iterator[None]:
    """Around an update between two steps: wait for the GPU, and drop caches if needed."""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    before, was_paused = member.served, scheduler._engine_paused
    # All workers decide the same, even if one sees the new version later. Caches of wrong weights are dropped.
    gathered = gather(member.group, (member.newest != before, member.is_suspect))
    is_suspect = any(suspect for _, suspect in gathered)
    keep = member.settings.keep_cache and hasattr(type(scheduler), _NAMESPACE) and not is_suspect
    retracted = not keep and (is_suspect or any(is_new for is_new, _ in gathered))
    if retracted:
        agree(member.group, lambda: scheduler.pause_generation(PauseGenerationReqInput(mode="retract")))
    try:
        _wait_for_device(member)
        yield
        if member.served != before or is_suspect:
            _note_version(scheduler)
            if not keep and not retracted:  # the version arrived during the call
                scheduler.pause_generation(PauseGenerationReqInput(mode="retract"))
                retracted = True
            if not keep and not _drop_caches(scheduler):
                log.warning("deltawire: cannot drop the cached prefixes of %s", before)
    finally:
        if retracted and not was_paused:
            scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))


def _drop_caches(scheduler: Any) -> bool:
    """Before 0.5.21, SGLang drops no caches while requests wait. Those that hold none need not prevent it."""
    waiting = scheduler.waiting_queue
    scheduler.waiting_queue = [request for request in waiting if request.kv.holds_kv]
    try:
        return bool(scheduler.flush_cache(empty_cache=False))
    finally:
        scheduler.waiting_queue = waiting


def _wait_for_device(member: Member) -> None:
    import torch

    device = next(member.model.parameters()).device
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def _served() -> Identity | None:
    return None if loader._member is None else loader._member.served


def _salt(_: Any, scheduler: Any, request: Any) -> None:
    request.extra_key = salted(request.extra_key, _served())


def _note_version(scheduler: Any) -> None:
    """Label tokens with the new version. Requests that have not started must not reuse prefixes of the old one."""
    served = _served()
    if served is None:
        return
    scheduler.record_weight_version_change(new_version=str(served.version))
    for request in scheduler.waiting_queue:
        if not request.output_ids and not request.kv.holds_kv:
            request.extra_key = salted(request.extra_key, served)
