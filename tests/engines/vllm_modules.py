"""A quantised model of vLLM, real layers and kernels in one process, goes through versions: vllm_modules.py FOLDER FORMAT KIND.

Ends with 0 and the words "as a fresh model" if it is, with 77 and vLLM's own reason if vLLM does not run the format here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="WARNING")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from quantised_trainer import QuantisedTrainer
from vllm import LLM, SamplingParams

import deltawire as dw
from deltawire import _core
from deltawire._internal.stores import store_handle
from deltawire.engines.worker import Worker
from deltawire.engines.vllm.engine import DeltawireEngine

SKIPPED = 77


def new_llm(folder: Path) -> Any:
    options = dict(enforce_eager=True, max_model_len=256, compilation_config={"custom_ops": ["none"]})
    return LLM(str(folder), enable_prefix_caching=False, **options)


def model_of(llm: Any) -> torch.nn.Module:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.model


def answers(llm: Any) -> list[Any]:
    """Tokens and log-probabilities."""
    wanted = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
    outputs = [made.outputs[0] for made in llm.generate(["hello", "what is"], wanted, use_tqdm=False)]
    return [
        (list(made.token_ids), [round(step[token].logprob, 4) for token, step in zip(made.token_ids, made.logprobs, strict=True)])
        for made in outputs
    ]


class Served:
    """The model, and the worker that updates it like in a server."""

    def __init__(self, trainer: QuantisedTrainer) -> None:
        self.trainer = trainer
        self.llm = new_llm(trainer.checkpoint())
        self.model = model_of(self.llm)
        self.load_weights, self.left = self.model.load_weights, None  # tensors before it breaks
        self.model.load_weights = lambda weights: self.load_weights(self._until_it_breaks(weights))
        of_engine = SimpleNamespace(
            _models=[self.model], device=torch.device("cpu"), model_config=self.llm.llm_engine.model_config
        )
        local = trainer.folder / "local"
        self.replica = dw.Replica(trainer.store, local)
        self.replica.pull()
        self.spool = _core.Spool(store_handle(trainer.store), local, accept=dw.Accept())
        self.worker = Worker(self.model, str(local), name="w", reload=lambda _: DeltawireEngine._reload(of_engine, _))
        self.worker.attach()

    def _until_it_breaks(self, weights: Any) -> Any:
        for number, weight in enumerate(weights):
            if number == self.left:
                raise RuntimeError("the loader broke")
            yield weight

    def step(self, names: str, left: int | None = None) -> int:
        version = self.trainer.step(names)
        self.spool.fetch_new(self.replica.version, self.worker.version)
        self.replica.pull()
        self.worker.stage()
        self.left = left
        try:
            return self.worker.update().version
        finally:
            self.left = None
            assert self.trainer.version == version


def main() -> int:
    trainer = QuantisedTrainer(Path(sys.argv[1]), *sys.argv[2:])
    try:
        answers(new_llm(trainer.checkpoint()))
    except Exception as error:
        print(f"vLLM: {str(error).strip().splitlines()[0]}")
        return SKIPPED
    served = Served(trainer)
    before = answers(served.llm)
    for left in (1, 5, 12):  # in a module, between two, and after some were processed
        with pytest.raises(dw.errors.Error, match="the loader broke"):
            served.step("_proj", left)
        assert served.worker.version == 0
        assert answers(served.llm) == before, f"not the old version, after {left} tensors"
    one_expert = ["experts.1.up_proj"] if "moe" in sys.argv else []
    for names in ("", "self_attn.k_proj", "down_proj", "lm_head", *one_expert):
        version = served.step(names)
        assert served.worker.version == version
    assert served.worker.prove().wrong == ()
    ours = answers(served.llm)
    assert ours != before
    fresh = new_llm(trainer.checkpoint())
    assert ours == answers(fresh), (ours, answers(fresh))
    held = dict(served.model.named_parameters())
    for name, theirs in model_of(fresh).named_parameters():
        own = held[name]
        assert (own.dtype, own.shape, own.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), name
        assert torch.equal(own.float(), theirs.float()), name
    print(f"version {version}: as a fresh model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
