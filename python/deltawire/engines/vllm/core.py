"""In vLLM's engine core: labels outputs and cached prefixes with the version that computed them."""

from __future__ import annotations

from typing import Any

from deltawire._internal.identity import Identity, salted

_CALLS = ("attach", "update", "revert")  # of a worker, which may change the served version


def install() -> None:
    """Hook the class, once. Its calls run between two steps, so labels match the weights."""
    from vllm.v1.engine.core import EngineCore

    if hasattr(EngineCore, "deltawire_served"):
        return
    EngineCore.deltawire_served = None
    rpc, preprocess, add = EngineCore.collective_rpc, EngineCore.preprocess_add_request, EngineCore.add_request
    label = EngineCore.deltawire_label = EngineCore.set_weight_version

    def collective_rpc(self: Any, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None) -> Any:
        answers = rpc(self, method, timeout, args, kwargs)
        if method == "deltawire" and args and args[0] in _CALLS:
            _note(self, answers)
        elif method == "update_weights" and _is_ours(self):
            _note(self, rpc(self, "deltawire", None, ("served",), None))
        return answers

    def set_weight_version(self: Any, weight_version: str) -> None:
        """Ignore labels of callers once a version is served."""
        if self.deltawire_served is None:
            label(self, weight_version)

    def preprocess_add_request(self: Any, request: Any) -> Any:
        request.cache_salt = salted(request.cache_salt, self.deltawire_served)
        return preprocess(self, request)

    def add_request(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        _salt(request, self.deltawire_served)  # the version may have changed since it was prepared
        return add(self, request, *args, **options)

    EngineCore.collective_rpc = collective_rpc
    EngineCore.set_weight_version = set_weight_version
    EngineCore.preprocess_add_request = preprocess_add_request
    EngineCore.add_request = add_request


def _is_ours(core: Any) -> bool:
    config = core.vllm_config.weight_transfer_config
    return config is not None and config.backend == "deltawire"


def _note(core: Any, answers: list[dict[str, Any]]) -> None:
    """Update the label if all workers serve the same version."""
    served = {tuple(answer["ok"]) for answer in answers if answer.get("ok")}
    if len(served) != 1 or any("error" in answer for answer in answers):
        return
    (identity,) = (Identity(*one) for one in served)
    if identity == core.deltawire_served:
        return
    core.deltawire_served = identity
    core.deltawire_label(str(identity.version))
    for request in core.scheduler.waiting:
        if request.num_computed_tokens == 0 and not request.output_token_ids:
            _salt(request, identity)


def _salt(request: Any, served: Identity | None) -> None:
    salt = salted(request.cache_salt, served)
    if salt != request.cache_salt:
        request.cache_salt, request.block_hashes = salt, []
        request.update_block_hashes()
