"""LoRA adapters: replicas hold what PEFT saves, and unfit adapters are refused before anything changes."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file
from torch_states import tokenizer

import deltawire as dw
from deltawire._internal.identity import Wanted
from deltawire.engines.adapters import Stage, check_adapter, prove_adapter
from deltawire.engines.settings import Settings
from deltawire.trainers.peft import Adapter

pytestmark = pytest.mark.filterwarnings("default")  # PEFT's, of what it decides

CLI = Path(__file__).parents[3] / "build" / "deltawire"


def tiny(tied: bool = False):
    torch.manual_seed(0)
    shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, intermediate_size=48, tie_word_embeddings=tied))


def with_lora(rank: int = 4, tied: bool = False, **options: object):
    options = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, "task_type": "CAUSAL_LM"} | options
    return peft.get_peft_model(tiny(tied), peft.LoraConfig(r=rank, lora_alpha=8, **options))


def step(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.01 * torch.randn_like(parameter)


@pytest.fixture
def model():
    return with_lora()


def pulled(store: str, folder: Path, **options: object) -> Path:
    with dw.Replica(store, folder, **options) as replica:
        return replica.pull().path


def same_as_saved(model: torch.nn.Module, folder: Path, tmp_path: Path, name: str = "default") -> None:
    saved = tmp_path / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    model.save_pretrained(saved, selected_adapters=[name])
    saved = saved if name == "default" else saved / name
    want, got = load_file(saved / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    assert want.keys() == got.keys()
    assert all(torch.equal(want[key], got[key]) for key in want)
    configs = [json.loads((place / "adapter_config.json").read_text()) for place in (saved, folder)]
    for config in configs:
        config["target_modules"].sort()
    assert configs[0] == configs[1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"tied": True, "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
        {"tied": True, "target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    ],
    ids=str,
)
def test_replica_equals_what_peft_saves(tmp_path, options):
    model, store = with_lora(**options), str(tmp_path / "store")
    with dw.Publisher(store, model, adapter=True) as publisher:
        for _ in range(3):
            publisher.publish()
            folder = pulled(store, tmp_path / "local")
            files = sorted(path.name for path in folder.iterdir() if path.is_file())
            assert files == ["adapter_config.json", "adapter_model.safetensors"]
            same_as_saved(model, folder, tmp_path)
            step(model)


def test_peft_loads_a_replica_with_the_same_outputs(model, tmp_path):
    store = str(tmp_path / "store")
    dw.Publisher(store, model, adapter=True).publish()
    loaded = peft.PeftModel.from_pretrained(tiny(), pulled(store, tmp_path / "local"))
    tokens = torch.arange(12).reshape(1, 12)
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, model.eval()(tokens).logits)


def test_shared_halves_are_published_twice(model, tmp_path):
    attention, store = model.base_model.model.model.layers[0].self_attn, str(tmp_path / "store")
    attention.v_proj.lora_A["default"] = attention.q_proj.lora_A["default"]
    dw.Publisher(store, model, adapter=True).publish()
    folder = pulled(store, tmp_path / "local")
    same_as_saved(model, folder, tmp_path)
    check_adapter(folder)


def test_publishes_one_of_several_adapters(model, tmp_path):
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["k_proj"], task_type="CAUSAL_LM"))
    dw.Publisher(str(tmp_path / "store"), model, adapter="other").publish()
    same_as_saved(model, pulled(str(tmp_path / "store"), tmp_path / "local"), tmp_path, "other")


class Falling(set):
    """A set in another order, as in another process."""

    def __iter__(self):
        return iter(sorted(super().__iter__(), reverse=True))


def test_configuration_bytes_are_the_same_in_every_process(model):
    modules, adapter, texts = ["q_proj", "k_proj", "v_proj", "o_proj"], Adapter(model), set()
    for order in sorted, Falling:
        model.peft_config["default"].target_modules = order(modules)
        texts.add(adapter.config_file().read_text())
    assert len(texts) == 1


def test_changed_configuration_is_part_of_its_version(model, tmp_path):
    store = str(tmp_path / "store")
    with dw.Publisher(store, model, adapter=True) as publisher:
        publisher.publish()
        model.peft_config["default"].lora_alpha = 16
        publisher.publish()
    for version, alpha in (0, 8), (1, 16):
        with dw.Replica(store, tmp_path / f"local-{version}") as replica:
            folder = replica.pull(version=version).path
        assert json.loads((folder / "adapter_config.json").read_text())["lora_alpha"] == alpha


def test_keeps_extra_files_of_an_adapter(model, tmp_path):
    store, card = str(tmp_path / "store"), tmp_path / "README.md"
    card.write_text("an adapter")
    with dw.Publisher(store, model, adapter=True) as publisher:
        publisher.publish(extra_files=[card])
        card.unlink()
        publisher.publish()
        model.peft_config["default"].lora_alpha = 16
        publisher.publish()
        assert (pulled(store, tmp_path / "local") / "README.md").read_text() == "an adapter"
        with pytest.raises(dw.Error, match="README.md"):
            publisher.publish(extra_files=[card])
        publisher.publish(extra_files=[])
    assert not (pulled(store, tmp_path / "local") / "README.md").exists()


def test_refuses_models_that_are_not_adapters(model, tmp_path):
    store = str(tmp_path / "store")
    with pytest.raises(dw.InvalidArgument, match="needs a PEFT model, not LlamaForCausalLM"):
        dw.Publisher(store, tiny(), adapter=True)
    with pytest.raises(dw.InvalidArgument, match="adapter 'nobody': the model has default"):
        dw.Publisher(store, model, adapter="nobody")
    other = peft.get_peft_model(tiny(), peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]))
    with pytest.raises(dw.Unsupported, match="engines serve only LORA"):
        dw.Publisher(store, other, adapter=True)
    with pytest.raises(dw.InvalidArgument, match="adapter and quantize: engines load LoRA only in floating point"):
        dw.Publisher(store, model, adapter=True, quantize="fp8-block")


def test_reports_a_deleted_adapter(model, tmp_path):
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["k_proj"], task_type="CAUSAL_LM"))
    with dw.Publisher(str(tmp_path / "store"), model, adapter="default") as publisher:
        publisher.publish()
        model.delete_adapter("default")
        with pytest.raises(dw.InvalidArgument, match="adapter default: the model no longer has this adapter"):
            publisher.publish()


def test_command_line_publishes_and_pulls_an_adapter(model, tmp_path):
    if not CLI.exists():
        pytest.skip("the command line tool is not built")
    saved, store, local = tmp_path / "saved", str(tmp_path / "store"), tmp_path / "local"
    for _ in range(2):
        model.save_pretrained(saved)
        snapshot = ["--snapshot", str(tmp_path / "snapshot")]
        subprocess.run([CLI, "publish", saved, store, *snapshot], check=True, capture_output=True)
        subprocess.run([CLI, "pull", store, local], check=True, capture_output=True)
        for name in "adapter_model.safetensors", "adapter_config.json":
            assert (local / name).read_bytes() == (saved / name).read_bytes()
        step(model)
    subprocess.run([CLI, "pull", store, tmp_path / "folders", "--copy-on-write"], check=True, capture_output=True)
    check_adapter(tmp_path / "folders" / "current")


def test_anchor_has_the_adapter_file_name(model, tmp_path):
    store = str(tmp_path / "store")
    with dw.Publisher(store, model, adapter=True) as publisher:
        for _ in range(3):
            publisher.publish()
            step(model)
    dw.Chain(store).anchor(2)
    assert (pulled(store, tmp_path / "local") / "adapter_model.safetensors").exists()


def test_publishes_from_trl_with_a_peft_config(tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    from deltawire.trainers.hf import PublishCallback

    store = str(tmp_path / "store")
    callback = PublishCallback(store, adapter=True)
    arguments = trl.SFTConfig(
        str(tmp_path / "out"), max_steps=2, learning_rate=1e-2, report_to=[], save_strategy="no", use_cpu=True, bf16=False
    )
    trainer = trl.SFTTrainer(
        tiny(),
        arguments,
        train_dataset=datasets.Dataset.from_list([{"text": "w3 w4 w5 w6 w7"}] * 8),
        processing_class=tokenizer(),
        peft_config=peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        callbacks=[callback],
    )
    trainer.train()
    assert callback.version.number == 2
    same_as_saved(trainer.model, pulled(store, tmp_path / "local"), tmp_path)
    with pytest.raises(dw.InvalidArgument, match="`adapter` or `tensors`"):
        PublishCallback(store, adapter=True, tensors=lambda model: {})


# ---- on the way to an engine


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def cut_rank(name: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:2].contiguous() if ".lora_A." in name else tensor[:, :2].contiguous()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, tensor: None if "layers.0.self_attn.q_proj.lora_B." in name else tensor, "has no lora_B"),
        (cut_rank, "has rank 2, but r=4 in adapter_config.json"),
        (
            lambda name, tensor: tensor[:3].contiguous() if "0.self_attn.q_proj.lora_A." in name else tensor,
            "the ranks of lora_A .* differ",
        ),
        (lambda name, tensor: (name.replace("lora_", "other_"), tensor), "no LoRA tensors"),
        (lambda _, tensor: tensor.to(torch.int8), "lora_A.weight: is I8; engines load LoRA in F32, F16, BF16"),
        (lambda _, tensor: tensor.to(torch.float8_e4m3fn), "is F8_E4M3; engines"),
    ],
)
def test_rejects_inconsistent_weights(saved, change, words):
    file, tensors = saved / "adapter_model.safetensors", {}
    for name, tensor in load_file(file).items():
        new = change(name, tensor)
        tensors |= {} if new is None else dict([new if isinstance(new, tuple) else (name, new)])
    save_file(tensors, file)
    with pytest.raises(dw.InvalidArgument, match=words):
        check_adapter(saved)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "adapter_config.json"),
        ("[]", "peft_type is list"),
        ('{"peft_type": "IA3", "r": 1}', "peft_type is IA3"),
        ('{"peft_type": "LORA"}', "r=None"),
        ('{"r": -1}', "r=-1"),
        ("[" * 100_000, "adapter_config.json: maximum recursion depth"),
    ],
)
def test_rejects_invalid_configurations(saved, text, words):
    (saved / "adapter_config.json").write_text(text)
    with pytest.raises(dw.Error, match=words):
        check_adapter(saved)


def test_rejects_a_truncated_file(saved, tmp_path):
    weights = saved / "adapter_model.safetensors"
    os.truncate(weights, weights.stat().st_size - 40)
    stage = Stage(tmp_path / "local")
    with pytest.raises(dw.Corruption, match=f": {weights}: "):  # not the copy, which is gone
        stage.take(saved, "v1")
    assert [path.name for path in stage.folder.iterdir()] == ["lock"]
    stage.close()


def test_proof_detects_a_changed_byte(model, tmp_path):
    store = str(tmp_path / "store")
    dw.Publisher(store, model, adapter=True).publish()
    folder = pulled(store, tmp_path / "local")
    assert prove_adapter(folder, store, dw.Chain(store)[0].identity, None) == 8
    with (folder / "adapter_model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    with pytest.raises(dw.BaseMismatch):
        prove_adapter(folder, store, dw.Chain(store)[0].identity, None)


def test_stage_removes_files_of_a_killed_server(saved, tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from deltawire.engines.adapters import Stage\n"
        "stage = Stage(sys.argv[1]); stage.take(Path(sys.argv[2]), 'v1'); os.kill(os.getpid(), 9)"
    )
    local = tmp_path / "local"
    done = subprocess.run([sys.executable, "-c", program, str(local), str(saved)], check=False)
    assert done.returncode == -9
    left = list((local / ".deltawire" / "adapters").iterdir())
    assert len(left) == 1
    assert (left[0] / "v1" / "adapter_model.safetensors").exists()
    first, second = Stage(local), Stage(local)  # of two servers that run
    assert set((local / ".deltawire" / "adapters").iterdir()) == {first.folder, second.folder}
    first.close()
    second.close()
    assert not list((local / ".deltawire" / "adapters").iterdir())


@pytest.mark.parametrize(
    "values",
    [{"adapter": "a@b"}, {"base_model": "m"}, {"adapter": "a", "shards": True, "transport": "group"}, {"adapter": "a\n"}],
)
def test_rejects_contradictory_settings(values):
    more = {"master_address": "h", "master_port": 1, "world_size": 2, "rank_offset": 1} if "transport" in values else {}
    with pytest.raises(dw.InvalidArgument):
        Settings.of({"store": "s", "local": "l"} | values | more)


def test_publishes_an_adapter_in_the_background(model, tmp_path):
    store = str(tmp_path / "store")
    with dw.Publisher(store, model, adapter=True) as publisher:
        future = publisher.publish(wait=False)
        before = {name: tensor.clone() for name, tensor in Adapter(model).tensors()}
        step(model)
        future.result()
    got = load_file(pulled(store, tmp_path / "local") / "adapter_model.safetensors")
    assert all(torch.equal(before[name], got[name]) for name in before)


class Shelf:
    """The part of an engine that a follower of adapters uses: it holds adapters by label."""

    def __init__(self) -> None:
        self.held: dict[str, Path] = {}
        self.names: dict[str, str] = {}
        self.requests: dict[str, int] = {}
        self.refuses: str | None = None
        self.serves_nothing = self.keeps_all = False

    async def load(self, label: str, folder: Path) -> str:
        if self.refuses is not None:
            raise RuntimeError(self.refuses)
        check_adapter(folder)
        self.held[label] = folder
        return label

    async def unload(self, handle: str) -> None:
        if self.keeps_all:
            raise RuntimeError("a worker does not answer")
        assert self.held.pop(handle).exists()

    def serve(self, name: str, handle: str) -> None:
        if self.serves_nothing:
            raise dw.InvalidArgument("the server already has a model")
        self.names[name] = handle

    def is_served(self, name: str, handle: str) -> bool:
        return self.names.get(name) == handle

    def running(self) -> dict[str, int]:
        return self.requests


def publish_next(publisher, model) -> None:
    step(model)
    publisher.publish()


@pytest.fixture
def followed(model, tmp_path, monkeypatch):
    """A publisher, an engine, and the follower between them; old versions may be removed at once."""
    from deltawire.engines import adapters as adapter_follower

    monkeypatch.setattr(adapter_follower, "_GRACE_SECONDS", 0)
    monkeypatch.setattr(adapter_follower, "_SWEEP_SECONDS", 0)
    store, shelf = str(tmp_path / "store"), Shelf()
    settings = Settings(store=store, local=str(tmp_path / "local"), adapter="policy", interval=0.1)
    with dw.Publisher(store, model, adapter=True) as publisher:
        publisher.publish()
        follower = adapter_follower.AdapterFollower(settings, shelf)
        yield publisher, shelf, follower
        follower.close()


async def come_to(follower, version: int) -> None:
    for _ in range(1000):
        if follower.seen.served is not None and follower.seen.served.version == version:
            return
        try:
            if follower.seen.served is None or await follower._is_behind():
                await follower.update()
        except dw.Unavailable:
            pass
        await asyncio.sleep(0.01)
    raise AssertionError(follower.seen)


async def test_keeps_a_version_while_requests_use_it(model, followed):
    publisher, shelf, follower = followed
    await come_to(follower, 0)
    shelf.requests = {"policy@0": 1}
    for version in 1, 2:
        publish_next(publisher, model)
        await come_to(follower, version)
    await follower._is_behind()
    assert shelf.names == {"policy": "policy@2"}
    assert shelf.held.keys() == {"policy@0", "policy@2"}
    assert all((folder / "adapter_model.safetensors").exists() for folder in shelf.held.values())
    shelf.requests = {}
    await follower._is_behind()
    assert shelf.held.keys() == {"policy@2"}
    assert len(list(follower._stage.folder.iterdir())) == 2  # the version and the lock


async def test_version_refused_by_the_engine_is_not_served(model, followed):
    publisher, shelf, follower = followed
    await come_to(follower, 0)
    publish_next(publisher, model)
    shelf.refuses = "no free slot"
    with pytest.raises(RuntimeError, match="no free slot"):
        await come_to(follower, 1)
    status = await follower.status()
    assert (status["version"], status["held"]["version"], shelf.names["policy"]) == (0, 1, "policy@0")
    assert follower.seen.why_not_ready(Wanted(1)) == f"{follower.seen.served} is served"
    assert len(list(follower._stage.folder.iterdir())) == 2
    shelf.refuses = None
    await come_to(follower, 1)
    assert (await follower.prove("all"))["num_tensors"] == 8


@pytest.mark.parametrize("first", [True, False])
async def test_unloads_a_version_that_cannot_be_served(model, followed, first):
    publisher, shelf, follower = followed
    if not first:
        await come_to(follower, 0)
        publish_next(publisher, model)
    before, newest = shelf.held.copy(), int(not first)
    shelf.serves_nothing = True
    for keeps in False, True:  # does the engine let go of it?
        shelf.keeps_all = keeps
        with pytest.raises(dw.InvalidArgument, match="the server already has a model"):
            await come_to(follower, newest)
        assert shelf.held.keys() == before.keys() | ({f"policy@{newest}"} if keeps else set())
        assert len(list(follower._stage.folder.iterdir())) == len(shelf.held) + 1
    shelf.keeps_all = False
    await follower._is_behind()
    assert shelf.held == before
    shelf.serves_nothing = False
    await come_to(follower, newest)


async def test_retries_a_failed_unload_later(model, followed):
    publisher, shelf, follower = followed
    await come_to(follower, 0)
    shelf.keeps_all = True
    for version in 1, 2:
        publish_next(publisher, model)
        await come_to(follower, version)
    await follower._is_behind()
    assert (await follower.status())["workers"][0]["loaded"].keys() == {"policy@0", "policy@1", "policy@2"}
    assert all(folder.exists() for folder in shelf.held.values())
    shelf.keeps_all = False
    await follower._is_behind()
    assert shelf.held.keys() == {"policy@2"}
    assert len(list(follower._stage.folder.iterdir())) == 2


async def test_serves_a_removed_name_again(followed):
    _, shelf, follower = followed
    await come_to(follower, 0)
    shelf.names.clear()
    assert await follower._is_behind()
    await follower.update()
    await follower._is_behind()
    assert shelf.names == {"policy": "policy@0"}
    assert all(folder.exists() for folder in shelf.held.values())


def test_follows_a_chain_that_held_a_model_before(model, tmp_path):
    store, local = str(tmp_path / "store"), tmp_path / "local"
    (tmp_path / "adapter_config.json").write_text('{"r": 4}')
    publisher = dw.Publisher(store, options=dw.PublishOptions(schema_change=True))
    with dw.Replica(store, local, copy_on_write=dw.CopyOnWrite()) as replica, publisher:
        stage = Stage(local)
        publisher.publish({"w": torch.ones(4, 4)}, [tmp_path / "adapter_config.json"])
        with pytest.raises(dw.InvalidArgument, match="no LoRA tensors"):
            stage.take(replica.pull().path, "v0")
        publisher.publish(Adapter(model).tensors(), [tmp_path / "adapter_config.json"])
        assert prove_adapter(stage.take(replica.pull().path, "v1"), store, dw.Chain(store)[1].identity, None) == 8
        stage.close()


def test_accepts_adapters_of_the_named_base_model_only(model, tmp_path):
    from deltawire.engines.adapters import AdapterFollower

    store, shelf = str(tmp_path / "store"), Shelf()
    model.peft_config["default"].base_model_name_or_path = "org/other"
    dw.Publisher(store, model, adapter=True).publish()
    settings = Settings(store=store, local=str(tmp_path / "local"), adapter="policy", base_model="org/model", interval=0.1)
    follower = AdapterFollower(settings, shelf)
    with pytest.raises(dw.InvalidArgument, match="is an adapter for org/other, but this server accepts adapters for org/model"):
        asyncio.run(come_to(follower, 0))
    assert not shelf.held
    follower.close()
