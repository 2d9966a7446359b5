"""Quantised versions: a BF16 trainer publishes the contents of a quantised checkpoint."""

import io
import json
import resource
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from rank_processes import thread_ranks

import deltawire as dw
from deltawire.__main__ import quantize as quantize_command
from deltawire.quantize import FORMATS, quantize
from deltawire.quantize.files import quantize_checkpoint
from deltawire.quantize.quantizer import quantizer_of

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
DENSE = [name for name in FORMATS if name != "gpt-oss-mxfp4"]
GATES = ("gate", "shared_expert_gate")


def model(seed: int = 0, dtype: Any = None) -> dict[str, Any]:
    torch.manual_seed(seed)
    state = {"model.embed_tokens.weight": torch.randn(64, 256), "lm_head.weight": torch.randn(64, 256)}
    state["model.norm.weight"] = torch.ones(256)
    for layer in range(2):
        for part in ATTENTION:
            state[f"model.layers.{layer}.self_attn.{part}.weight"] = torch.randn(256, 256) * 0.02
        for part in "gate_proj", "up_proj":
            state[f"model.layers.{layer}.mlp.{part}.weight"] = torch.randn(384, 256) * 0.02
        state[f"model.layers.{layer}.mlp.down_proj.weight"] = torch.randn(256, 384) * 0.02
        state[f"model.layers.{layer}.input_layernorm.weight"] = torch.ones(256)
    return {name: tensor.to(dtype or torch.bfloat16) for name, tensor in state.items()}


def step(state: dict[str, Any], size: float = 3e-6) -> None:
    for tensor in state.values():
        tensor += (torch.randn(tensor.shape) * size).to(tensor.dtype)


def save(folder: Path, state: dict[str, Any], config: Any = None) -> Path:
    folder.mkdir()
    safetensors.save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({} if config is None else {"quantization_config": config}))
    return folder


def load(folder: Path) -> dict[str, Any]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in safetensors.load_file(file).items()}


def held(store: str, folder: Path, newest: int | None = None) -> dict[str, Any]:
    """The tensors of a replica."""
    with dw.Replica(store, folder) as replica:
        assert replica.pull().version == (newest or dw.Chain(store).head)
    return load(folder)


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        other = theirs[name]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape), name
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)), name


@pytest.mark.parametrize("format", DENSE)
def test_replica_holds_the_quantised_weights(tmp_path: Path, format: str) -> None:
    weights = model()
    store = str(tmp_path / "store")
    with dw.Publisher(store, weights, quantize=format) as publisher:
        seed = publisher.publish()
        step(weights)
        version = publisher.publish()
    assert (seed.full, version.full, version.number) == (True, False, 1)
    assert 0 < version.num_changed < version.num_elements
    assert_same(held(store, tmp_path / "local", 1), dict(quantize(weights, format)))
    manifest = dw.Chain(store)[1]
    settings = json.loads(manifest.quantization)
    assert settings["from"] == "BF16"
    assert settings["groups"][0]["targets"] == ["Linear"]


def test_unchanged_quantised_bytes_are_not_published() -> None:
    weights = model()
    with dw.Publisher("memory:quantised-still", weights, quantize="int4-g32") as publisher:
        publisher.publish()
        name = "model.layers.0.mlp.up_proj.weight"
        weights[name].view(torch.int16)[5, 5] += 1  # one place of BF16: no other code
        before, after = publisher.publish(), dict(quantize(weights, "int4-g32"))
    assert not before.committed
    assert after.keys() == {tensor.name for tensor in dw.Chain("memory:quantised-still").tensors(0)}


def test_masters_quantise_like_their_rounded_weights(tmp_path: Path) -> None:
    masters = model(dtype=torch.float32)
    rounded = {name: tensor.bfloat16() for name, tensor in masters.items()}
    stores = [str(tmp_path / name) for name in ("masters", "rounded")]
    for store, weights in zip(stores, [masters, rounded], strict=True):
        with dw.Publisher(store, weights, dtype=torch.bfloat16, quantize="fp8-block") as publisher:
            publisher.publish()
    assert len({dw.Chain(store)[0].state for store in stores}) == 1
    with dw.Publisher("memory:quantised-f32", masters, quantize="fp8-block") as publisher:
        publisher.publish()  # no dtype: what is not quantised stays as it is
    dtypes = {tensor.name: tensor.dtype for tensor in dw.Chain("memory:quantised-f32").tensors(0)}
    assert (dtypes["model.norm.weight"], dtypes["model.layers.0.mlp.up_proj.weight"]) == ("F32", "F8_E4M3")


def test_refuses_other_settings_by_name(tmp_path: Path) -> None:
    weights, store = model(), str(tmp_path)
    with dw.Publisher(store, weights, quantize="fp8-block") as publisher:
        publisher.publish()
    for other, words in {
        "fp8-block-ue8m0": '"power_of_two":true',
        "int4-g32": '"format":"int4"',
        None: "does not quantise",
    }.items():
        with pytest.raises(dw.InvalidArgument, match='is quantised as {"from":"BF16"') as caught:
            dw.Publisher(store, weights, quantize=other)
        assert words in str(caught.value)
    with pytest.raises(dw.InvalidArgument, match='"from":"F16"'):
        dw.Publisher(store, weights, quantize="fp8-block", dtype=torch.float16)
    with dw.Publisher(store, weights, quantize=FORMATS["fp8-block"]) as publisher:  # the same in other words
        assert not publisher.publish().committed
    assert dw.Chain(store).head == 0


def test_seed_is_the_engines_checkpoint(tmp_path: Path) -> None:
    weights = model()
    engine = save(tmp_path / "engine", dict(quantize(weights, "nvfp4")), FORMATS["nvfp4"])
    store = str(tmp_path / "store")
    with dw.Publisher(store, weights, quantize=engine) as publisher:
        seed = publisher.publish_checkpoint(engine)
        assert seed.warnings == ()
        assert not publisher.publish().committed  # the trainer's weights are quantised to the same bytes
        step(weights)
        assert publisher.publish().number == 1
    assert dw.Chain(store)[0].quantization == dw.Chain(store)[1].quantization != ""


def test_names_tensors_that_differ_from_the_seed(tmp_path: Path) -> None:
    weights = model()
    state = dict(quantize(weights, "fp8-block"))
    name = "model.layers.1.mlp.up_proj.weight"
    state[name] = state[name].clone()
    state[name].view(torch.uint8)[7, :3] ^= 1
    engine = save(tmp_path / "engine", state, FORMATS["fp8-block"])
    with dw.Publisher(str(tmp_path / "store"), weights, quantize=engine) as publisher:
        seed = publisher.publish_checkpoint(engine)
        assert len(seed.warnings) == 1
        assert "3 elements of 1 tensors differ" in seed.warnings[0]
        assert f"{name}: 3 of {384 * 256:,}" in seed.warnings[0]
        version = publisher.publish()
    assert (version.full, version.num_changed) == (False, 3)


def test_seed_of_another_tool_needs_no_settings(tmp_path: Path) -> None:
    weights = model()
    engine = save(tmp_path / "engine", dict(quantize(weights, "mxfp8")), FORMATS["mxfp8"])
    store = str(tmp_path / "store")
    with dw.Publisher(store) as publisher:
        publisher.publish_checkpoint(engine)
    assert dw.Chain(store)[0].quantization == ""
    step(weights)
    with dw.Publisher(store, weights, quantize=engine) as publisher:
        version = publisher.publish()
    assert (version.number, version.full) == (1, False)
    assert json.loads(dw.Chain(store)[1].quantization)["groups"][0]["format"] == "mxfp8"


def test_like_provides_activation_scales_and_dtypes(tmp_path: Path) -> None:
    weights = model(dtype=torch.float32)
    state = dict(quantize(weights, "nvfp4"))
    state = {
        name: tensor.bfloat16() if tensor.dtype == torch.float32 and tensor.dim() else tensor for name, tensor in state.items()
    }
    state["model.layers.0.mlp.up_proj.input_scale"] = torch.tensor(0.25)
    # An exception that is not listed: the checkpoint has it in BF16.
    plain = "model.layers.1.mlp.down_proj"
    for suffix in "weight", "weight_scale", "weight_scale_2":
        del state[f"{plain}.{suffix}"]
    state[f"{plain}.weight"] = weights[f"{plain}.weight"].bfloat16()
    engine = save(tmp_path / "engine", state, FORMATS["nvfp4"])
    assert_same(dict(quantize(weights, engine)), state)


def test_carries_tensors_that_the_model_lacks(tmp_path: Path) -> None:
    """For example untrained draft layers and vision towers: without them engines would refuse the version."""
    weights = model()
    state = dict(quantize(weights | {"mtp.layers.0.mlp.up_proj.weight": torch.randn(128, 256).bfloat16()}, "fp8-block"))
    state |= {"visual.patch_embed.proj.weight": torch.randn(8, 3, 4, 4).bfloat16(), "visual.ids": torch.arange(7)}
    state["model.layers.0.mlp.up_proj.input_zero_point"] = torch.zeros(1, dtype=torch.int8)
    engine = save(tmp_path / "engine", state, FORMATS["fp8-block"])
    store = str(tmp_path / "store")
    with dw.Publisher(store, weights, quantize=engine) as publisher:
        publisher.publish_checkpoint(engine)
        first = publisher.publish()
        assert not first.committed
        assert len(first.warnings) == 1
        assert f"5 tensors that the model lacks are copied from {engine}" in first.warnings[0]
        assert "mtp.layers.0.mlp.up_proj.weight_scale_inv" in first.warnings[0]
        step(weights)
        assert publisher.publish().warnings == ()
    with dw.Replica(store, tmp_path / "local") as replica:
        assert replica.pull().version == 1
    assert_same(load(tmp_path / "local"), dict(quantize(weights, engine)))
    assert load(tmp_path / "local").keys() == state.keys()


def test_carried_tensors_do_not_change(tmp_path: Path) -> None:
    """A missing or changed folder does not affect a run; only what would need to read it is refused."""
    weights = model()
    extra = {"visual.bias": torch.ones(5), "model.layers.0.mlp.up_proj.input_scale": torch.tensor(0.5)}
    engine = save(tmp_path / "engine", dict(quantize(weights, "fp8-block")) | extra, FORMATS["fp8-block"])
    store = str(tmp_path / "store")
    publisher = dw.Publisher(store, weights, quantize=engine)
    publisher.publish()
    other = load(engine) | {name: tensor * 2 for name, tensor in extra.items()}
    (engine / "model.safetensors").unlink()
    step(weights)
    assert publisher.publish().number == 1
    safetensors.save_file(other, engine / "model.safetensors")
    step(weights)
    assert publisher.publish().number == 2
    local = held(store, tmp_path / "local")
    assert all(torch.equal(local[name], tensor) for name, tensor in extra.items())
    publisher.close()
    with pytest.raises(dw.InvalidArgument, match="is quantised as"):  # other constants are other settings
        dw.Publisher(store, weights, quantize=engine)
    with dw.Publisher("memory:like-other", weights, quantize=engine) as publisher:
        safetensors.save_file(dict(quantize(weights, "fp8-block")) | extra, engine / "model.safetensors")
        with pytest.raises(dw.Error, match=r'"visual.bias": .*model.safetensors has changed'):
            publisher.publish()
        (engine / "model.safetensors").unlink()
        with pytest.raises(dw.Error, match=r"model.safetensors: there is no such file"):
            publisher.publish()


def test_refuses_a_carried_head_of_a_tied_model(tmp_path: Path) -> None:
    weights = model()
    engine = save(tmp_path / "engine", dict(quantize(weights, "fp8-block")), FORMATS["fp8-block"])
    del weights["lm_head.weight"]  # tied: the embedding is the head
    with dw.Publisher("memory:tied-head", weights, quantize=engine) as publisher:
        with pytest.raises(dw.InvalidArgument, match=r'"lm_head.weight": .* tie_word_embeddings'):
            publisher.publish()
        config = json.loads((engine / "config.json").read_text())
        (engine / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
        assert "lm_head.weight" in publisher.publish().warnings[0]


def test_refuses_parts_that_quantising_does_not_make(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight_zero_point"  # the configuration says symmetric
    engine = save(tmp_path / "engine", dict(quantize(model(), "int4-g32")) | {name: torch.ones(2).int()}, FORMATS["int4-g32"])
    with pytest.raises(dw.InvalidArgument, match=f'"{name}".*quantising "model.layers.0.mlp.up_proj.weight" does not produce it'):
        dw.Publisher("memory:like-more", model(), quantize=engine).publish()
    engine = save(tmp_path / "other", dict(quantize({"embed_tokens.weight": torch.ones(128, 128)} | model(), "fp8-block")), {})
    state = load(engine) | {"embed_tokens.weight": torch.ones(128, 128).to(torch.float8_e4m3fn)}
    engine = save(tmp_path / "third", state, FORMATS["fp8-block"])
    with pytest.raises(dw.InvalidArgument, match='"embed_tokens.weight": is F8_E4M3 in .*does not quantise it'):
        dict(quantize({"embed_tokens.weight": torch.ones(128, 128)} | model(), engine))


def test_settings_include_the_checkpoints_choices(tmp_path: Path) -> None:
    weights = model()
    state = dict(quantize(weights, "fp8-block"))
    same = save(tmp_path / "same", state, FORMATS["fp8-block"])
    name = "model.layers.0.mlp.up_proj.weight"
    plain = {key: tensor for key, tensor in state.items() if key != f"{name}_scale_inv"} | {name: weights[name]}
    others = [
        save(tmp_path / "plain", plain, FORMATS["fp8-block"]),
        save(tmp_path / "scale", state | {"a.input_scale": torch.ones(1)}, FORMATS["fp8-block"]),
        save(tmp_path / "scale-2", state | {"a.input_scale": torch.ones(1) * 2}, FORMATS["fp8-block"]),
    ]
    assert quantizer_of(same).settings == quantizer_of("fp8-block").settings
    assert len({quantizer_of(folder).settings for folder in (same, *others)}) == 4
    four = {key: tensor.int() if key.endswith("_shape") else tensor for key, tensor in quantize(weights, "int4-g32")}
    four_bits = save(tmp_path / "four", four, FORMATS["int4-g32"])
    assert quantizer_of(four_bits).settings != quantizer_of("int4-g32").settings
    # deltawire's own keys are not compared: a later build may add some.
    assert json.loads(quantizer_of("fp8-block").settings)["ignore"] == []


def test_int4_uses_the_checkpoints_shape_dtype(tmp_path: Path) -> None:
    state = dict(quantize(model(), "int4-g32"))
    state = {name: tensor.int() if name.endswith("weight_shape") else tensor for name, tensor in state.items()}
    engine = save(tmp_path / "engine", state, FORMATS["int4-g32"])
    assert_same(dict(quantize(model(), engine)), state)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda state: state.pop("model.norm.weight"), "has no such tensor"),
        (lambda state: state.update({"model.norm.weight": torch.ones(8)}), r"has shape \[256\], but \[8\] in "),
        (lambda state: state.update({"model.layers.0.mlp.up_proj.weight_scale_inv": torch.ones(3, 2).bfloat16()}), "is BF16"),
    ],
)
def test_refuses_incomplete_checkpoints_by_name(tmp_path: Path, spoil: Any, words: str) -> None:
    state = dict(quantize(model(), "fp8-block"))
    spoil(state)
    engine = save(tmp_path / "engine", state, FORMATS["fp8-block"])
    with pytest.raises(dw.InvalidArgument, match=words) as caught:
        dict(quantize(model(), engine))
    assert caught.value.tensor is not None


def test_refuses_folders_without_a_quantised_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(dw.NotFound, match="no quantization_config"):
        dw.Publisher("memory:none", model(), quantize=save(tmp_path / "plain", model()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(dw.NotFound, match="no safetensors files"):
        dw.Publisher("memory:none", model(), quantize=tmp_path / "empty")
    bad = save(tmp_path / "bad", {}, FORMATS["fp8-block"])
    (bad / "config.json").write_text("{")
    with pytest.raises(dw.InvalidArgument, match="is not .*JSON"):
        dw.Publisher("memory:none", model(), quantize=bad)
    for inner in [1], "x":
        (bad / "config.json").write_text(json.dumps({"text_config": inner}))
        with pytest.raises(dw.InvalidArgument, match="text_config is not an object"):
            dw.Publisher("memory:none", model(), quantize=bad)
    (bad / "model.safetensors").write_bytes(b"\xff" * 8)
    with pytest.raises(dw.Corruption, match="model.safetensors"):
        dw.Publisher("memory:none", model(), quantize=bad)


def test_quantises_boxes_that_cut_no_block(tmp_path: Path) -> None:
    weights, store = model(), str(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    only = {name: weights[name]}

    def boxes(rank: int) -> list[tuple[str, Any]]:
        rows = slice(0, 128) if rank == 0 else slice(128, 384)
        return [(name, dw.Tensor(weights[name][rows], shape=(384, 256), offset=(rows.start, 0)))]

    from concurrent.futures import ThreadPoolExecutor

    groups = thread_ranks(2)

    def publish(rank: int) -> int:
        with dw.Publisher(store, boxes(rank), quantize="int4-g32-asymmetric", group=groups[rank]) as publisher:
            return publisher.publish().number

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(publish, range(2))) == [0, 0]
    assert_same(held(store, tmp_path / "local"), dict(quantize(only, "int4-g32-asymmetric")))


def test_names_arrays_that_torch_cannot_represent() -> None:
    import numpy as np

    ones = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    backwards = dict(quantize({"a.up_proj.weight": torch.from_numpy(ones[::-1].copy())}, "fp8-block"))
    store = "memory:quantised-backwards"
    with dw.Publisher(store, {"a.up_proj.weight": ones[::-1]}, quantize="fp8-block") as publisher:
        publisher.publish()
    local = {name: torch.zeros_like(tensor) for name, tensor in backwards.items()}
    with dw.TensorReplica(store, local) as replica:
        replica.pull()
    assert_same(local, backwards)
    with warnings.catch_warnings(action="ignore"):
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    for value, words in (ones.astype(">f4"), "byte order"), (nested, "nested"):
        with pytest.raises(dw.Error, match=f'tensor "a.up_proj.weight".*{words}'):
            dw.Publisher("memory:no-array", {"a.up_proj.weight": value}, quantize="fp8-block").publish()


def command(*arguments: Any) -> SimpleNamespace:
    """`deltawire quantize`, in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        try:
            status = quantize_command([*map(str, arguments)])
        except SystemExit as end:  # argparse's
            status = end.code
    return SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr=errors.getvalue())


def test_command_writes_a_checkpoint_usable_as_like(tmp_path: Path) -> None:
    plain = save(tmp_path / "plain", model())
    (plain / "tokenizer.json").write_text("{}")
    done = command(plain, tmp_path / "fp8", "--format", "fp8-block", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["tensors"], report["quantised"], report["files"]) == (19, 14, 1)
    assert_same(load(tmp_path / "fp8"), dict(quantize(model(), "fp8-block")))
    config = json.loads((tmp_path / "fp8/config.json").read_text())["quantization_config"]
    assert config == FORMATS["fp8-block"] | {"modules_to_not_convert": ["lm_head"]}
    assert (tmp_path / "fp8/tokenizer.json").exists()
    again = quantize_checkpoint(plain, tmp_path / "again", tmp_path / "fp8", file_bytes=1 << 19)
    assert again["files"] > 1
    assert dw.verify(tmp_path / "fp8", tmp_path / "again")


def test_lists_unquantised_modules_for_engines(tmp_path: Path) -> None:
    """An engine turns every linear layer that is not fully listed into FP8, even routers, and loads BF16 into it."""
    routers = {f"model.layers.{i}.mlp.{kind}.weight": torch.ones(4, 128).bfloat16() for i in (0, 1) for kind in GATES}
    plain = save(tmp_path / "plain", model() | routers)
    left = sorted({"lm_head", *(name.removesuffix(".weight") for name in routers)})
    for format in "fp8-block", "fp8-tensor", "mxfp8":
        coded = tmp_path / format
        quantize_checkpoint(plain, coded, format)
        assert json.loads((coded / "config.json").read_text())["quantization_config"]["modules_to_not_convert"] == left
        assert all(load(coded)[name].dtype == torch.bfloat16 for name in routers)
        # Both mean the same: a run continues with the checkpoint in place of the format's name.
        assert quantizer_of(coded).settings == quantizer_of(format).settings


def test_command_reports_mistakes(tmp_path: Path) -> None:
    plain = save(tmp_path / "plain", model())
    done = command(plain, plain, "--format", "fp8-block")
    assert (done.returncode, done.stderr) == (2, f"error: invalid argument: {plain}: already exists\n")
    assert command(tmp_path / "nothing", tmp_path / "out", "--format", "fp8-block").returncode == 4
    assert command(plain, tmp_path / "out").returncode == 2
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain"]


def test_refuses_quantised_input(tmp_path: Path) -> None:
    quantize_checkpoint(save(tmp_path / "plain", model()), tmp_path / "fp8", "fp8-block")
    for format in "int4-g32", "fp8-block":  # codes are no weights: their scales would be lost
        with pytest.raises(dw.InvalidArgument, match="quantised already"):
            quantize_checkpoint(tmp_path / "fp8", tmp_path / "out", format)
    name = "model.layers.0.self_attn.q_proj.weight"
    with pytest.raises(dw.InvalidArgument, match="q_proj.weight_scale_inv"):  # which scale would it be?
        dict(quantize({name: torch.ones(128, 128), f"{name}_scale_inv": torch.ones(1, 1)}, "fp8-block"))
    with pytest.raises(dw.InvalidArgument, match="none of the model's 1 tensors"):
        quantize_checkpoint(save(tmp_path / "norm", {"norm.weight": torch.ones(8)}), tmp_path / "out", "fp8-block")
    assert not (tmp_path / "out").exists()


def test_integers_with_scales_count_as_quantised() -> None:
    for dtype, suffix in (torch.int8, "weight"), (torch.uint8, "weight"), (torch.int32, "weight_packed"):
        codes = {f"a.{suffix}": torch.ones(8, 32).to(dtype), "a.weight_scale": torch.ones(8, 1)}
        with pytest.raises(dw.InvalidArgument, match=f'"a.{suffix}": is .* with "a.weight_scale", quantised already'):
            dict(quantize(codes | {"b.weight": torch.ones(128, 128)}, "fp8-block"))
    with pytest.raises(dw.InvalidArgument, match="is F8_E5M2, quantised already"):
        dict(quantize({"a.weight": torch.ones(8, 8).to(torch.float8_e5m2)}, "fp8-block"))
    dict(quantize({"mask.weight": torch.ones(8, 8).byte(), "b.weight": torch.ones(128, 128)}, "fp8-block"))


def test_refuses_fused_experts_by_name(tmp_path: Path) -> None:
    """As transformers 5 keeps them in memory: they would silently stay in BF16."""
    name = "model.layers.0.mlp.experts.gate_up_proj"
    experts = {name: torch.randn(4, 128, 64).bfloat16()}
    with pytest.raises(dw.InvalidArgument, match=r"contains all experts.*checkpoint_tensors") as caught:
        dw.Publisher("memory:experts", model() | experts, quantize="fp8-block").publish()
    assert caught.value.tensor == name
    left = FORMATS["fp8-block"] | {"modules_to_not_convert": ["mlp.experts"]}
    coded = dict(quantize(model() | experts, left))
    assert coded[name].dtype == torch.bfloat16
    assert_same(dict(quantize(model() | experts, save(tmp_path / "engine", coded, FORMATS["fp8-block"]))), coded)


def test_refuses_a_model_without_quantisable_weights() -> None:
    with pytest.raises(dw.InvalidArgument, match="none of the model's 2 tensors"):
        dw.Publisher(
            "memory:none", {"norm.weight": torch.ones(8), "lm_head.weight": torch.ones(8, 8)}, quantize="nvfp4"
        ).publish()


@pytest.mark.parametrize(
    "name",
    ["embed_tokens", "embed_positions", "backbone.embeddings", "model.shared", "tok_embeddings", "wte", "h.position_embedding"],
)
def test_leaves_embeddings_unquantised(name: str) -> None:
    coded = dict(quantize({f"{name}.weight": torch.ones(128, 128), "b.up_proj.weight": torch.ones(128, 128)}, "int4-g32"))
    assert coded[f"{name}.weight"].dtype == torch.float32


def test_index_decides_which_files_are_the_model(tmp_path: Path) -> None:
    plain = save(tmp_path / "plain", model())
    index = {"weight_map": dict.fromkeys(model(), "model.safetensors")}
    (plain / "model.safetensors.index.json").write_text(json.dumps(index))
    safetensors.save_file({"old.weight": torch.ones(128, 128)}, plain / "old.safetensors")
    quantize_checkpoint(plain, tmp_path / "fp8", "fp8-block")
    assert_same(load(tmp_path / "fp8"), dict(quantize(model(), "fp8-block")))
    index["weight_map"]["gone.weight"] = "gone.safetensors"
    (plain / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(dw.NotFound, match=r"gone.safetensors"):
        quantize_checkpoint(plain, tmp_path / "again", "fp8-block")
    (plain / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(dw.InvalidArgument, match="has no weight_map"):
        quantize_checkpoint(plain, tmp_path / "again", "fp8-block")


def test_warns_about_a_seed_that_cannot_be_compared(tmp_path: Path) -> None:
    engine = save(tmp_path / "engine", dict(quantize(model(), "fp8-block")), FORMATS["fp8-block"])
    weights = model()
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = float("nan")
    with dw.Publisher(str(tmp_path / "store"), weights, quantize=engine) as publisher:
        seed = publisher.publish_checkpoint(engine)
    assert (seed.number, seed.committed) == (0, True)
    assert len(seed.warnings) == 1
    assert "cannot be compared" in seed.warnings[0]
    assert "up_proj.weight" in seed.warnings[0]


def test_full_disk_is_an_io_error(tmp_path: Path) -> None:
    plain = save(tmp_path / "plain", model())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # Python ignores the signal
    try:
        done = command(plain, tmp_path / "out", "--format", "fp8-block")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == dw.IoError.exit_status, done.stderr
    assert done.stderr.startswith(f"error: i/o error: {tmp_path}: cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_rejects_invalid_input_by_name(tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match="q_proj.weight.*has no elements"):
        dict(quantize({"q_proj.weight": torch.ones(0, 256)}, "fp8-block"))
    with pytest.raises(dw.Unsupported, match="quant_method"):
        dict(quantize(model(), {"quant_method": ["fp8"]}))
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    groups = {"a": {"targets": ["re:(("], "weights": weights}}
    with pytest.raises(dw.InvalidArgument, match="not a regular expression"):
        dict(quantize(model(), {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}))
    folder = save(tmp_path / "plain", model())
    for text in "{not json", "[]", "[" * 100_000:
        (folder / "config.json").write_text(text)
        with pytest.raises(dw.InvalidArgument, match="config.json"):
            quantize_checkpoint(folder, tmp_path / "out", "fp8-block")
    assert not (tmp_path / "out").exists()
