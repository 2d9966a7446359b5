"""Messages between the HTTP server and the schedulers, in SGLang's own channel."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.io_struct import BaseReq, hook_custom_types


class DeltawireReqInput(BaseReq, kw_only=True):  # type: ignore[call-arg]
    """A call for all workers, which handle it between two steps."""

    call: str
    options: dict[str, Any] = {}


class DeltawireReqOutput(BaseReq, kw_only=True):  # type: ignore[call-arg]
    """An answer per worker: `{"ok": result}` or `{"error": message}`."""

    answers: list[dict[str, Any]]


hook_custom_types(DeltawireReqInput, DeltawireReqOutput)
