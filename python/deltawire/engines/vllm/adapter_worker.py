"""LoRA adapters in a worker of vLLM: loads those that fit the served model. Returns errors instead of raising them.

vLLM silently loads adapters of smaller models, and silently skips layers that the model does not have. If one of several workers
raises, vLLM stops reading answers, and takes the remaining ones for answers to its next call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from deltawire.engines.adapters import WEIGHTS
from deltawire.errors import InvalidArgument


def call(worker: Any, call: str, **options: Any) -> dict[str, Any]:
    """`load` or `unload`."""
    try:
        return {"ok": _load(worker, **options) if call == "load" else _unload(worker, **options)}
    except Exception as error:  # the server reports it
        return {"error": str(error) or type(error).__name__}


def _load(worker: Any, label: str, number: int, folder: str) -> bool:
    from vllm.lora.request import LoRARequest

    manager = _manager(worker)
    for words in misfits(manager, Path(folder), whole_model=worker.vllm_config.parallel_config.pipeline_parallel_size == 1):
        raise InvalidArgument(f"{label} does not fit the served model: {words}")
    try:
        loaded = worker.add_lora(LoRARequest(lora_name=label, lora_int_id=number, lora_path=folder))
    except Exception:
        worker.remove_lora(number)  # frees its slot
        raise
    if not loaded:
        raise RuntimeError(f"vLLM did not load {label}")
    return True


def _unload(worker: Any, number: int) -> bool:
    return bool(worker.remove_lora(number))


def _manager(worker: Any) -> Any:
    known = getattr(worker.model_runner, "lora_manager", None)
    if known is None:
        raise InvalidArgument("the server was started without --enable-lora")
    return known._adapter_manager


def misfits(manager: Any, folder: Path, *, whole_model: bool) -> Iterator[str]:
    """Why an adapter does not fit the model. With `whole_model`, all of its modules must be on this worker."""
    from vllm.lora.utils import is_base_embedding_weights, parse_fine_tuned_lora_name

    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    renames = None if mapper is None else mapper.get_rename_mapper()
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            if is_base_embedding_weights(name) or ".lora_" not in name or ".experts" in name:
                continue  # vLLM's loader handles these itself
            module, is_a = parse_fine_tuned_lora_name(name, renames)
            layer, part = _layer_of(manager, module)
            if layer is None:
                if whole_model:
                    yield f"the model has no module {module} that supports LoRA"
                continue
            wanted = _sizes(layer, part)
            shape = list(file.get_slice(name).get_shape())
            size = shape[1] if is_a else shape[0]
            if wanted is not None and size != wanted[0 if is_a else 1]:
                yield f"{name} has shape {shape}, but {module} has {wanted[0]} inputs and {wanted[1]} outputs"


def _layer_of(manager: Any, module: str) -> tuple[Any, int | None]:
    """The layer of a module, and which part of a fused layer it is, if any."""
    if module in manager.modules:
        return manager.modules[module], None
    parent, dot, leaf = module.rpartition(".")
    for packed, parts in manager.packed_modules_mapping.items():
        if leaf in parts and f"{parent}{dot}{packed}" in manager.modules:
            return manager.modules[f"{parent}{dot}{packed}"], parts.index(leaf)
    return None, None


def _sizes(layer: Any, part: int | None) -> tuple[int, int] | None:
    """Numbers of inputs and outputs over all workers; None: unknown."""
    base: Any = getattr(layer, "base_layer", None)
    into, out = getattr(base, "input_size", None), getattr(base, "output_size", None)
    if into is None or out is None:
        return None
    if part is None:
        return into, out
    if hasattr(base, "total_num_kv_heads"):  # heads shared by workers count once
        keys, values = base.total_num_kv_heads * base.head_size, base.total_num_kv_heads * base.v_head_size
        return into, (base.total_num_heads * base.head_size, keys, values)[part]
    outs = getattr(base, "output_sizes", None)
    return None if outs is None or part >= len(outs) else (into, outs[part])
