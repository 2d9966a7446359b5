"""Refusals of a publisher and their messages: lost versions, other models, wrong arguments; and its hints."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltawire as dw


def model(value: float = 0, dtype: Any = np.float16) -> dict[str, Any]:
    return {"a": np.full((8, 8), value, dtype), "b": np.full(8, value, dtype)}


def test_does_not_continue_from_a_lost_version(store: str) -> None:
    objects, publisher = dw.open_store(store), dw.Publisher(store)
    for value in range(3):
        publisher.publish(model(value))
    objects.remove("manifests/0000000002.json")
    with pytest.raises(dw.Corruption, match="lost version 2 .* newest is version 1.*accept_loss"):
        publisher.publish(model(3))
    with dw.Publisher(store, options=dw.PublishOptions(accept_loss=True)) as accepting:
        version = accepting.publish(model(4))
        assert (version.number, version.full, version.reason) == (2, True, "accept_loss")


def test_refuses_another_model(store: str) -> None:
    dw.Publisher(store, model()).publish()
    other = {"b": np.zeros(9, np.float16), **{f"x.{i}": np.zeros(4, np.float16) for i in range(9)}}
    said = r'version 0: 9 tensors added \("x.0", "x.1", "x.2", ...\), 1 removed \("a"\), 1 with another shape or dtype .*schema_'
    for wait in (True, False):
        with pytest.raises(dw.InvalidArgument, match=said):
            dw.Publisher(store, other).publish(wait=wait)  # type: ignore[call-overload]
    version = dw.Publisher(store, other, options=dw.PublishOptions(schema_change=True)).publish()
    assert (version.number, version.num_added, version.num_removed, version.num_reshaped) == (1, 9, 1, 1)
    assert "9 tensors added, 1 tensor removed, 1 tensor reshaped" in repr(version)


def test_added_tensors_count_with_all_elements(store: str) -> None:
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
def test_gives_no_useless_hint(store: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """For rounded weights, few changes, other dtypes, other tensors."""
    publisher = dw.Publisher(store, **options)
    publisher.publish(model(0, np.float32))
    few = model(0, np.float32)
    few["b"][0] = 1
    publisher.publish(few)
    publisher.publish(model(2, np.float32) if "dtype" in options else {"other": np.ones(100, np.float32)})
    publisher.publish({"other": np.ones(100)} if "dtype" not in options else model(3, np.float32))
    assert not caplog.records


class _Module:
    """A module-like object that is invalid in either position."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((model(), "memory:swapped"), r"store is of type dict; the store comes first: dw.Publisher\(store, model\)"),
        ((_Module(), Path("store")), r"_Module; the store comes first"),
        ((_Module(), model()), r"_Module; a store is a path, a URL or a dw.Store"),
        (("memory:x", "/models/a"), r"of type str; give a model .*dw.Publisher\(store\).publish_checkpoint\(path\)"),
        (("memory:x", [np.zeros(2), np.zeros(3)]), r"contains a numpy.ndarray; .*dict\(model.named_parameters\(\)\)"),
        (("memory:x", [("a", np.zeros(2)), np.zeros((2, 2))]), r"contains a numpy.ndarray"),
        (("memory:x", iter([np.zeros(2)])), r"can be read only once; .*dict\(model.named_parameters\(\)\)"),
    ],
)
def test_errors_for_wrong_arguments_suggest_the_right_ones(arguments: tuple[Any, Any], said: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=said):
        dw.Publisher(*arguments)


def test_rejects_wrong_tensors_of_one_publish(store: str) -> None:
    publisher = dw.Publisher(store)
    for wrong in ([np.zeros(2)], (np.zeros(2) for _ in range(2)), "weights"):
        with pytest.raises(dw.InvalidArgument, match="a model must be a dict of arrays"):
            publisher.publish(wrong)  # type: ignore[arg-type]
    publisher.publish(model().items())
