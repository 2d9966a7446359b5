"""What a publisher refuses, and what it says: lost versions, other models, wrong arguments; and what it hints at."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw


def model(value: float = 0, dtype: Any = np.float16) -> dict[str, Any]:
    return {"a": np.full((8, 8), value, dtype), "b": np.full(8, value, dtype)}


def manifest(number: int) -> str:
    return f"manifests/{number:010}.json"


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_lost_version_is_not_built_upon(store: str, kind: str, tmp_path: Path) -> None:
    objects, snapshot = dw.open_store(store), "memory" if kind == "memory" else tmp_path
    publisher = dw.Publisher(store, snapshot=snapshot)
    for value in range(3):
        publisher.publish(model(value))
    lost = objects.get(manifest(2))
    objects.remove(manifest(2))
    for _ in range(2):
        with pytest.raises(dw.Corruption, match="lost version 2 .* newest is version 1.*accept_loss"):
            publisher.publish(model(3))
    objects.put(manifest(2), lost)
    assert publisher.publish(model(3)).number == 3

    objects.remove(manifest(3))
    publisher.close()
    if kind == "folder":
        with pytest.raises(dw.Corruption, match="lost version 3"):
            dw.Publisher(store, snapshot=snapshot)
    with dw.Publisher(store, snapshot=snapshot, options=dw.PublishOptions(accept_loss=True)) as accepting:
        version = accepting.publish(model(4))
        assert (version.number, version.full) == (3, True)
        assert version.reason == ("the store lost version 3" if kind == "folder" else "accept_loss")
        assert not accepting.publish({**model(4), "b": np.full(8, 5, np.float16)}).full
    assert dw.Chain(store).fsck()


def test_another_model_is_refused(store: str) -> None:
    dw.Publisher(store, model()).publish()
    other = {"b": np.zeros(9, np.float16), **{f"x.{i}": np.zeros(4, np.float16) for i in range(9)}}
    said = r'version 0: 9 tensors added \("x.0", "x.1", "x.2", ...\), 1 removed \("a"\), 1 with another shape or dtype .*schema_'
    for wait in (True, False):
        with pytest.raises(dw.InvalidArgument, match=said):
            dw.Publisher(store, other).publish(wait=wait)  # type: ignore[call-overload]
    version = dw.Publisher(store, other, options=dw.PublishOptions(schema_change=True)).publish()
    assert (version.number, version.num_added, version.num_removed, version.num_reshaped) == (1, 9, 1, 1)
    assert "9 tensors added, 1 tensor removed, 1 tensor reshaped" in repr(version)


def test_tensors_that_come_count_with_all_elements(store: str) -> None:
    weights = {"w": np.zeros(1000, np.float16)}
    publisher = dw.Publisher(store, lambda: weights, options=dw.PublishOptions(schema_change=True))
    publisher.publish()
    weights["new"] = np.ones(100, np.float16)
    version = publisher.publish()
    assert (version.num_changed, version.num_elements) == (100, 1100)
    assert repr(version).startswith("PublishReport(number=1, 100 of 1,100 changed (9.091 %), 1 tensor added, ")
    del weights["w"], weights["new"]
    weights["empty"] = np.zeros(0, np.float16)
    assert "0 of 0" not in repr(publisher.publish())


@pytest.mark.parametrize("wait", [True, False])
def test_float32_masters_get_one_hint(store: str, wait: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "deltawire")
    publisher = dw.Publisher(store)

    def publish(value: float) -> dw.reports.PublishReport:
        published = publisher.publish(model(value, np.float32), wait=wait)  # type: ignore[call-overload]
        version: dw.reports.PublishReport = published if wait else published.result()
        return version

    assert not publish(0).dense_float32, "not the seed"
    assert not caplog.records
    assert publish(1).dense_float32
    assert len(caplog.records) == 1
    assert 'dtype="bfloat16"' in caplog.text
    assert not publish(2).dense_float32, "said once"
    assert len(caplog.records) == 1
    publisher.close()


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"options": dw.PublishOptions(schema_change=True)}])
def test_no_hint_where_it_does_not_help(store: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """What is rounded already, few changes, other dtypes, other tensors."""
    publisher = dw.Publisher(store, **options)
    publisher.publish(model(0, np.float32))
    few = model(0, np.float32)
    few["b"][0] = 1
    publisher.publish(few)
    publisher.publish(model(2, np.float32) if "dtype" in options else {"other": np.ones(100, np.float32)})
    publisher.publish({"other": np.ones(100)} if "dtype" not in options else model(3, np.float32))
    assert not caplog.records


class _Module:
    """What has no place in either position."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((model(), "memory:swapped"), r"store is of type dict; the store comes first: dw.Publisher\(store, model\)"),
        ((_Module(), Path("store")), r"_Module; the store comes first"),
        ((_Module(), model()), r"_Module; a store is a path, a URL or a dw.Store"),
        (("memory:x", "/models/a"), r"of type str; give a model .*dw.Publisher\(store\).publish_checkpoint\(path\)"),
        (("memory:x", [np.zeros(2), np.zeros(3)]), r"numpy.ndarray, which has no name; .*dict\(model.named_parameters\(\)\)"),
        (("memory:x", [("a", np.zeros(2)), np.zeros((2, 2))]), r"holds a numpy.ndarray, which has no name"),
        (("memory:x", iter([np.zeros(2)])), r"can be read only once; .*dict\(model.named_parameters\(\)\)"),
    ],
)
def test_wrong_arguments_say_what_to_write(arguments: tuple[Any, Any], said: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=said):
        dw.Publisher(*arguments)


def test_wrong_tensors_of_one_publish(store: str) -> None:
    publisher = dw.Publisher(store)
    for wrong in ([np.zeros(2)], (np.zeros(2) for _ in range(2)), "weights"):
        with pytest.raises(dw.InvalidArgument, match="a model is a dict of arrays"):
            publisher.publish(wrong)  # type: ignore[arg-type]
    publisher.publish(model().items())


def test_folders_and_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/letter.txt").touch()
    with pytest.raises(dw.InvalidArgument, match='neither empty nor a store: it holds "letter.txt"'):
        dw.Publisher(tmp_path / "papers", model())
    assert [path.name for path in (tmp_path / "papers").iterdir()] == ["letter.txt"]
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(60))
    publisher = dw.Publisher(tmp_path / "store")
    with pytest.raises(dw.Unsupported, match=r"as torch\.save writes it"):
        publisher.publish_checkpoint(tmp_path / "pytorch_model.bin")
    publisher.publish(model())
    with pytest.raises(dw.InvalidArgument, match="a store, not a checkpoint"):
        publisher.publish_checkpoint(tmp_path / "store")
