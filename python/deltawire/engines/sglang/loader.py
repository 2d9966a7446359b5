"""The custom weight loader: `--custom-weight-loader deltawire.engines.sglang.load`. An exception would end SGLang."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from deltawire._internal.identity import Wanted
from deltawire._internal.ranks import Group
from deltawire.engines.group import Alone, failed
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.errors import InvalidArgument, Unsupported
from deltawire.torch.reader import ProcessGroup

log = logging.getLogger("deltawire")

VERSION = "deltawire.version"
"""A tensor of this name with one element requests that version of the store's run, or a later one.

Default: the newest version on the host."""

# Methods of SGLang that keep weights as they are loaded.
_PLAIN_METHODS = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod")

_member: Member | None = None  # of this process
_places: dict[str, int] = {}  # addresses of its parameters when they were mapped
_outcome: dict[str, Any] | None = None  # of the last `load`
_MAX_WAIT = 60.0  # seconds for a requested version: SGLang ends a server whose scheduler hangs

on_version: Callable[[], None] | None = None
"""Called when the version has changed."""


def load(model: torch.nn.Module, named_tensors: Any) -> None:
    """Go to the newest version on this host. `/update_weights_from_tensor` returns the outcome."""
    global _outcome
    try:
        _outcome = _load(model, named_tensors)
    except Exception as error:  # an exception would end the server
        _outcome = failed("load", error)
    if "error" in _outcome:
        log.error("deltawire: %s", _outcome["error"])


def report_outcome(result: Any, *_: Any, load_format: str | None = None, **__: Any) -> tuple[bool, str] | None:
    """Replace SGLang's answer, which is always "Success", by the outcome of `load`."""
    global _outcome
    outcome, _outcome = _outcome, None
    if load_format != "deltawire.engines.sglang.load" or outcome is None:
        return None
    if "error" in outcome:
        return False, f"deltawire: {outcome['error']}"
    return True, f"deltawire: {outcome['ok']}"


def member_of(model: torch.nn.Module) -> Member:
    """The member of this process, for its only model; created on first use."""
    global _member, _places
    if _member is not None and _member.model is not model:
        raise Unsupported("draft models are not updated")
    if _member is None:
        settings = Settings.from_environment()
        if settings is None:
            raise InvalidArgument("DELTAWIRE_STORE and DELTAWIRE_LOCAL must be set in the server's environment")
        _member = Member(
            settings,
            model,
            engine="sglang",
            group=_group(),
            reload=lambda tensors: reload(model, tensors),
            reloads_all=not _is_plain(model),
        )
        _places = _places_of(model)
    return _member


def _load(model: torch.nn.Module, named_tensors: Any) -> dict[str, Any]:
    member = member_of(model)
    if _places_of(model) != _places:
        raise Unsupported(
            "SGLang has moved this model's weights for the update, so they cannot be patched in place; let the server follow "
            "the chain (DELTAWIRE_FOLLOW=1) or reload from disk"
        )
    wanted = [int(tensor.reshape(-1)[0]) for name, tensor in named_tensors or [] if name == VERSION]
    before = member.served
    outcome = member.call("update", wanted=Wanted(next(iter(wanted), None)), timeout=min(_MAX_WAIT, member.settings.timeout))
    if member.served != before and on_version is not None:
        on_version()
    return outcome


def _places_of(model: torch.nn.Module) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in model.named_parameters()}


def reload(model: torch.nn.Module, tensors: Any) -> None:
    """Load tensors into a served model with SGLang's own loader.

    If weights are packed or quantised after loading, `tensors` must be all weights, as in `/update_weights_from_disk`: SGLang
    processes all modules again, and not every module supports that twice.
    """
    from sglang.srt.model_loader.loader import DefaultModelLoader

    if _is_plain(model):
        model.load_weights(tensors)
        return
    if not hasattr(DefaultModelLoader, "restore_weights_before_loading"):
        raise Unsupported("SGLang before 0.5.21 cannot load weights again that it has packed or quantised: restart the server")
    device = next(model.parameters()).device
    DefaultModelLoader.restore_weights_before_loading(model, device)
    model.load_weights(tensors)
    DefaultModelLoader.postprocess_weights(model, device)


def _is_plain(model: torch.nn.Module) -> bool:
    """Whether no weights are packed or quantised after loading."""
    return all(type(method).__name__ in _PLAIN_METHODS for method in _methods(model))


def _methods(model: torch.nn.Module) -> list[Any]:
    return [method for module in model.modules() if (method := getattr(module, "quant_method", None)) is not None]


def _group() -> Group:
    from sglang.srt.distributed.parallel_state import get_tp_group
    from sglang.srt.runtime_context import get_parallel

    if get_parallel().pp_size > 1:
        raise Unsupported("pipeline-parallel servers are reloaded from disk: deltawire follow --notify sglang=URL")
    group = get_tp_group()
    return ProcessGroup(group.cpu_group) if group.world_size > 1 else Alone()
