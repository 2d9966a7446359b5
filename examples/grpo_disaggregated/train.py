"""The trainer: TRL's AsyncGRPOTrainer, which samples from a vLLM server over HTTP and publishes every step to a store.

`run` starts it. It knows the server's address for samples and the store for weights: nothing else joins the two.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from string import ascii_letters
from urllib.request import Request, urlopen

import torch
import trl
from cpu import stand_in
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from deltawire.trainers.trl import WeightTransfer

LENGTH = 16  # tokens of a completion
PROMPTS = [f"Write letters, {number}." for number in range(16)]
PROBE = list(range(40, 104))  # any tokens will do to compare logprobs


def letters(completions, **_others):
    """The reward: the share of letters in a completion. With a byte tokenizer, chance gives 20 %."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(character in ascii_letters for character in text) / LENGTH for text in texts]


def rounded(pairs):
    """Weights are served as bfloat16, even if the processor lacks bfloat16 instructions and computes in float32."""
    return ((name, tensor.bfloat16().to(tensor.dtype)) for name, tensor in pairs)


class Watched(WeightTransfer):
    """Compares trainer and server after each sync, and records its cost."""

    def __init__(self, store, *, server, model, dtype, records, **options):
        super().__init__(store, base_url=server, dtype=dtype, tensors=rounded, **options)
        self._server, self._records = server, records
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self._before = self._record = None

    def send_weights(self, iterator):
        """Send and measure the time; then compare."""
        pairs, before = list(iterator), self.served
        began = time.perf_counter()
        super().send_weights(iter(pairs))
        self._note(pairs, time.perf_counter() - began, is_new=self.served != before)

    def _note(self, pairs, seconds, is_new):
        status = json.load(urlopen(f"{self._server}/deltawire/status"))
        own, served = self._logprobs_here(pairs), self._logprobs_there()
        error = (own - served).abs().max().item()
        stale = None if self._before is None else (self._before - served).abs().max().item()
        self._before = own
        self._record = {
            "version": self.version.number,
            "reward": None,
            "bytes": self.version.bytes if is_new else 0,
            "full_bytes": sum(2 * tensor.numel() for _, tensor in pairs),
            "density": self.version.density if is_new else None,
            "sync_seconds": seconds,
            "pause_seconds": status["pause_seconds"] if is_new else None,
            "write_seconds": status["workers"][0]["last_pause"]["total"] if is_new else None,
            "served": status["version"],
            "proof": status["workers"][0].get("proof"),
            "logprob_difference": error,
            "logprob_difference_to_the_step_before": stale,
        }
        if not is_new:
            self.rewarded(None)

    def rewarded(self, reward):
        """Record the last published step with its reward from TRL."""
        record = self._record | {"reward": reward}
        self._records.write(json.dumps(record) + "\n")
        self._records.flush()
        print(line(record), flush=True)

    def _logprobs_here(self, pairs):
        """Log-probabilities of the published weights, computed in float32."""
        self._model.load_state_dict(dict(rounded(pairs)))
        with torch.no_grad():
            logits = self._model(torch.tensor([PROBE])).logits[0, :-1]
        return logits.log_softmax(-1).gather(1, torch.tensor(PROBE[1:])[:, None])[:, 0]

    def _logprobs_there(self):
        body = {"model": name_of_the_model(self._server), "prompt": PROBE, "max_tokens": 1, "prompt_logprobs": 0}
        request = Request(f"{self._server}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        found = json.load(urlopen(request))["choices"][0]["prompt_logprobs"][1:]
        return torch.tensor([each[str(token)]["logprob"] for each, token in zip(found, PROBE[1:], strict=True)])


def line(record):
    """One line of output for a sync."""
    if record["density"] is None:
        return f"version {record['version']:>3}  nothing has changed yet; logprobs differ by {record['logprob_difference']:.1e}"
    sizes = f"{record['bytes'] / 1e3:7.1f} kB of {record['full_bytes'] / 1e3:.1f}"
    return (
        f"version {record['version']:>3}  reward {record['reward']:.3f}  {sizes}"
        f"  {100 * record['density']:5.2f} % changed  pause {1e3 * record['pause_seconds']:6.1f} ms"
        f"  sync {record['sync_seconds']:5.2f} s  logprobs differ by {record['logprob_difference']:.1e}"
    )


def name_of_the_model(server):
    """The server's name for the model."""
    return json.load(urlopen(f"{server}/v1/models"))["data"][0]["id"]


class Reward(TrainerCallback):
    """Passes the reward of the published step to the transfer: TRL knows it after the sync."""

    def __init__(self, transfer):
        self._transfer = transfer

    def on_log(self, args, state, control, logs=None, **_others):
        """After a step."""
        if logs and "reward" in logs:
            self._transfer.rewarded(logs["reward"])


def main() -> None:
    """Train, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--dtype", required=True, help="of the server")
    args = parser.parse_args()

    stand_in()
    torch.set_num_threads(1)  # the server has the other core
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    # TRL accepts only the templates that it ships with.
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja").read_text()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    prompts = [[{"role": "system", "content": "."}, {"role": "user", "content": prompt}] for prompt in PROMPTS]
    config = AsyncGRPOConfig(
        output_dir=str(args.out / "trainer"),
        vllm_server_base_url=args.server,
        max_steps=args.steps,
        learning_rate=args.rate,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=LENGTH,
        max_staleness=2,
        max_inflight_tasks=32,
        queue_maxsize=32,
        token_budget=2048,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    with (args.out / "steps.jsonl").open("w") as records:
        transfer = Watched(args.store, server=args.server, model=args.model, records=records, dtype=args.dtype, timeout=120)
        trainer = AsyncGRPOTrainer(
            model=args.model,
            reward_funcs=letters,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            processing_class=tokenizer,
            weight_transfer=transfer,
            callbacks=[Reward(transfer)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
