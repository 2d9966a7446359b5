"""Stores: built in, and written in Python."""

import threading
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from states import bits, blank

import deltawire as dw


class DictStore(dw.Store):
    """Objects in a dict; `before` is called with each call's name and object, and may raise."""

    retries = 2

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.calls: list[str] = []
        self.before: Callable[[str, str], None] = lambda call, name: None

    def _enter(self, call: str, name: str) -> None:
        self.calls.append(call)
        self.before(call, name)

    def put(self, name: str, data: bytes) -> None:
        self._enter("put", name)
        self.objects[name] = data

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._enter("put_if_absent", name)
        with self.lock:
            if name in self.objects:
                raise dw.Conflict(f"{name} is there")
            self.objects[name] = data

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        self._enter("get", name)
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name][offset : None if length is None else offset + length]

    def stat(self, name: str) -> dw.ObjectInfo:
        self._enter("stat", name)
        if name not in self.objects:
            raise dw.NotFound(name)
        return dw.ObjectInfo(name, len(self.objects[name]))

    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[dw.ObjectInfo]:
        self._enter("list", prefix)
        names = sorted(name for name in list(self.objects) if name.startswith(prefix) and name > start_after)
        return [dw.ObjectInfo(name, len(self.objects[name])) for name in names[:limit]]

    def remove(self, name: str) -> None:
        self._enter("remove", name)
        self.objects.pop(name, None)


@pytest.fixture(params=["memory", "folder", "python"])
def any_store(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> dw.Store:
    return {"memory": lambda: dw.open_store(store), "folder": lambda: dw.open_store(tmp_path / "store"), "python": DictStore}[
        request.param
    ]()


def test_store_keeps_its_promises(any_store: dw.Store) -> None:
    store = any_store
    assert list(store.list()) == []
    with pytest.raises((dw.NotFound, FileNotFoundError)):
        store.get("a/b")
    with pytest.raises((dw.NotFound, FileNotFoundError)):
        store.stat("a/b")
    store.remove("a/b")
    for name in "a/b", "a/c", "ab":
        store.put(name, name.encode() * 3)
    store.put("a/b", b"0123456789")
    assert store.get("a/b") == b"0123456789"
    assert store.get("a/b", 3) == b"3456789"
    assert store.get("a/b", 3, 2) == b"34"
    assert store.get("a/b", 8, 100) == b"89"
    assert store.get("a/b", 10, 1) == b""
    assert store.stat("a/b").size_bytes == 10
    with pytest.raises(dw.Conflict):
        store.put_if_absent("a/b", b"mine")
    store.put_if_absent("a/d", b"")
    assert store.get("a/d") == b""
    assert [info.name for info in store.list()] == ["a/b", "a/c", "a/d", "ab"]
    assert [info.name for info in store.list("a/")] == ["a/b", "a/c", "a/d"]
    assert [info.name for info in store.list("a/c")] == ["a/c"]
    assert [info.name for info in store.list("a/", "a/b", 1)] == ["a/c"]
    assert [info.size_bytes for info in store.list("a/")] == [10, 9, 0]
    store.remove("a/b")
    assert [info.name for info in store.list("a/b")] == []
    assert store.url in repr(store)


def test_chains_work_in_every_store(any_store: dw.Store, tmp_path: Path) -> None:
    weights = {"w": np.zeros(10_000, np.float32), "b": np.zeros(10)}
    mine = blank(weights)
    with dw.Publisher(any_store, weights, options=dw.PublishOptions(single_writer=True)) as publisher:
        publisher.publish()
        replica = dw.TensorReplica(any_store, mine)
        files = dw.Replica(any_store, tmp_path / "replica")
        for step in range(3):
            weights["w"][step::100] += 1
            number = publisher.publish().number
            assert replica.pull().version == files.pull().version == number == step + 1
            assert bits(mine) == bits(weights)
        files.close()
    assert dw.Chain(any_store).head == 3
    assert len(dw.Chain(any_store)) == 4


def test_store_without_conditional_put_needs_single_writer() -> None:
    class Plain(DictStore):
        can_put_if_absent = False

    with pytest.raises(dw.Unsupported, match="single"):
        dw.Publisher(Plain(), {"w": np.zeros(3)}).publish()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (dw.Corruption("bad"), dw.Corruption),
        (PermissionError("no"), dw.IoError),
        (TimeoutError("slow"), dw.Unavailable),
        (ConnectionError("the network is down"), dw.Unavailable),
        (NotImplementedError("never"), dw.Unsupported),
        (MemoryError("much"), dw.OutOfMemory),
        (ZeroDivisionError("bug"), dw.InternalError),
    ],
)
def test_maps_exceptions_to_errors(raised: Exception, expected: type[dw.Error]) -> None:
    store = DictStore()

    def fail(call: str, name: str) -> None:
        if call == "put":
            raise raised

    store.before = fail
    with pytest.raises(expected, match=f"DictStore/.*{raised.args[0]}") as caught:
        dw.Publisher(store, {"w": np.zeros(3)}).publish()
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("failures", [2, 3])
def test_retries_unavailable_as_the_store_configures(failures: int) -> None:
    store, raised = DictStore(), [dw.Unavailable(f"not now {i}") for i in range(failures)]
    left = list(raised)

    def fail(call: str, name: str) -> None:
        if call == "put" and left:
            raise left.pop(0)

    store.before = fail
    publisher = dw.Publisher(store, {"w": np.zeros(3)}, options=dw.PublishOptions(limits=dw.Limits(threads=1)))
    if failures <= store.retries:
        assert publisher.publish().number == 0
    else:
        with pytest.raises(dw.Unavailable, match="not now 2") as caught:
            publisher.publish()
        assert caught.value.__cause__ is raised[-1]
        assert publisher.publish().number == 0  # it has passed
    assert left == []


def test_rejects_invalid_answers() -> None:
    class Nonsense(DictStore):
        def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            return 7  # type: ignore[return-value]

    with pytest.raises(dw.InternalError, match="bytes-like object is required, not .int."):
        dw.Chain(Nonsense())


def test_detects_truncated_objects() -> None:
    store = DictStore()
    weights = {"w": np.zeros(1000)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    weights["w"][:] = np.arange(1000)
    publisher.publish()
    for name in store.objects:
        if name.endswith(".safetensors"):
            store.objects[name] = store.objects[name][:-1]
    with pytest.raises(dw.Corruption):
        dw.TensorReplica(store, blank(weights)).pull()


class _Mapped:
    """A file that slices into views of itself."""

    def __init__(self, path: Path) -> None:
        self.bytes = np.memmap(path, np.uint8, "r")

    def __len__(self) -> int:
        return self.bytes.size

    def __getitem__(self, where: slice) -> memoryview:
        return memoryview(self.bytes[where])


def test_reads_large_objects_in_pieces(tmp_path: Path) -> None:
    weights = {"w": np.arange(24 << 20, dtype=np.uint16)}
    store = DictStore()
    dw.Publisher(store, weights).publish()
    for at, name in enumerate(list(store.objects)):
        if name.endswith(".safetensors"):
            (tmp_path / str(at)).write_bytes(store.objects[name])
            store.objects[name] = _Mapped(tmp_path / str(at))  # type: ignore[assignment]
    mine = blank(weights)
    tracemalloc.start()
    try:
        dw.TensorReplica(store, mine).pull()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # views of a mapped file take nothing
    finally:
        tracemalloc.stop()
    assert bits(mine) == bits(weights)


def test_rejects_more_bytes_than_requested() -> None:
    class Generous(DictStore):
        def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            return super().get(name, offset) + b"x" * (1 << 23)

    store = Generous()
    store.objects = (plain := DictStore()).objects
    dw.Publisher(plain, {"w": np.zeros(3)}).publish()
    with pytest.raises((dw.InternalError, dw.Corruption)):
        dw.TensorReplica(store, {"w": np.ones(3)}).pull()


def test_requires_abstract_methods() -> None:
    with pytest.raises(TypeError, match="put_if_absent"):
        dw.Store()  # type: ignore[abstract]


def test_releases_stores() -> None:
    import gc
    import weakref

    store = DictStore()
    gone = weakref.ref(store)
    publisher = dw.Publisher(store, {"w": np.zeros(3)})
    publisher.publish()
    chain = dw.Chain(store)
    assert chain.head == 0
    del store, publisher, chain
    gc.collect()
    assert gone() is None


def test_folder_store_ignores_a_later_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    publisher = dw.Publisher("run", {"w": np.zeros(3)})
    monkeypatch.chdir(tmp_path / "elsewhere")
    publisher.publish()
    assert dw.Chain(tmp_path / "run").head == 0
    assert not (tmp_path / "elsewhere" / "run").exists()
