"""Import and export of other projects' versions from Python; tests/bridge tests the details."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw


@pytest.fixture
def weights() -> dict[str, Any]:
    return {"w": np.arange(4096, dtype=np.float32), "b": np.zeros(8, np.float32)}


def publish(store: Any, weights: dict[str, Any], count: int) -> None:
    with dw.Publisher(store, weights) as publisher:
        for _ in range(count):
            publisher.publish()
            weights["w"][:3] += 1


def base_of(store: Any, folder: Path) -> Path:
    with dw.Replica(store, folder, heartbeat=False) as replica:
        replica.pull(0)
    return folder


def held(store: Any, version: int) -> dict[str, Any]:
    arrays = {spec.name: np.empty(spec.shape, np.float32) for spec in dw.Chain(store).tensors(version)}
    with dw.TensorReplica(store, arrays, heartbeat=False) as replica:
        replica.pull(version)
    return arrays


def test_lists_dialects() -> None:
    names = dw.dialects.names()
    assert {"slime", "trl"} == names.keys()
    assert all(names.values())


@pytest.mark.parametrize("dialect", ["slime", "trl"])
def test_round_trip_keeps_numbers(dialect: str, store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    publish(store, weights, 4)
    exported = dw.dialects.export_dialect(dialect, store, tmp_path / "theirs", work=tmp_path / "e")
    assert [one.version for one in exported] == [1, 2, 3]
    assert {one.target.dialect for one in exported} == {dialect}
    base = None if dialect == "trl" else base_of(store, tmp_path / "base")  # TRL's first version is whole
    imported = dw.dialects.import_dialect(dialect, tmp_path / "theirs", tmp_path / "store", base=base, work=tmp_path / "i")
    assert [one.version for one in imported] == ([1, 2, 3] if base is None else [0, 1, 2, 3])
    assert [one.base for one in imported] == [base is not None, False, False, False][: len(imported)]
    for number in (1, 2, 3):
        ours, theirs = held(tmp_path / "store", number), held(store, number)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert dw.dialects.import_dialect(dialect, tmp_path / "theirs", tmp_path / "store", base=base, work=tmp_path / "i") == []


def test_options_reach_the_writer(store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    publish(store, weights, 3)
    options: dict[str, Any] = {"encoding": "overwrite", "checksum": "adler32", "first": 1, "last": 1, "work": tmp_path / "e"}
    [one] = dw.dialects.export_dialect("slime", store, tmp_path / "theirs", **options)
    assert (one.target.encoding, one.target.checksum, one.target.full) == ("overwrite", "adler32", False)
    [full] = dw.dialects.export_dialect("slime", store, tmp_path / "whole", full=True, last=1, work=tmp_path / "f")
    assert full.target.full
    assert repr(full).startswith("ExportReport(version=1, slime full, ")


def test_follow_continues_with_new_versions(store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    publish(store, weights, 2)
    with dw.dialects.Exporter("slime", store, tmp_path / "theirs", work=tmp_path / "e", last=3) as exporter:
        seen = []
        for exported in exporter.follow(interval=0.01, timeout=10):
            seen.append(exported.version)
            if len(seen) < 3:
                publish(store, weights, 2)
        assert (seen, exporter.done, exporter.num_skipped) == ([1, 2, 3], True, 0)
    base = base_of(store, tmp_path / "base")
    with dw.dialects.Importer("slime", tmp_path / "theirs", tmp_path / "store", base=base, work=tmp_path / "i") as importer:
        assert importer.head is None
        assert [one.version for one in importer.follow(interval=0.01, timeout=0.05)] == [0, 1, 2, 3]
        assert importer.head == 3
        assert importer.run == dw.Chain(tmp_path / "store").run
        assert not importer.done


def test_errors_are_package_exceptions(store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    publish(store, weights, 1)
    with pytest.raises(dw.InvalidArgument, match="latin"):
        dw.dialects.export_dialect("latin", store, tmp_path / "theirs", work=tmp_path / "e")
    with pytest.raises(TypeError, match="Importer has no option 'bases'; did you mean base=...?"):
        dw.dialects.import_dialect("slime", tmp_path, tmp_path / "store", bases=1)


def test_closed_objects_raise(store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    publish(store, weights, 2)
    exporter = dw.dialects.Exporter("slime", store, tmp_path / "theirs", work=tmp_path / "e")
    exporter.close()
    exporter.close()
    with pytest.raises(dw.InvalidArgument, match="is closed"):
        exporter.next()


def test_slime_hook_publishes_each_version(store: str, tmp_path: Path, weights: dict[str, Any]) -> None:
    """As in docs/migration.md: called once before the first version, and after each."""
    publish(store, weights, 4)
    dw.dialects.export_dialect("slime", store, tmp_path / "theirs", work=tmp_path / "e")
    base, folder = base_of(store, tmp_path / "base"), tmp_path / "updates"

    def post_write() -> list[int]:
        imported = dw.dialects.import_dialect(
            "slime", folder, tmp_path / "store", base=base, source_may_be_empty=True, work=tmp_path / "i"
        )
        return [one.version for one in imported]

    def write(number: int) -> None:
        shutil.copytree(tmp_path / f"theirs/weight_v{number:06d}", folder / f"weight_v{number:06d}")

    folder.mkdir()
    assert post_write() == [0]
    write(1)
    assert (post_write(), post_write()) == ([1], [])
    write(2)  # whose call never came
    write(3)
    assert post_write() == [2, 3]
    shutil.rmtree(folder)
    folder.mkdir()
    write(1)  # a run that began again
    with pytest.raises(dw.BaseMismatch, match="another run"):
        post_write()
