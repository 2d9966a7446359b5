"""LoRA adapters in vLLM's API server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vllm.lora.request import LoRARequest

from deltawire.engines.follower import same
from deltawire.engines.vllm.plugin import wrap
from deltawire.engines.vllm.server import call_workers
from deltawire.errors import InvalidArgument


class VllmAdapters:
    """Each version is a separate adapter in vLLM, with its own number, name and path.

    So running requests keep their version, and cached prefixes, which vLLM finds by name and path, are not shared between
    versions. Clients use the plain name for the newest version; answers contain `NAME@VERSION`.
    """

    def __init__(self, client: Any, state: Any) -> None:
        self._client, self._state = client, state
        self._gone: set[int] = set()
        self._guard_requests()

    async def load(self, label: str, folder: Path) -> LoRARequest:
        """Load on all workers or none, between two steps."""
        number = self._models.lora_id_counter.inc(1)
        answers = await self._call("load", label=label, number=number, folder=str(folder))
        try:
            same(answers)
        except RuntimeError:
            await self._call("unload", number=number)
            raise
        return LoRARequest(lora_name=label, lora_int_id=number, lora_path=str(folder))

    async def unload(self, handle: LoRARequest) -> None:
        """Unload on all workers."""
        self._gone.add(handle.lora_int_id)
        same(await self._call("unload", number=handle.lora_int_id))

    def serve(self, name: str, handle: LoRARequest) -> None:
        """Switch the name, atomically."""
        models = self._models
        known = models.lora_requests.get(name)
        if models.is_base_model(name) or (known is not None and not known.lora_name.startswith(f"{name}@")):
            raise InvalidArgument(f"the server already has a model {name}; use another name for the adapter")
        models.lora_requests[name] = handle
        _list_by_name(models)

    def is_served(self, name: str, handle: LoRARequest) -> bool:
        """False if a client has called /v1/unload_lora_adapter, for example."""
        known = self._models.lora_requests.get(name)
        return known is not None and known.lora_int_id == handle.lora_int_id

    def running(self) -> dict[str, int]:
        """Count the running requests of vLLM by adapter."""
        states = self._client.output_processor.request_states.values()
        return Counter(state.lora_name for state in states if state.lora_name is not None)

    @property
    def _models(self) -> Any:
        return self._state.openai_serving_models

    async def _call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        return await call_workers(self._client, "deltawire_adapter", call, **options)

    def _guard_requests(self) -> None:
        """Reject requests for unloaded versions, which would crash the engine."""
        core = self._client.engine_core
        add = core.add_request_async

        async def add_request_async(request: Any) -> None:
            wanted = request.lora_request
            if wanted is not None and wanted.lora_int_id in self._gone:
                raise ValueError(f"{wanted.lora_name} was replaced while the request was read; repeat the request")
            await add(request)

        core.add_request_async = add_request_async


def _list_by_name(models: Any) -> None:
    """Show plain names in /v1/models, instead of names with versions."""

    @wrap(models, "show_available_models")
    async def show_available_models(known: Any) -> Any:
        listed = await known()
        names = {request.lora_name: name for name, request in models.lora_requests.items()}
        for card in listed.data:
            card.id = names.get(card.id, card.id)
        return listed
