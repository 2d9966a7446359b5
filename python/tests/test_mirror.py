"""A chain in a second store."""

import threading
from pathlib import Path

import numpy as np

import deltawire as dw

Weights = dict[str, np.ndarray]


def publish(store: str, versions: int, *, weights: Weights | None = None) -> Weights:
    weights = {"w": np.arange(1000, dtype=np.float32)} if weights is None else weights
    with dw.Publisher(store, weights, anchors=dw.Anchors(by_bytes=False)) as publisher:
        for i in range(versions):
            weights["w"][i] += 1
            publisher.publish()
    return weights


def objects(folder: Path) -> dict[str, bytes]:
    kinds = ("run.json", "manifests", "parts", "full", "schemas", "hops", "files")
    found = (path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] in kinds)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_mirror_is_identical_and_serves_pulls(tmp_path: Path) -> None:
    source, copy, leaf = (str(tmp_path / name) for name in ("source", "copy", "leaf"))
    weights = publish(source, 4)
    copied = dw.maintenance.mirror(source, copy, all=True)
    assert [(one.kind, one.version) for one in copied] == [("version", i) for i in range(4)]
    assert "version 0" in repr(copied[0])
    dw.maintenance.mirror(copy, leaf, all=True)
    assert objects(tmp_path / "source") == objects(tmp_path / "copy") == objects(tmp_path / "leaf")
    mine = {"w": np.empty(1000, np.float32)}
    with dw.TensorReplica(leaf, mine) as replica:
        assert replica.pull().version == 3
    np.testing.assert_array_equal(mine["w"], weights["w"])
    assert dw.maintenance.mirror(source, copy) == []


def test_applies_retention_and_repairs(tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    publish(source, 6)
    dw.Chain(source).anchor(3)
    with dw.maintenance.Mirror(source, copy, keep=2, grace_seconds=0) as mirror:
        first = mirror.next()
        assert first is not None
        assert (first.begins, first.version) == (True, 3)
        assert first.collected is not None
        rest = list(mirror)
        assert (mirror.version, mirror.head, mirror.run) == (5, 5, dw.Chain(source).run)
        assert dw.Chain(copy).versions == [3, 4, 5]
        assert [one.version for one in rest] == [4, 5]
        part = next((tmp_path / "copy").glob("parts/*/*"))
        part.write_bytes(b"x" * part.stat().st_size)
        assert mirror.repair().num_repaired == 1
    assert dw.Chain(copy).fsck()


def test_follows_its_source(tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    weights = publish(source, 1)
    seen: list[int] = []

    def follow() -> None:
        with dw.maintenance.Mirror(source, copy) as mirror:
            for one in mirror.follow(interval=0.01, timeout=60):
                seen.append(one.version)
                if one.version == 3:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    publish(source, 3, weights=weights)
    thread.join(60)
    assert seen == [0, 1, 2, 3]
