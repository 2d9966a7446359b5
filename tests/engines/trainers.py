"""A trainer as engines see it: checkpoints of tiny models, and their versions in a chain."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from servers import cpu_has_bfloat16
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

import deltawire as dw

DTYPE = torch.bfloat16 if cpu_has_bfloat16() else torch.float16
SHAPE = dict(
    vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, intermediate_size=256, max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
)  # fmt: skip


def make_model(folder: Path, kind: str = "qwen3", *, tied: bool = False, dtype: torch.dtype = DTYPE, **shape: int) -> Path:
    """A random model with a byte tokenizer; `shape` overrides the tiny default."""
    torch.manual_seed(0)
    shape = SHAPE | shape
    if kind == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=tied))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=tied))
    elif kind == "mimo":
        model = Qwen2ForCausalLM(Qwen2Config(**shape, tie_word_embeddings=tied))
    else:
        moe = dict(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**(moe | shape), tie_word_embeddings=tied))
    model.to(dtype).save_pretrained(folder)
    if kind == "mimo":
        _add_prediction(folder, model.config)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    """One token for each byte."""
    vocabulary = {"<s>": 0, "</s>": 1}
    vocabulary |= {letter: number + 2 for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def _add_prediction(folder: Path, config: Any) -> None:
    """MiMo's layer that predicts one more token: a layer of the model, with its connections."""
    weights, size = load_file(folder / "model.safetensors"), config.hidden_size
    layer = {name.partition("layers.0.")[2]: tensor for name, tensor in weights.items() if "layers.0." in name}
    layer |= {f"{name}_layernorm.weight": layer["input_layernorm.weight"] for name in ("token", "hidden", "final")}
    layer["input_proj.weight"] = torch.randn(size, 2 * size).to(layer["input_layernorm.weight"].dtype) / size
    weights |= {f"model.mtp_layers.0.{name}": tensor.clone() for name, tensor in layer.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    values |= {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    values["auto_map"] = {"AutoConfig": "configuration_mimo.MiMoConfig"}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "configuration_mimo.py").write_text(
        "from transformers import Qwen2Config\n\n\nclass MiMoConfig(Qwen2Config):\n    model_type = 'mimo'\n"
    )


class Trainer:
    """Publishes versions of a model. `folder` is the trainer's checkpoint of the newest one."""

    def __init__(self, folder: Path, store: Any, **options: Any) -> None:
        self.folder, self.store = folder, store
        self.weights = load_file(folder / "model.safetensors")
        self._publisher = dw.Publisher(store, **options)
        self.version = self._publisher.publish(
            self.weights, extra_files=sorted([*folder.glob("*.json"), *folder.glob("*.py")])
        ).number

    def step(self, share: float = 0.02, names: str = "") -> int:
        """Change some weights a little, like a step of an optimizer."""
        generator = torch.Generator().manual_seed(1000 + self.version)
        for name, tensor in self.weights.items():
            if names in name:
                bits = tensor.view(torch.int16)
                bits ^= (torch.rand(tensor.shape, generator=generator) < share).to(torch.int16) * 9
        self.version = self._publisher.publish(self.weights).number
        self.save()
        return self.version

    def save(self) -> None:
        save_file(self.weights, self.folder / "model.safetensors", metadata={"format": "pt"})

    def checkpoint(self, folder: Path) -> Path:
        """A copy of the current checkpoint."""
        shutil.copytree(self.folder, folder)
        return folder

    def close(self) -> None:
        self._publisher.close()


def new_trainer(
    folder: Path, kind: str = "qwen3", *, tied: bool = False, shape: dict[str, int] | None = None, **options: Any
) -> Trainer:
    """A model, a store beside it, and the host's copy of version 0."""
    make_model(folder / "trainer", kind, tied=tied, **shape or {})
    trainer = Trainer(folder / "trainer", str(folder / "store"), **options)
    with dw.Replica(trainer.store, folder / "local") as replica:
        replica.pull()
    return trainer


class ServingTrainer(Trainer):
    """Its chain is in its own folder, served over HTTP; with `group` versions also go through a process group."""

    def __init__(self, folder: Path, chain: Path, group: bool, token: str) -> None:
        self._chain, self._group, self._token, self._address, self._port = chain, group, token, "127.0.0.1:0", 0
        super().__init__(folder, self._serve())

    def settings(self) -> dict[str, Any]:
        """The settings of the engine that follows."""
        named: dict[str, Any] = {"store": f"http://{self._address}", "token": self._token, "interval": 1}
        if self._group:
            named |= {"transport": "group", "master_address": "127.0.0.1", "master_port": self._port}
            named |= {"world_size": 2, "rank_offset": 1}
        return named

    def joined(self) -> None:
        """Wait until the engine is in the group."""
        if self._group:
            self._ends[-1].wait(120)

    def restart(self) -> None:
        """Restart like after a crash: all connections are closed, and the addresses stay the same."""
        self.close()
        self._publisher = dw.Publisher(self._serve())

    def close(self) -> None:
        super().close()
        for one in reversed(self._ends):
            one.close()

    def _serve(self) -> Any:
        server = dw.serve(self._chain, self._address, token=self._token)
        self._address, self._ends = server.url.removeprefix("http://"), [server]
        if not self._group:
            return str(self._chain)
        from deltawire.torch import Broadcast, Rendezvous

        if not self._port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
        here = Rendezvous(master_address="127.0.0.1", master_port=self._port, world_size=2, rank=0)
        self._ends.append(Broadcast(here, str(self._chain)))
        return self._ends[-1].store


def serving_trainer(folder: Path, *, group: bool, token: str, dtype: torch.dtype = DTYPE) -> ServingTrainer:
    """A model, and the host's copy of version 0."""
    make_model(folder / "trainer", dtype=dtype)
    trainer = ServingTrainer(folder / "trainer", folder / "of-the-trainer", group, token)
    with dw.Replica(folder / "of-the-trainer", folder / "local") as replica:
        replica.pull()
    return trainer


def receive_versions(trainer: ServingTrainer, server: Callable[[], Any], outputs: Callable[[Any], Any]) -> Any:
    """A server of two workers follows while the trainer, then the server, starts again. Returns its last outputs."""

    def assert_served(running: Any, version: int) -> None:
        status = running.wait_for(version)
        proven = running.post("/deltawire/prove")
        assert (proven["version"], proven["wrong"], len(status["workers"])) == (version, [], 2) and proven["num_tensors"] > 0

    with server() as running:
        running.wait("/deltawire/ready", 120)
        trainer.joined()
        assert_served(running, trainer.step())
        trainer.restart()  # the server joins again by itself
        trainer.joined()
        assert_served(running, trainer.step())
        running.stop(signal.SIGKILL)
    for _ in range(3):
        trainer.step()
    with server() as again:
        assert_served(again, trainer.version)
        assert_served(again, trainer.step())
        return outputs(again)
