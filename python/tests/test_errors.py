"""Errors are exceptions from one table, and name the place."""

import re
from pathlib import Path

import numpy as np
import pytest

import deltawire as dw
from deltawire import errors

STATUS_H = Path(__file__).parents[2] / "include/deltawire/status.h"


def test_table_matches_the_library() -> None:
    codes = {int(number): name for name, number in re.findall(r"\bk(\w+) = (\d+),", STATUS_H.read_text()) if number != "0"}
    ours = {kind.exit_status: kind.__name__ for kind in dw.Error.__subclasses__()}
    assert {number: name.removesuffix("Error") for number, name in ours.items()} == codes
    for number in codes:
        assert type(errors.from_status(number, "x")).exit_status == number
    assert set(ours.values()) < set(dw.__all__)


def test_errors_derive_from_python_exceptions() -> None:
    assert issubclass(dw.InvalidArgument, ValueError)
    assert issubclass(dw.NotFound, LookupError)
    assert issubclass(dw.IoError, OSError)
    assert issubclass(dw.OutOfMemory, MemoryError)


@pytest.mark.parametrize(
    ("message", "tensor", "place"),
    [
        ('v1/part-00002, tensor "layers.7.up": xxh3-128 expected', "layers.7.up", 'v1/part-00002, tensor "layers.7.up"'),
        ('tensor "a\\"b": is given twice', 'a"b', 'tensor "a\\"b"'),
        ("s3://bucket/run/manifests/1.json: cut short", None, "s3://bucket/run/manifests/1.json"),
        ('codec "x" is not known; known: auto', None, None),
        ("", None, None),
    ],
)
def test_messages_name_tensor_and_place(message: str, tensor: str | None, place: str | None) -> None:
    error = dw.Corruption(message)
    assert (error.tensor, error.place) == (tensor, place)
    assert str(error) == (f"corruption: {message}" if message else "corruption")


def test_errors_say_what_to_do_next(tmp_path: Path) -> None:
    """The same advice as the command line tool's, without its flags."""
    with pytest.raises(dw.NotFound) as caught:
        dw.Chain(tmp_path / "empty")
    assert caught.value.next == "check the path; if it is right, publish first"
    assert dw.Unavailable("s3://b: no answer").next == "repeat it"
    assert dw.InvalidArgument("codec 'x' is not known").next is None
    for kind in dw.Error.__subclasses__():
        assert "--" not in (kind("x").next or "")


def test_reports_swapped_arguments(tmp_path: Path) -> None:
    store, local = tmp_path / "store", tmp_path / "local"
    dw.Publisher(store, {"w": np.zeros(4)}).publish()
    dw.Replica(store, local).pull()
    for wrong, words in ((store, "is a store, not a folder"), (tmp_path / "new", "is a replica's folder, not a store")):
        with pytest.raises(dw.InvalidArgument, match=words) as caught:
            dw.Replica(local, wrong)
        assert caught.value.next is not None
    with pytest.raises(dw.InvalidArgument, match="is a store, not a folder"):
        dw.Replica(store, Path("s3://bucket/run"))


def test_refuses_a_wrong_base_before_writing() -> None:
    old, new = {"w": np.zeros(100)}, {"w": np.ones(100)}
    delta = dw.diff(old, new)
    other = {"w": np.full(100, 7.0)}
    with pytest.raises(dw.BaseMismatch) as caught:
        delta.apply_(other)
    assert caught.value.tensor == "w"
    assert caught.value.code == "base mismatch"
    assert caught.value.exit_status == 7
    assert (other["w"] == 7).all()


def test_detects_a_damaged_delta(tmp_path: Path) -> None:
    path = tmp_path / "delta.safetensors"
    dw.diff({"w": np.zeros(100)}, {"w": np.ones(100)}).save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(dw.Corruption) as caught:
        dw.Delta.open(path)
    assert caught.value.place == str(path)


def test_reports_missing_things(tmp_path: Path, store: str) -> None:
    with pytest.raises(dw.NotFound):
        dw.Delta.open(tmp_path / "none.safetensors")
    with pytest.raises(dw.NotFound):
        dw.Chain(store)
    with pytest.raises(dw.NotFound):
        dw.read_replica_state(tmp_path)
    with pytest.raises(dw.NotFound):
        dw.TensorReplica(store, {"w": np.zeros(3)}).pull()
    dw.Publisher(store, {"w": np.zeros(3)}).publish()
    with pytest.raises(dw.NotFound):
        dw.Chain(store)[7]


def test_rejects_bad_arguments(store: str, tmp_path: Path) -> None:
    with pytest.raises(dw.InvalidArgument, match='codec "zip" is not known'):
        dw.diff({"w": np.zeros(3)}, {"w": np.ones(3)}, codec="zip")
    with pytest.raises(dw.InvalidArgument, match="overlap"):
        dw.Publisher(store).publish([("w", np.zeros(3)), ("w", np.zeros(3))])
    with pytest.raises(dw.InvalidArgument, match='tensor "w": .* leaves dimension 0'):
        dw.Publisher(store).publish({"w": dw.Tensor(np.zeros(3), shape=(4,), offset=(2,))})
    with pytest.raises(dw.InvalidArgument, match='tensor "w": .* bytes, the array has 24'):
        dw.Publisher(store).publish({"w": dw.Tensor(np.zeros(3), shape=(4,))})
    with pytest.raises(dw.Unsupported, match='dtype "F3" is not known'):
        dw.Publisher(store).publish({"w": dw.Tensor(np.zeros(3), "F3")})
    with pytest.raises(dw.InvalidArgument, match="do not make whole BF16"):
        dw.Publisher(store).publish({"w": dw.Tensor(np.zeros(3, np.uint8), "BF16")})


def test_closed_objects_raise(store: str, tmp_path: Path) -> None:
    publisher = dw.Publisher(store, {"w": np.zeros(3)})
    publisher.publish()
    publisher.close()
    publisher.close()
    with pytest.raises(dw.InvalidArgument, match="the publisher is closed"):
        publisher.publish()
    replica = dw.Replica(store, tmp_path)
    replica.close()
    replica.close()
    with pytest.raises(dw.InvalidArgument, match="the replica is closed"):
        replica.pull()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"w": [1, 2]}, 'tensor "w": list is not an array'),
        ({"w": np.array(["a"])}, 'tensor "w": numpy.ndarray has dtype <U1, which safetensors does not support'),
        ({1: np.zeros(3)}, "names of tensors must be str, not int: 1"),
        (np.zeros((2, 2)), r"a model must be a dict of arrays, or \(name, array\) pairs, not numpy.ndarray"),
        (3, "pairs, not int"),
    ],
)
def test_rejects_values_that_are_not_models(model: object, words: str, store: str) -> None:
    with pytest.raises(dw.InvalidArgument, match=words):
        dw.Publisher(store, model).publish()  # type: ignore[arg-type]


def test_unsupported_stores_name_an_alternative() -> None:
    with pytest.raises(dw.Unsupported, match="gs://bucket/run: no such kind of store; write s3://"):
        dw.Chain("gs://bucket/run")
