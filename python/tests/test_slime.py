"""Hooks for slime and miles, called as their trainers and engines call them."""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
from argparse import Namespace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw
from deltawire import slime

DATA = Path(__file__).parents[2] / "tests" / "dialect" / "data"

State = dict[str, Any]


def load_function(path: str) -> Any:
    """As `slime.utils.misc` and SGLang's `_load_hook` do it."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def states(count: int) -> list[State]:
    """Successive states of a model: ordinary changes, NaN with a payload, both zeros."""
    random = np.random.default_rng(1)
    weights = {f"layers.{n}.weight": random.standard_normal((32, 24)).astype(np.float32) for n in range(3)}
    out = [{name: array.copy() for name, array in weights.items()}]
    for step in range(1, count):
        weights["layers.1.weight"][step, :5] += 1
        weights["layers.2.weight"].view(np.uint32)[0, step] = 0x7FC00001 + step
        weights["layers.0.weight"][3, 3] = -0.0 if step % 2 else 0.0
        out.append({name: array.copy() for name, array in weights.items()})
    return out


def write(folder: Path, state: State) -> Path:
    """A checkpoint of its own."""
    with dw.Publisher("memory:" + str(folder), state) as publisher:
        publisher.publish()
    with dw.Replica("memory:" + str(folder), folder) as replica:
        replica.pull()
    shutil.rmtree(folder / ".deltawire")
    return folder


class Trainer:
    """What `UpdateWeightFromDiskDelta` does around the hook, with files in slime's format made beforehand."""

    def __init__(self, tmp_path: Path, store: Path, count: int = 4, **more: Any) -> None:
        self.states = states(count)
        self.ready = tmp_path / "ready"
        own = f"memory:{tmp_path}"
        with dw.Publisher(own) as publisher:
            for state in self.states:
                publisher.publish(state)
        dw.export_dialect("slime", own, self.ready, work=tmp_path / "ready-work")
        self.args = Namespace(
            hf_checkpoint=str(write(tmp_path / "base", self.states[0])),
            update_weight_mode="delta",
            update_weight_transport="disk",
            update_weight_disk_dir=str(tmp_path / "deltas"),
            update_weight_delta_encoding="xor",
            update_weight_delta_checksum="xxh3-128",
            update_weight_local_checkpoint_dir=str(tmp_path / "local"),
            custom_update_weight_post_write_path="deltawire.slime.post_write",
            deltawire_store=str(store),
            deltawire_work=str(tmp_path / "work"),
            **more,
        )
        self.hook = load_function(self.args.custom_update_weight_post_write_path)
        self.weight_version = 0

    def capture_baseline(self) -> None:
        shutil.rmtree(self.args.update_weight_disk_dir, ignore_errors=True)
        Path(self.args.update_weight_disk_dir).mkdir(parents=True)
        self.hook(self.args, self.args.update_weight_disk_dir, [object()])

    def write_version(self) -> str:
        self.weight_version += 1
        name = f"weight_v{self.weight_version:06d}"
        shutil.copytree(self.ready / name, Path(self.args.update_weight_disk_dir) / name)
        return str(Path(self.args.update_weight_disk_dir) / name)

    def update_weights(self) -> None:
        self.hook(self.args, self.write_version(), [object()])


def held(store: Path, version: int) -> State:
    arrays = {spec.name: np.empty(spec.shape, np.float32) for spec in dw.Chain(store).tensors(version)}
    with dw.TensorReplica(store, arrays) as replica:
        assert replica.pull(version).version == version
    return arrays


def assert_same(ours: State, theirs: State) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name].view(np.uint32), array.view(np.uint32), err_msg=name)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path, tmp_path / "store")


def test_the_signatures_are_theirs() -> None:
    assert list(inspect.signature(slime.post_write).parameters) == ["args", "version_dir", "rollout_engines"]
    assert list(inspect.signature(slime.pre_push).parameters) == ["args", "version_dir", "rollout_engines"]
    assert list(inspect.signature(slime.pre_read).parameters) == ["source_dir", "target_version"]


def test_every_version_of_a_trainer_is_one_of_the_chain(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    assert dw.Chain(tmp_path / "store").head == 0
    for number in range(1, 4):
        trainer.update_weights()
        assert dw.Chain(tmp_path / "store").head == number  # before any engine is told
    for number, state in enumerate(trainer.states):
        assert_same(held(tmp_path / "store", number), state)


def test_a_second_call_finds_it_there(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    trainer.hook(trainer.args, trainer.args.update_weight_disk_dir, [])
    folder = trainer.write_version()
    for _ in range(3):
        trainer.hook(trainer.args, folder, [])
    assert dw.Chain(tmp_path / "store").versions == [0, 1]


def test_versions_that_a_call_missed_come_first(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    trainer.write_version()  # a hook that was killed
    trainer.write_version()
    trainer.update_weights()
    assert dw.Chain(tmp_path / "store").versions == [0, 1, 2, 3]
    assert_same(held(tmp_path / "store", 3), trainer.states[3])


def test_other_ranks_do_nothing(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    trainer.capture_baseline()
    trainer.update_weights()
    assert not (tmp_path / "store").exists()


def test_the_environment_says_it_too(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del trainer.args.deltawire_store, trainer.args.deltawire_work
    monkeypatch.setenv("DELTAWIRE_STORE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("DELTAWIRE_WORK", str(tmp_path / "work"))
    trainer.capture_baseline()
    trainer.update_weights()
    assert dw.Chain(tmp_path / "elsewhere").head == 1


def test_without_a_store_it_says_what_to_write(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTAWIRE_STORE", raising=False)
    trainer.args.deltawire_store = None
    with pytest.raises(dw.InvalidArgument, match="DELTAWIRE_STORE"):
        trainer.capture_baseline()


def test_full_checkpoints_too(tmp_path: Path) -> None:
    """`--update-weight-mode full`: no call comes before version 1."""
    trainer = Trainer(tmp_path, tmp_path / "store", 3)
    Path(trainer.args.update_weight_disk_dir).mkdir()
    for number in (1, 2):
        folder = Path(trainer.args.update_weight_disk_dir) / f"weight_v{number:06d}"
        write(folder, trainer.states[number])
        index = {"metadata": {}, "weight_map": dict.fromkeys(trainer.states[0], "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        trainer.hook(trainer.args, str(folder), [])
        assert_same(held(tmp_path / "store", number), trainer.states[number])


def test_damaged_files_are_refused_by_name_and_the_chain_stays(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    folder = Path(trainer.write_version())
    [part] = folder.glob("*.safetensors")
    good = part.read_bytes()
    part.write_bytes(good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
    with pytest.raises(dw.Error, match="deltawire.slime: .*weight_v000001"):
        trainer.hook(trainer.args, str(folder), [])
    assert dw.Chain(tmp_path / "store").head == 0
    part.write_bytes(good)
    trainer.hook(trainer.args, str(folder), [])
    assert_same(held(tmp_path / "store", 1), trainer.states[1])


def test_a_part_that_rank_0_cannot_see(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    folder = Path(trainer.write_version())
    [part] = folder.glob("*.safetensors")
    part.unlink()
    with pytest.raises(dw.Error, match="weight_v000001"):
        trainer.hook(trainer.args, str(folder), [])
    assert dw.Chain(tmp_path / "store").head == 0


def test_a_wrong_base_commits_nothing(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, tmp_path / "store")
    other = {name: array + 1 for name, array in trainer.states[0].items()}
    trainer.args.hf_checkpoint = str(write(tmp_path / "other", other))
    trainer.capture_baseline()  # nothing tells yet
    with pytest.raises(dw.Error, match="tensor"):
        trainer.update_weights()
    assert dw.Chain(tmp_path / "store").head == 0


def test_training_may_go_on_and_the_next_call_catches_up(trainer: Trainer, tmp_path: Path, caplog: Any) -> None:
    trainer.args.deltawire_on_error = "log"
    trainer.capture_baseline()
    folder = Path(trainer.write_version())
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text("{")
    trainer.hook(trainer.args, str(folder), [])
    assert "training goes on" in caplog.text
    assert dw.Chain(tmp_path / "store").head == 0
    index.write_text(text)
    trainer.update_weights()
    assert dw.Chain(tmp_path / "store").head == 2


def test_a_run_that_begins_again_does_not_go_on_with_the_old_chain(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    trainer.update_weights()
    trainer.update_weights()
    trainer.weight_version = 0
    with pytest.raises(dw.Conflict, match="at version 0, and the chain at 2: a new run needs a store of its own"):
        trainer.capture_baseline()
    with pytest.raises(dw.Error, match="another store|store of its own"):  # where there is no call before the first version
        trainer.update_weights()
    assert_same(held(tmp_path / "store", 2), trainer.states[2])


def test_a_new_run_with_a_store_of_its_own_may_use_the_same_work_folder(trainer: Trainer, tmp_path: Path) -> None:
    trainer.capture_baseline()
    trainer.update_weights()
    trainer.weight_version, trainer.args.deltawire_store = 0, str(tmp_path / "second")
    trainer.capture_baseline()
    trainer.update_weights()
    assert_same(held(tmp_path / "second", 1), trainer.states[1])


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none(trainer: Trainer, text: str) -> None:
    trainer.args.deltawire_timeout = text
    with pytest.raises(dw.InvalidArgument, match=f"DELTAWIRE_TIMEOUT is '{text}'"):
        trainer.capture_baseline()


def test_a_folder_that_is_no_version(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match='"elsewhere" is not a version'):
        trainer.hook(trainer.args, str(tmp_path / "elsewhere"), [])


def test_generation_2_has_another_name_for_it(trainer: Trainer, tmp_path: Path) -> None:
    trainer.hook = load_function("deltawire.slime.pre_push")
    trainer.capture_baseline()
    trainer.update_weights()
    assert_same(held(tmp_path / "store", 1), trainer.states[1])


def gen1_files(tmp_path: Path, count: int) -> tuple[list[State], Path]:
    """Versions of generation 1, without NaN: its receivers cannot take it."""
    all_states = [{name: np.nan_to_num(array) for name, array in state.items()} for state in states(count)]
    with dw.Publisher(f"memory:{tmp_path}/gen1") as publisher:
        for state in all_states:
            publisher.publish(state)
    dw.export_dialect("slime-gen1", f"memory:{tmp_path}/gen1", tmp_path / "ready1", buffer_bytes=8, work=tmp_path / "w1")
    return all_states, tmp_path / "ready1"


def test_generation_1_comes_in_five_calls(tmp_path: Path) -> None:
    all_states, ready = gen1_files(tmp_path, 3)
    args = Namespace(
        hf_checkpoint=str(write(tmp_path / "base", all_states[0])),
        update_weight_encoding="indices",
        update_weight_delta_dir=str(tmp_path / "deltas"),
        update_weight_delta_keep_files=False,
        custom_delta_pre_push_path="deltawire.slime.pre_push",
        deltawire_store=str(tmp_path / "store"),
        deltawire_work=str(tmp_path / "work"),
    )
    hook = load_function(args.custom_delta_pre_push_path)
    for number in (1, 2):
        folder = tmp_path / "deltas" / f"weight_v{number:06d}"
        folder.mkdir(parents=True)
        files = sorted(path for path in (ready / folder.name).iterdir() if path.suffix == ".safetensors")
        assert len(files) > 1
        for call in range(5):  # non-experts, then four passes over experts
            for file in files[call : call + 1] if call < 4 else files[4:]:
                shutil.copy(file, folder)
            assert hook(args, str(folder), []) is None
            assert (tmp_path / "store").exists() == (number > 1 or call == 4)
        assert_same(held(tmp_path / "store", number), all_states[number])
        with pytest.raises(dw.Conflict, match="called 6 times"):
            hook(args, str(folder), [])
        shutil.rmtree(folder)


def test_an_engine_reads_what_a_deltawire_trainer_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_states = states(4)
    with dw.Publisher(tmp_path / "store") as publisher:
        for state in all_states:
            publisher.publish(state)
    monkeypatch.setenv("DELTAWIRE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DELTAWIRE_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("DELTAWIRE_TIMEOUT", "0.3")
    source = tmp_path / "deltas"
    hook = load_function("deltawire.slime.pre_read")
    hook(str(source), 1)
    assert sorted(path.name for path in source.glob("weight_v*")) == ["weight_v000001"]
    hook(str(source), 3)
    hook(str(source), 3)  # another rank
    assert sorted(path.name for path in source.glob("weight_v*")) == [f"weight_v{n:06d}" for n in (1, 2, 3)]
    base = write(tmp_path / "model", all_states[0])  # what the engine has; then it reads slime's files
    dw.import_dialect("slime", source, tmp_path / "copy", base=base, work=tmp_path / "copy-work")
    assert_same(held(tmp_path / "copy", 3), all_states[3])
    with pytest.raises(dw.NotFound, match=r"version 9 did not come in 0.3 s"):
        hook(str(source), 9)


def sums(file: Path) -> dict[str, str]:
    contents = file.read_bytes()
    size = int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8 : 8 + size])
    spans = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: sha256(contents[8 + size + begin : 8 + size + end]).hexdigest() for name, (begin, end) in spans.items()}


def test_files_that_slime_itself_wrote(tmp_path: Path) -> None:
    """Made by its own code: NaN payloads, mixed dtypes."""
    root = DATA / "slime"
    source = next(root.glob("gen3_xor*"), None)
    assert source is not None
    args = Namespace(
        hf_checkpoint=str(root / "base.safetensors"),
        update_weight_disk_dir=str(tmp_path / "deltas"),
        deltawire_store=str(tmp_path / "store"),
        deltawire_work=str(tmp_path / "work"),
    )
    shutil.copytree(source, tmp_path / "deltas")
    slime.post_write(args, str(tmp_path / "deltas" / "weight_v000001"), [])
    with dw.Replica(tmp_path / "store", tmp_path / "pulled") as replica:
        assert replica.pull().version == 1
    [file] = (tmp_path / "pulled").glob("*.safetensors")
    assert sums(file) == json.loads((root / "expected_v000001.json").read_text())
