"""Hugging Face trainers: replicas hold what `save_pretrained` would save, bit for bit."""

import copy
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rank_processes import preload, run_script
from test_stores import DictStore

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
safe_open = pytest.importorskip("safetensors").safe_open

from torch_states import tokenizer

import deltawire as dw
from deltawire.trainers.hf import PublishCallback, checkpoint_tensors

pytestmark = pytest.mark.filterwarnings("default")  # theirs, of each other

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64}
MODELS = {
    "llama": transformers.LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=False),
    "qwen3, tied": transformers.Qwen3Config(**SIZES, **HEADS, tie_word_embeddings=True),
    "qwen3-moe": transformers.Qwen3MoeConfig(**SIZES, **HEADS, moe_intermediate_size=16, num_experts=4, decoder_sparse_step=1),
    "gpt2": transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64),
}


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Only our threads: those of `from_pretrained` end late."""
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("deltawire")]


def tiny(kind: str) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(MODELS[kind])


def arguments(folder: Path, **more: Any) -> dict[str, Any]:
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    return {"output_dir": str(folder), "per_device_train_batch_size": 4, "learning_rate": 1e-3, **quiet, **more}


def trainer(model: Any, folder: Path, *callbacks: Any, **more: Any) -> Any:
    tokens = torch.randint(3, 64, (64, 12))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    chosen = transformers.TrainingArguments(**arguments(folder, **more))
    return transformers.Trainer(model, chosen, train_dataset=data, processing_class=tokenizer(), callbacks=list(callbacks))


def saved(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return found


def assert_same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert sorted(mine) == sorted(theirs)
    for name, tensor in theirs.items():
        assert mine[name].dtype == tensor.dtype, name
        assert torch.equal(mine[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), name


def pulled(store: Any, folder: Path) -> dw.reports.PullReport:
    with dw.Replica(store, folder) as replica:
        return replica.pull()


def assert_loads(folder: Path, model: Any) -> None:
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert_same(loaded.state_dict(), model.state_dict())


@pytest.mark.parametrize("kind", MODELS)
def test_names_match_save_pretrained(kind: str, tmp_path: Path, store: str) -> None:
    model = tiny(kind)
    model.save_pretrained(tmp_path / "saved")
    assert_same(checkpoint_tensors(model), saved(tmp_path / "saved"))
    dw.Publisher(store, lambda: checkpoint_tensors(model)).publish()
    pulled(store, tmp_path / "replica")
    assert_same(saved(tmp_path / "replica"), saved(tmp_path / "saved"))


@pytest.mark.parametrize("wait", [True, False])
def test_replica_follows_a_trainer(wait: bool, tmp_path: Path, store: str) -> None:
    model, steps = tiny("qwen3, tied"), []
    callback = PublishCallback(store, every=2, wait=wait, on_version=lambda step, version: steps.append((step, version.number)))
    trainer(model, tmp_path, callback, max_steps=5).train()
    assert steps == [(0, 0), (2, 1), (4, 2), (5, 3)]
    assert callback.version is not None
    assert callback.version.number == 3
    assert pulled(store, tmp_path / "replica").version == 3
    model.save_pretrained(tmp_path / "saved")
    tokenizer().save_pretrained(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} <= {path.name for path in (tmp_path / "replica").iterdir()}
    assert_same(saved(tmp_path / "replica"), saved(tmp_path / "saved"))
    assert_loads(tmp_path / "replica", model)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "replica")("w7 w9").input_ids == [7, 9]


def test_publishes_masters_as_bf16(tmp_path: Path, store: str) -> None:
    model = tiny("llama")
    trainer(model, tmp_path, PublishCallback(store, dtype=torch.bfloat16), max_steps=2).train()
    assert model.dtype == torch.float32
    pulled(store, tmp_path / "replica")
    assert json.loads((tmp_path / "replica/config.json").read_text())["dtype"] == "bfloat16"
    assert_loads(tmp_path / "replica", model.bfloat16())


def test_resumed_training_continues_the_chain(tmp_path: Path, store: str) -> None:
    trainer(tiny("llama"), tmp_path, PublishCallback(store), max_steps=2, save_strategy="steps", save_steps=1).train()
    model = tiny("llama")
    callback = PublishCallback(store)
    trainer(model, tmp_path, callback, max_steps=3).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    chain = dw.Chain(store)
    assert [manifest.full for manifest in chain] == [True] + [False] * (len(chain) - 1)
    pulled(store, tmp_path / "replica")
    assert_loads(tmp_path / "replica", model)


@pytest.mark.parametrize("wait", [True, False])
def test_error_ends_the_training(wait: bool, tmp_path: Path) -> None:
    store, steps = DictStore(), []

    def refuse(call: str, name: str) -> None:
        if call == "put_if_absent":
            raise PermissionError("no more room")

    def told(step: int, version: dw.reports.PublishReport) -> None:
        steps.append(step)
        if version.number == 1:
            store.before = refuse

    callback = PublishCallback(store, wait=wait, on_version=told, on_error="raise")
    with pytest.raises(dw.Error, match="no more room"):
        trainer(tiny("llama"), tmp_path, callback, max_steps=9).train()
    assert steps == [0, 1]
    assert dw.Chain(store).head == 1
    callback.close()  # once more does no harm


class Outage:
    """A store that is unavailable between two steps."""

    def __init__(self, error: type[OSError] = ConnectionError) -> None:
        self.store, self.away, self.error = DictStore(), False, error
        self.store.retries = 0  # type: ignore[misc]
        self.store.before = self.refuse

    def refuse(self, call: str, name: str) -> None:
        if self.away:
            raise self.error("the store is away")

    def between(self, first: int, last: int | None) -> Any:
        """A trainer callback that makes the store unavailable."""
        outage = self

        class Switch(transformers.TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                step = state.global_step + 1
                outage.away = step >= first and (last is None or step < last)

        return Switch()


@pytest.mark.parametrize("error", [ConnectionError, PermissionError])
@pytest.mark.parametrize("wait", [True, False])
def test_waits_out_an_outage(wait: bool, error: type[OSError], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outage, model, steps = Outage(error), tiny("llama"), []
    callback = PublishCallback(outage.store, wait=wait, on_version=lambda step, version: steps.append((step, version.number)))
    trainer(model, tmp_path, outage.between(2, 4), callback, max_steps=6).train()
    # Without `wait` step 1 may be in progress when the store goes away; the next version includes it.
    assert [number for _, number in steps] == list(range(len(steps)))
    assert {0, 4, 5, 6} <= {step for step, _ in steps} <= {0, 1, 4, 5, 6}
    assert steps[-1][0] == 6
    assert callback.version is not None
    assert callback.error is None
    assert "step 2 was not published; the next version includes its changes" in caplog.text
    assert "the store is away" in caplog.text
    pulled(outage.store, tmp_path / "replica")
    assert_loads(tmp_path / "replica", model)


@pytest.mark.parametrize("wait", [True, False])
def test_logs_an_outage_at_the_end(wait: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    callback = PublishCallback(outage.store, wait=wait)
    trainer(tiny("llama"), tmp_path, outage.between(3, None), callback, max_steps=3).train()
    assert isinstance(callback.error, dw.Unavailable)
    assert callback.version is not None
    newest = callback.version.number
    assert newest == 2 or (newest == 1 and not wait)  # the one before may have been on its way
    ends = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage().split(":")[0] for record in ends] == [
        f"the final weights were not published; replicas stay at version {newest}"
    ]


@pytest.mark.parametrize("wait", [True, False])
def test_publishes_the_end_if_the_store_is_back(wait: bool, tmp_path: Path) -> None:
    outage, model = Outage(), tiny("llama")

    class Back(transformers.TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            outage.away = False

    callback = PublishCallback(outage.store, wait=wait)
    trainer(model, tmp_path, outage.between(2, None), Back(), callback, max_steps=3).train()
    assert callback.error is None
    pulled(outage.store, tmp_path / "replica")
    assert_loads(tmp_path / "replica", model)


@pytest.mark.parametrize("wait", [True, False])
def test_ends_without_a_first_version(wait: bool, tmp_path: Path) -> None:
    outage = Outage()
    outage.away = True
    with pytest.raises(dw.Unavailable, match="the store is away"):
        trainer(tiny("llama"), tmp_path, PublishCallback(outage.store, wait=wait), max_steps=3).train()
    outage = Outage(FileExistsError)
    hopeless = trainer(tiny("llama"), tmp_path, outage.between(2, None), PublishCallback(outage.store, wait=wait), max_steps=3)
    with pytest.raises(dw.Conflict, match="the store is away"):
        hopeless.train()


def test_rejects_invalid_options(tmp_path: Path, store: str) -> None:
    with pytest.raises(dw.InvalidArgument, match="every=0"):
        PublishCallback(store, every=0)
    with pytest.raises(dw.InvalidArgument, match="on_error='ignore'"):
        PublishCallback(store, on_error="ignore")
    with pytest.raises(dw.InvalidArgument, match="not as int8"):
        PublishCallback(store, dtype=torch.int8)
    # Publisher options are checked before the training starts.
    with pytest.raises(
        TypeError, match=r"PublishCallback has no option 'threads': write options=dw\.PublishOptions\(limits=dw\.Limits\(threads"
    ):
        PublishCallback(store, threads=1)
    with pytest.raises(TypeError, match="PublishCallback has no option 'group'"):
        PublishCallback(store, group=2)
    model = tiny("llama")
    model.peft_config = {}
    with pytest.raises(dw.Unsupported, match="need `tensors`"):
        trainer(model, tmp_path, PublishCallback(store), max_steps=1).train()


def test_replica_follows_grpo(tmp_path: Path, store: str) -> None:
    datasets = pytest.importorskip("datasets")
    trl = pytest.importorskip("trl")
    model = tiny("qwen3, tied")
    chosen = trl.GRPOConfig(
        **arguments(tmp_path, max_steps=2, learning_rate=1e-3), num_generations=4, max_completion_length=6, temperature=1.0
    )
    data = datasets.Dataset.from_dict({"prompt": ["w5 w6 w7", "w8 w9 w10"] * 4})

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len(set(text.split()))) + 0.1 * number for number, text in enumerate(completions)]

    callback = PublishCallback(store)
    trl.GRPOTrainer(model, reward, args=chosen, train_dataset=data, processing_class=tokenizer(), callbacks=[callback]).train()
    assert len(dw.Chain(store)) == 3
    pulled(store, tmp_path / "replica")
    assert_loads(tmp_path / "replica", model)


def test_publishes_adapters_alone_and_merged(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"]))

    def merged(model: Any) -> dict[str, torch.Tensor]:
        return checkpoint_tensors(copy.deepcopy(model).merge_and_unload())

    for name, tensors in ("alone", peft.get_peft_model_state_dict), ("merged", merged):
        trainer(model, tmp_path, PublishCallback(tmp_path / name, tensors=tensors), max_steps=2).train()
        pulled(tmp_path / name, tmp_path / f"{name}-replica")
        assert (tmp_path / f"{name}-replica/config.json").exists()
        if name == "alone":
            model.save_pretrained(tmp_path / "saved")
            assert_same(saved(tmp_path / "alone-replica"), saved(tmp_path / "saved"))
    assert_loads(tmp_path / "merged-replica", model.merge_and_unload())


def test_publishes_from_several_processes(tmp_path: Path) -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    preload("deltawire.trainers.hf", "torch._dynamo")
    passed, said = run_script(2, __file__, tmp_path / "said", tmp_path)
    assert passed, said
    for case in "ddp", "fsdp":
        chain = dw.Chain(tmp_path / case)
        assert [manifest.full for manifest in chain] == [True, False, False]
        pulled(tmp_path / case, tmp_path / f"{case}-replica")
        assert_same(saved(tmp_path / f"{case}-replica"), saved(tmp_path / f"{case}-saved"))
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f"{case}-replica")


def train_in_ranks(folder: Path) -> None:
    """What ranks run: DDP by the trainer, and FSDP2, which trainers do not do on CPUs, by hand."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = tiny("qwen3, tied")
    trainer(model, folder / "output", PublishCallback(folder / "ddp"), max_steps=2).train()
    first = torch.distributed.get_rank() == 0
    if first:
        model.save_pretrained(folder / "ddp-saved")

    model = tiny("qwen3, tied")
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    callback = PublishCallback(folder / "fsdp")
    for step in range(3):
        now = SimpleNamespace(is_world_process_zero=first, global_step=step)
        (callback.on_step_end if step else callback.on_train_begin)(None, now, None, model=model, processing_class=tokenizer())
        if step < 2:
            tokens = torch.randint(3, 64, (2, 12))
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    callback.on_train_end(None, now, None, model=model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if first:
        whole = tiny("qwen3, tied")
        whole.load_state_dict({**whole.state_dict(), **state})
        whole.save_pretrained(folder / "fsdp-saved")


if __name__ == "__main__":
    train_in_ranks(Path(sys.argv[1]))
