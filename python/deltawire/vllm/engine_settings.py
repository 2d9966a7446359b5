"""Where a vLLM server's settings are, for its workers and its API server alike."""

from __future__ import annotations

from typing import Any

from deltawire.engines.settings import Settings


def settings_of(vllm_config: Any) -> Settings | None:
    """`--additional-config '{"deltawire": {"store": ..., "local": ...}}'`, or DELTAWIRE_STORE and DELTAWIRE_LOCAL."""
    extra = getattr(vllm_config, "additional_config", None)
    values = extra.get("deltawire") if isinstance(extra, dict) else None
    return Settings.of(values) if values else Settings.from_environment()
