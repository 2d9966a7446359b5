"""What the HTTP server's process and the schedulers say to each other, in SGLang's own channel."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.io_struct import BaseReq, hook_custom_types


class DeltawireReqInput(BaseReq, kw_only=True):  # type: ignore[call-arg]
    """A call for all workers: SGLang gives it to each of them between two steps."""

    call: str
    options: dict[str, Any] = {}


class DeltawireReqOutput(BaseReq, kw_only=True):  # type: ignore[call-arg]
    """One answer for each worker: `{"ok": ...}` or `{"error": words}`."""

    answers: list[dict[str, Any]]


hook_custom_types(DeltawireReqInput, DeltawireReqOutput)
