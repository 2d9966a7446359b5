"""Maintenance of a chain: plans, pins, gc, merged deltas, anchors, fsck; also in a store written in Python."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from test_stores import DictStore

import deltawire as dw


def published(store: dw.Store | str, versions: int = 10, **options: object) -> None:
    weights = {"w": np.zeros(100_000, np.uint8)}
    with dw.Publisher(store, weights, **options) as publisher:  # type: ignore[arg-type]
        for step in range(versions):
            weights["w"][step] = 1
            publisher.publish()


@pytest.fixture(params=["python", "memory"])
def place(request: pytest.FixtureRequest, store: str) -> dw.Store | str:
    """A store written in Python, and a built-in one."""
    return DictStore() if request.param == "python" else store


def test_maintains_a_chain(place: dw.Store | str, tmp_path: Path) -> None:
    published(place)
    chain = dw.Chain(place)
    assert len(chain.plan(from_version=1).hops) == 8
    compacted = chain.compact(spans=[4], work=tmp_path)
    assert [(one.base, one.version, one.written) for one in compacted.merged] == [(0, 4, True), (4, 8, True)]
    assert chain.compact(spans=[4], work=tmp_path).num_there == 2
    plan = chain.plan(from_version=4)
    assert [(hop.kind, hop.from_version, hop.version) for hop in plan.hops] == [("merged", 4, 8), ("delta", 8, 9)]
    assert plan.bytes == sum(part.size_bytes for hop in plan.hops for part in hop.parts)
    assert repr(plan).startswith("Plan(version=9, 2 hops, ")

    anchored = chain.anchor(8, work=tmp_path)
    assert (anchored.version, anchored.written) == (8, True)
    assert not chain.anchor(8, work=tmp_path).written
    chain.pin(2)
    assert chain.pins == [2]
    assert chain.gc(2, grace_seconds=0, dry_run=True).num_versions == 5
    assert len(chain) == 10
    collected = chain.gc(2, grace_seconds=0)
    assert (collected.num_versions, collected.kept) == (5, ((0, 2), (8, 9)))
    assert [(kept.why, kept.first, kept.last, kept.anchor) for kept in collected.reasons] == [
        ("newest", 8, 9, 8),
        ("pinned", 2, 2, 0),
    ]
    chain.unpin(2)
    assert chain.gc(2, grace_seconds=0).num_versions == 3
    assert chain.versions == [8, 9]
    checked = chain.fsck(work=tmp_path)
    assert checked, checked.problems
    assert checked.num_decoded == 2
    mine = {"w": np.zeros(100_000, np.uint8)}
    assert dw.TensorReplica(place, mine).pull().version == 9
    assert mine["w"].sum() == 10


def test_anchor_of_plain_files_is_a_checkpoint(tmp_path: Path) -> None:
    weights = {"w": np.linspace(-1, 1, 100_000, dtype=np.float32)}
    with dw.Publisher(tmp_path / "store", weights) as publisher:
        for version in range(3):
            weights["w"][version] = 7
            publisher.publish()
    chain = dw.Chain(tmp_path / "store")
    for version, name in (1, "model.safetensors.packed"), (2, "model.safetensors"):
        assert chain.anchor(version, plain_files=version == 2, work=tmp_path).written
        (anchor,) = (tmp_path / "store" / "full").glob(f"{version:010}-*")
        assert [one.name for one in anchor.iterdir() if "safetensors" in one.name] == [name]


def test_rejects_invalid_arguments(place: dw.Store | str) -> None:
    published(place, 2)
    chain = dw.Chain(place)
    for wrong in (lambda: chain.pin(7), lambda: chain.unpin(0), lambda: chain.plan(7), lambda: chain.anchor(7)):
        with pytest.raises(dw.NotFound):
            wrong()
    for wrong in (lambda: chain.gc(0), lambda: chain.compact(spans=[1]), lambda: chain.compact(spans=[])):
        with pytest.raises(dw.InvalidArgument):
            wrong()
    for wrong in (lambda: chain.pin(-1), lambda: chain.gc(-1), lambda: chain.plan("1")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong()
    assert chain.fsck()


def test_fsck_detects_damage() -> None:
    store = DictStore()
    published(store, 3)
    chain = dw.Chain(store)
    part = chain[1].parts[0].name
    store.objects[part] = store.objects[part][:-1] + bytes([store.objects[part][-1] ^ 1])
    assert chain.fsck(quick=True)
    checked = chain.fsck()
    assert not checked
    assert any(part in problem for problem in checked.problems)
    assert repr(checked).startswith("FsckReport(DAMAGED: 3 versions, 1 decoded")


def test_lists_replicas(place: dw.Store | str) -> None:
    published(place, 2)
    chain = dw.Chain(place)
    assert chain.replicas == []
    replica = dw.TensorReplica(place, {"w": np.zeros(100_000, np.uint8)}, name="engine-1")
    replica.pull()
    while not (found := [one for one in chain.replicas if one.held is not None]):
        time.sleep(0.01)  # heartbeats are written in the background
    [seen] = found
    assert (seen.name, seen.held, seen.serving, seen.error) == ("engine-1", chain[1].identity, None, "")
    assert (seen.gone, seen.interval_seconds) == (False, 60)
    dw_store = place if isinstance(place, dw.Store) else dw.open_store(place)
    dw_store.put("replicas/broken.json", b"{")
    assert [bool(one.error) for one in chain.replicas] == [True, False]


def test_forgets_replicas_that_are_gone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    published(str(store), 2)
    dw.Replica(store, tmp_path / "local", name="engine-1").pull()
    chain = dw.Chain(store)
    while not chain.replicas:
        time.sleep(0.01)  # heartbeats are written in the background
    with pytest.raises(dw.NotFound, match="no such replica"):
        chain.forget("engine-2")
    with pytest.raises(dw.Conflict, match="is not gone") as caught:
        chain.forget("engine-1")
    assert caught.value.next == "end it first, or remove its heartbeat by force"
    os.utime(store / "replicas/engine-1.json", (1e9, 1e9))
    [seen] = chain.replicas
    assert seen.gone
    assert seen.age_seconds > 1e8
    assert chain.forget("engine-1") == 1
    assert chain.replicas == []


def test_lists_side_files(store: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    dw.Publisher(store, {"w": np.zeros(4)}).publish(extra_files=[config])
    [file] = dw.Chain(store)[0].files
    assert (file.name, file.size_bytes) == ("config.json", 2)


def test_reports_progress_and_can_be_cancelled(store: str, tmp_path: Path) -> None:
    published(store)
    told: list[tuple[int, int]] = []
    assert dw.Chain(store, progress=lambda done, total: told.append((done, total))).fsck(work=tmp_path)
    assert told
    with pytest.raises(dw.Cancelled):
        dw.Chain(store, progress=lambda done, total: False).fsck(work=tmp_path)


def test_replaces_a_lost_run(tmp_path: Path) -> None:
    weights = {"w": np.zeros(4)}
    with dw.Publisher(tmp_path / "store", weights, snapshot=tmp_path / "snapshot") as publisher:
        first = publisher.publish().run
    (tmp_path / "store").rename(tmp_path / "gone")
    with pytest.raises(dw.NotFound):
        dw.Publisher(tmp_path / "store", weights, snapshot=tmp_path / "snapshot")
    with dw.Publisher(
        tmp_path / "store", weights, snapshot=tmp_path / "snapshot", options=dw.PublishOptions(new_run=True)
    ) as publisher:
        assert publisher.publish().run != first
