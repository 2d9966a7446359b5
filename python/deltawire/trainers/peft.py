"""LoRA adapters of PEFT models, as PEFT saves them: what `Publisher(store, model, adapter=True)` publishes (docs/lora.md)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from deltawire.errors import InvalidArgument, Unsupported, missing_extra

try:
    import torch
    from peft import PeftModel, PeftType, get_peft_model_state_dict
except ImportError as error:
    raise missing_extra(error, "peft") from None

from deltawire.torch.state import unwrapped

CONFIG = "adapter_config.json"


class Adapter:
    """An adapter of a model: its current tensors and configuration."""

    def __init__(self, model: Any, name: str | None = None) -> None:
        """The adapter `name`; None: the active one."""
        model = unwrapped(model) if isinstance(model, torch.nn.Module) else model
        if not isinstance(model, PeftModel):
            raise InvalidArgument(f"adapter: needs a PEFT model, not {type(model).__name__}; see peft.get_peft_model")
        name = model.active_adapter if name is None else name
        if not isinstance(name, str) or name not in model.peft_config:
            raise InvalidArgument(f"adapter {name!r}: the model has {', '.join(model.peft_config)}")
        if model.peft_config[name].peft_type != PeftType.LORA:
            raise Unsupported(f"adapter {name}: is {model.peft_config[name].peft_type}; engines serve only LORA")
        self._model, self._name = model, name
        self._with_embeddings: bool | None = None
        self._extra: list[str | os.PathLike[str]] = []
        self._folder = tempfile.mkdtemp(prefix="deltawire-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors under the names of `save_pretrained`, tied ones under each name. Nothing is copied."""
        if self._with_embeddings is None:  # "auto" queries the Hugging Face hub: decide only once
            everything, without = self._read("auto"), self._read(False)
            self._with_embeddings = everything.keys() != without.keys()
            return list(everything.items())
        return list(self._read(self._with_embeddings).items())

    def _read(self, with_embeddings: bool | Literal["auto"]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = get_peft_model_state_dict(
            self._model, adapter_name=self._name, save_embedding_layers=with_embeddings
        )
        return found

    def files(self, extra: Sequence[str | os.PathLike[str]] | None) -> list[str | os.PathLike[str]]:
        """`adapter_config.json` and extra files; None: the last extra files, unchanged."""
        if extra is not None:
            self._extra = [self._kept(file) for file in extra]
        return [self.config_file(), *self._extra]

    def _kept(self, file: str | os.PathLike[str]) -> str | os.PathLike[str]:
        copies = Path(self._folder, "extra")
        copies.mkdir(exist_ok=True)
        try:
            return shutil.copyfile(file, copies / Path(file).name)
        except OSError:
            return file  # the publisher reports what is wrong with it

    def config_file(self) -> Path:
        """`adapter_config.json`, the same bytes for the same settings in every process."""
        path = Path(self._folder, CONFIG)
        path.write_text(json.dumps(self.config(), indent=2, sort_keys=True) + "\n")
        return path

    def config(self) -> dict[str, Any]:
        """The configuration that `save_pretrained` writes, with sorted sets."""
        if self._name not in self._model.peft_config:
            raise InvalidArgument(f"adapter {self._name}: the model no longer has this adapter; open a publisher for another")
        config = dict(self._model.peft_config[self._name].to_dict())
        config["inference_mode"] = True
        base = self._model.get_base_model()
        config["base_model_name_or_path"] = config.get("base_model_name_or_path") or getattr(base, "name_or_path", None) or None
        if config.get("task_type") is None:  # PEFT then needs the class of the model
            config["auto_mapping"] = {"base_model_class": type(base).__name__, "parent_library": type(base).__module__}
        return {key: _plain(value) for key, value in config.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return {str(key): _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
