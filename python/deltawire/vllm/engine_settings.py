"""Where a vLLM server's settings are, for its workers and its API server alike."""

from __future__ import annotations

from typing import Any

from deltawire.engines.settings import Allowed, Settings


def settings_of(vllm_config: Any) -> Settings | None:
    """`--additional-config '{"deltawire": {"store": ..., "local": ...}}'`, or DELTAWIRE_STORE and DELTAWIRE_LOCAL."""
    values = Allowed.without(_values(vllm_config))
    return Settings.of(values) if values else Settings.from_environment()


def allowed_by(vllm_config: Any) -> Allowed:
    """The same place says what callers of `/init_weight_transfer_engine` may name."""
    return Allowed.of(_values(vllm_config))


def _values(vllm_config: Any) -> dict[str, Any]:
    extra = getattr(vllm_config, "additional_config", None)
    return (extra.get("deltawire") if isinstance(extra, dict) else None) or {}
