"""Option groups: invalid combinations are refused, and the message says what to write."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from rank_processes import ThreadRank, thread_ranks

import deltawire as dw
from deltawire.__main__ import PROGRAM

WEIGHTS = {"w": np.arange(1000, dtype=np.float32)}


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("sign", "write keys=dw.Keys(sign=...)"),
        ("sign_key", "did you mean keys=dw.Keys(sign=...)?"),
        ("threads", "write options=dw.PublishOptions(limits=dw.Limits(threads=...))"),
        ("include", "write select=dw.Select(include=...)"),
        ("anchor_every", "did you mean anchors=dw.Anchors(every=...)?"),
        ("timeout_seconds", "write options=dw.PublishOptions(hook_before_commit=dw.Hook(timeout_seconds=...))"),
        ("snapshoot", "did you mean snapshot=...?"),
        ("zzz", "it has store, tensors, dtype, select,"),
    ],
)
def test_unknown_option_names_its_group(store: str, option: str, advice: str) -> None:
    with pytest.raises(TypeError) as raised:
        dw.Publisher(store, WEIGHTS, **{option: 1})  # type: ignore[arg-type]
    assert f"Publisher has no option '{option}'" in str(raised.value)
    assert advice in str(raised.value)


def test_unknown_options_of_replicas_and_chains(store: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Replica has no option 'trust_key'; did you mean accept=dw\.Accept\(trust=\.\.\.\)\?"):
        dw.Replica(store, tmp_path, trust_key="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"write cuda=dw\.Cuda\(stream=\.\.\.\)"):
        dw.TensorReplica(store, WEIGHTS, stream=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"write keys=dw\.Keys\(trust=\.\.\.\)"):
        dw.Chain(store, trust="x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"keys": "trainer"}, "keys='trainer': must be dw.Keys(sign=...)"),
        ({"anchors": 50}, 'anchors=50: must be dw.Anchors(every=...) or "only"'),
        ({"anchors": "all"}, "must be dw.Anchors(every=...)"),
        ({"options": {"limits": 1}}, "options={'limits': 1}: must be dw.PublishOptions(hook_before_commit=...)"),
        ({"options": dw.PublishOptions(limits=dw.Limits(threads=-1))}, "Limits(threads=-1): must be a whole number, 0 or more"),
        ({"options": dw.PublishOptions(part_bytes="1")}, "PublishOptions(part_bytes='1'): must be a whole number"),  # type: ignore[arg-type]
        ({"anchors": dw.Anchors(every=1.5)}, "Anchors(every=1.5): must be a whole number"),  # type: ignore[arg-type]
        ({"anchors": dw.Anchors(by_bytes="no")}, "must be True or False"),  # type: ignore[arg-type]
        ({"keys": dw.Keys(sign=3)}, "Keys(sign=3): must be a path"),  # type: ignore[arg-type]
        ({"options": dw.PublishOptions(hook_before_commit=dw.Hook("true", "long"))}, "must be a number"),  # type: ignore[arg-type]
    ],
)
def test_names_values_of_the_wrong_type(store: str, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(TypeError) as raised:
        dw.Publisher(store, WEIGHTS, **options)
    assert advice in str(raised.value)


def test_names_groups_of_the_wrong_type() -> None:
    with pytest.raises(TypeError, match=r"PublishOptions: hook_before_commit='exit 3': must be dw.Hook\(command=...\)"):
        dw.PublishOptions(hook_before_commit="exit 3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("contradiction", "words"),
    [
        (lambda store: dw.Publisher(store, WEIGHTS, anchors="only", snapshot="pinned"), "there is no snapshot"),
        (lambda store: dw.Publisher(store, WEIGHTS, anchors="only", snapshot="device"), "there is no snapshot"),
        (lambda store: dw.Publisher(store, WEIGHTS, snapshot=""), 'omit it, or use "memory"'),
        (lambda store: dw.Publisher(store, snapshot="folder", group=thread_ranks(2)[0]), "in memory, not in a folder"),
        (lambda store: dw.Publisher(store, WEIGHTS, group=ThreadRank(2, 2, [], Barrier(2))), "rank 2 of 2"),
        (lambda store: dw.Publisher(store, WEIGHTS, group="world"), "group: str is neither a torch process group nor"),
        (lambda store: dw.Publisher(store, WEIGHTS, group=thread_ranks(2)[0]).publish_checkpoint("x"), "from one process"),
        (lambda store: dw.Publisher(store, WEIGHTS, keys=dw.Keys(change=True)), 'give the new key, or "unsigned"'),
        (lambda store: dw.Publisher(store, WEIGHTS, keys=dw.Keys(sign="key", change="unsigned")), "exclude each other"),
        (lambda store: dw.TensorReplica(store, WEIGHTS, select=dw.Select(trainable_only=True)), "trainable"),
        (lambda _: dw.Keys(sign=""), "omit it if it is not needed"),
        (lambda _: dw.Keys(change="never"), 'must be False, True or "unsigned"'),  # type: ignore[arg-type]
        (lambda _: dw.Accept(trust=""), "omit it if it is not needed"),
        (lambda _: dw.Hook(""), "omit the hook"),
    ],
)
def test_refuses_contradictions(store: str, contradiction: Callable[[str], object], words: str) -> None:
    with pytest.raises(dw.InvalidArgument) as raised:
        contradiction(store)
    assert words in str(raised.value)


def test_passes_groups_to_the_library(store: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with dw.Publisher(
        store,
        dict(WEIGHTS),
        select=dw.Select(rename=str.upper),
        anchors=dw.Anchors(every=np.int64(2), by_bytes=False),  # type: ignore[arg-type]
        options=dw.PublishOptions(
            hook_before_commit=dw.Hook(f"echo $DELTAWIRE_VERSION >> {log}", timeout_seconds=60),
            limits=dw.Limits(threads=1, memory_bytes=64 << 20),
        ),
        keys=None,
    ) as publisher:
        anchored = []
        for step in range(5):
            weights = {"w": WEIGHTS["w"] + np.float32(step == np.arange(1000))}
            anchored.append(publisher.publish(weights).anchored)
        run = publisher.run
    assert anchored == [False, False, True, False, True]
    assert log.read_text().split() == ["0", "1", "2", "3", "4"]
    local = tmp_path / "local"
    with dw.Replica(store, local, accept=dw.Accept(run=run, at_least=4), copy_on_write=dw.CopyOnWrite(keep=0)) as replica:
        assert replica.pull().path.name == "v0000000004"
    with pytest.raises(dw.BaseMismatch, match="but the requested run is"):
        dw.Replica(store, tmp_path / "other", accept=dw.Accept(run="0" * 32)).pull()
    with pytest.raises(dw.NotFound, match="the oldest accepted version is 9"):
        dw.TensorReplica(store, {"W": np.zeros(1000, np.float32)}, accept=dw.Accept(at_least=9)).pull()


def test_publishes_only_anchors(store: str) -> None:
    weights = {"w": WEIGHTS["w"].copy()}
    with dw.Publisher(store, weights, anchors="only") as publisher:
        for step in range(3):
            weights["w"][step] += 1
            version = publisher.publish()
            assert (version.number, version.full) == (step, True)
        assert publisher.memory() == dw.reports.SnapshotMemory(host=0, pinned=0, device=0, disk=0)


def test_missing_key_does_not_end_the_signing(store: str, tmp_path: Path) -> None:
    if not PROGRAM.exists():
        pytest.skip("the command line tool is not built")
    for name in ("old", "new"):
        subprocess.run([PROGRAM, "keygen", "-o", tmp_path / name], check=True, capture_output=True)
    weights = {"w": WEIGHTS["w"].copy()}

    def signed_by(keys: dw.Keys) -> str:
        weights["w"] += 1
        dw.Publisher(store, weights, keys=keys).publish()
        return dw.Chain(store)[-1].signed_by

    old = signed_by(dw.Keys(sign=tmp_path / "old"))
    assert len(dw.Chain(store, keys=dw.Keys(trust=tmp_path / "old.pub"))) == 1
    with pytest.raises(dw.Corruption):
        dw.Chain(store, keys=dw.Keys(trust=tmp_path / "new.pub"))[0]
    with pytest.raises(dw.InvalidArgument, match="the new record would be unsigned"):
        signed_by(dw.Keys())
    with pytest.raises(dw.InvalidArgument, match="no signing key is given"):
        signed_by(dw.Keys(change=True))
    assert dw.Chain(store).head == 0
    assert signed_by(dw.Keys(sign=tmp_path / "new", change=True)) not in ("", old)
    assert signed_by(dw.Keys(change="unsigned")) == ""


def test_version_reports_its_codec(store: str) -> None:
    weights = {"w": np.arange(1000, dtype=np.float32)}
    publisher = dw.Publisher(store, weights, codec="gaps")
    publisher.publish()
    weights["w"][3] += 1
    version = publisher.publish()
    assert version.codec == "gaps"
    with pytest.raises(dw.InvalidArgument, match='codec "quickest" is not known'):
        dw.Publisher(store, weights, codec="quickest")
