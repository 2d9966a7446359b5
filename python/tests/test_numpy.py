"""Trainer and replicas on numpy arrays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from states import ARRAY_DTYPES, BYTE_DTYPES, bits, blank, random_array

import deltawire as dw


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "model.layers.0.w": random.standard_normal((64, 32), np.float32),
        "model.layers.0.b": random.standard_normal(32, np.float32),
        "model.layers.1.w": random.standard_normal((32, 64), np.float32),
    }


def test_versions_count_what_changed(store: str, weights: dict[str, np.ndarray]) -> None:
    publisher = dw.Publisher(store, weights)
    seed = publisher.publish()
    assert (seed.number, seed.full, seed.reason, seed.committed) == (0, True, "seed", True)
    assert seed.num_tensors == 3
    weights["model.layers.0.w"][3, 5] += 1
    weights["model.layers.1.w"][0, :4] += 1
    second = publisher.publish()
    assert (second.number, second.full, second.num_changed, second.num_changed_tensors) == (1, False, 5, 2)
    assert second.density == 5 / (64 * 32 * 2 + 32)
    assert 0 < second.bytes < seed.bytes
    assert second.run == seed.run == publisher.run
    assert publisher.publish().committed is False


def test_replicas_in_files_and_in_memory_follow(store: str, weights: dict[str, np.ndarray], tmp_path: Path) -> None:
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    mine = blank(weights)
    with dw.Replica(store, tmp_path / "replica") as files, dw.TensorReplica(store, mine) as memory:
        assert files.version is None
        assert memory.version is None
        for step in range(4):
            weights["model.layers.0.b"][step] = step + 100
            version = publisher.publish()
            assert files.head == memory.head == version.number
            pulled = files.pull()
            assert (pulled.version, pulled.changed) == (version.number, True)
            assert pulled.path == tmp_path / "replica"
            assert memory.pull().version == memory.version == version.number
            assert bits(mine) == bits(weights)
        assert files.pull().changed is False
        assert files.pull(2).from_version == 4
        assert files.state.version == 2
        assert files.state.run == publisher.run
    assert dw.read_replica_state(tmp_path / "replica").version == 2


def test_prepare_changes_nothing_until_commit(store: str, weights: dict[str, np.ndarray], tmp_path: Path) -> None:
    dw.Publisher(store, weights).publish()
    mine = blank(weights)
    replica = dw.TensorReplica(store, mine)
    assert replica.prepare().version == 0
    assert bits(mine) == bits(blank(weights))
    replica.commit()
    assert bits(mine) == bits(weights)
    with dw.Replica(store, tmp_path) as files:
        files.prepare()
        assert not (tmp_path / "model.safetensors").exists()
        files.commit()
        files.settle()
        assert (tmp_path / "model.safetensors").exists()


def test_follow_yields_each_new_version(store: str, weights: dict[str, np.ndarray], tmp_path: Path) -> None:
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    seen = []
    with dw.Replica(store, tmp_path) as replica:
        for pulled in replica.follow(interval=0.01, until=3):
            seen.append(pulled.version)
            weights["model.layers.0.b"] += 1
            publisher.publish()
        assert seen == [0, 1, 2, 3]
        assert [pulled.version for pulled in replica.follow(interval=0.01, timeout=0.05)] == [4]


def test_follow_waits_for_a_run(store: str, weights: dict[str, np.ndarray]) -> None:
    replica = dw.TensorReplica(store, blank(weights))
    assert list(replica.follow(interval=0.01, timeout=0.05)) == []
    dw.Publisher(store, weights).publish()
    assert [pulled.version for pulled in replica.follow(interval=0.01, until=0)] == [0]


def test_does_not_follow_a_store_that_lost_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, weights = tmp_path / "store", {"w": np.arange(1000.0)}
    publisher = dw.Publisher(store, weights)
    for _ in range(4):
        publisher.publish()
        weights["w"][:7] += 1
    mine = {"w": np.zeros(1000)}
    with dw.Replica(store, tmp_path / "local") as files, dw.TensorReplica(store, mine) as memory:
        for replica in files, memory:
            assert replica.pull().version == 3
        held = mine["w"].copy()
        for version in 2, 3:
            (store / f"manifests/{version:010}.json").unlink()
        for replica in files, memory:
            with pytest.raises(dw.NotFound, match="lost versions 2 to 3"):
                replica.pull()
            assert list(replica.follow(interval=0.01, timeout=0.05)) == []
            assert "lost versions 2 to 3" in caplog.text
            assert list(replica.follow(interval=0.01, until=4, timeout=0.05)) == []
            with pytest.raises(dw.NotFound, match="lost versions 2 to 3"):  # nothing is left to wait for
                next(replica.follow(interval=0.01, until=1))
            assert replica.version == 3
        assert np.array_equal(mine["w"], held)
        for replica in files, memory:
            assert replica.pull(1).version == replica.version == 1


@pytest.mark.parametrize("dtype", ARRAY_DTYPES)
def test_publishes_arrays_of_every_dtype(store: str, dtype: str) -> None:
    random = np.random.default_rng(7)
    weights = {"w": random_array(random, dtype, (40, 50)), "scalar": random_array(random, dtype, ())}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    chain = dw.Chain(store)
    assert chain.tensors(0) == [dw.reports.TensorSpec("scalar", dtype, ()), dw.reports.TensorSpec("w", dtype, (40, 50))]
    mine = blank(weights)
    replica = dw.TensorReplica(store, mine)
    replica.pull()
    assert bits(mine) == bits(weights)
    weights["w"][::7] = random_array(random, dtype, weights["w"][::7].shape)
    publisher.publish()
    replica.pull()
    assert bits(mine) == bits(weights)


@pytest.mark.parametrize("dtype", BYTE_DTYPES)
def test_publishes_bytes_of_every_dtype(store: str, dtype: str) -> None:
    packed = np.arange(96, dtype=np.uint8).reshape(4, 24)
    dw.Publisher(store, {"w": dw.Tensor(packed, dtype)}).publish()
    [spec] = dw.Chain(store).tensors(0)
    assert spec == dw.reports.TensorSpec("w", dtype, (4, {"F4": 48}.get(dtype, 32)))
    mine = {"w": dw.Tensor(np.zeros_like(packed), dtype)}
    dw.TensorReplica(store, mine).pull()
    assert bits(mine) == {"w": packed.tobytes()}


def test_publishes_raw_views_with_a_dtype(store: str) -> None:
    halves = np.arange(12, dtype=np.uint16).reshape(3, 4)
    dw.Publisher(store, {"a": dw.Tensor(halves, "BF16"), "b": dw.Tensor(halves.view(np.uint8), "BF16")}).publish()
    assert [(spec.dtype, spec.shape) for spec in dw.Chain(store).tensors(0)] == [("BF16", (3, 4))] * 2


def test_accepts_pairs_and_callables(store: str) -> None:
    step = iter(range(3))
    publisher = dw.Publisher(store, lambda: (("w", np.full(4, value)) for value in [next(step)]))
    assert [publisher.publish().number for _ in range(3)] == [0, 1, 2]
    assert publisher.publish([("w", np.full(4, 9))]).number == 3


def test_publishers_copy_non_contiguous_arrays(store: str) -> None:
    weights = {"t": np.arange(12.0).reshape(3, 4).T, "strided": np.arange(10)[::2], "wide": np.broadcast_to(1.0, (2, 3))}
    dw.Publisher(store, weights).publish()
    mine = {name: np.zeros(array.shape, array.dtype) for name, array in weights.items()}
    dw.TensorReplica(store, mine).pull()
    assert bits(mine) == bits(weights)


def test_replicas_refuse_non_contiguous_arrays(store: str) -> None:
    with pytest.raises(dw.InvalidArgument, match='tensor "t": the array is not contiguous'):
        dw.TensorReplica(store, {"t": np.zeros((3, 4)).T})


def test_publishes_but_does_not_patch_read_only_arrays(store: str) -> None:
    fixed = np.arange(4)
    fixed.flags.writeable = False
    dw.Publisher(store, {"w": fixed}).publish()
    with pytest.raises(dw.InvalidArgument, match=r'tensor "w": numpy.ndarray is not writable'):
        dw.TensorReplica(store, {"w": fixed})


def test_copies_nothing() -> None:
    from deltawire._internal import tensors

    for dtype in ARRAY_DTYPES:
        array = np.zeros((3, 4), ARRAY_DTYPES[dtype])
        for wrap in tensors.readable, tensors.writable:
            [tensor] = wrap({"w": array})
            assert (tensor.address, tensor.size_bytes, tensor.dtype) == (array.ctypes.data, array.nbytes, dtype)


def test_accepts_buffers_and_dlpack(store: str) -> None:
    import array

    class Dlpack:
        def __init__(self, inner: np.ndarray) -> None:
            self.inner = inner

        def __dlpack__(self, **kwargs: object) -> object:
            return self.inner.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> object:
            return self.inner.__dlpack_device__()

    weights = {"a": array.array("f", [1, 2, 3]), "b": memoryview(b"bytes"), "c": Dlpack(np.arange(3.0))}
    dw.Publisher(store, weights).publish()
    assert [spec.dtype for spec in dw.Chain(store).tensors(0)] == ["F32", "U8", "F64"]
    mine = {"a": array.array("f", [0] * 3), "b": bytearray(5), "c": np.zeros(3)}
    dw.TensorReplica(store, mine).pull()
    assert mine["a"].tolist() == [1, 2, 3]
    assert mine["b"] == b"bytes"
    assert mine["c"].tolist() == [0, 1, 2]


def test_refuses_a_model_without_arrays(store: str) -> None:
    with pytest.raises(dw.Unsupported, match="safetensors has no such dtype"):
        dw.Publisher(store, {"w": np.zeros(3, np.complex128)}).publish()
    with pytest.raises(dw.InvalidArgument, match="no tensors"):
        dw.Publisher(store).publish()


def test_folder_snapshot_outlives_its_publisher(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    for number in range(3):
        weights["model.layers.0.b"][number] += 1
        with dw.Publisher(tmp_path / "store", weights, snapshot=tmp_path / "snapshot") as publisher:
            version = publisher.publish()
        assert (version.number, version.full) == (number, number == 0)
    assert dw.Chain(tmp_path / "store").head == 2


def test_publishes_checkpoints_on_disk(tmp_path: Path, store: str, weights: dict[str, np.ndarray]) -> None:
    publisher = dw.Publisher(store, weights)
    for folder in "old", "new":
        publisher.publish()
        with dw.Replica(store, tmp_path / folder) as replica:
            replica.pull()
        weights["model.layers.0.b"] += 1
    old, new, delta = tmp_path / "old", tmp_path / "new", tmp_path / "delta.safetensors"
    assert dw.diff_checkpoints(old, new, delta).num_changed == 32
    assert dw.apply_delta(delta, old, tmp_path / "made").num_patched == 1
    assert dw.verify(new, tmp_path / "made")
    different = dw.verify(old, new)
    assert not different
    assert [item.tensor for item in different.differences] == ["model.layers.0.b"]
    assert different.differences[0].coordinate == (0,)
    publisher.publish()
    assert publisher.publish_checkpoint(new).number == 3


def test_publishes_masters_in_the_served_dtype(store: str) -> None:
    import ml_dtypes

    masters = np.linspace(-3, 3, 1000, dtype=np.float32)
    dw.Publisher(store, {"w": dw.Tensor(masters, cast="BF16")}).publish()
    mine = {"w": np.zeros(1000, ml_dtypes.bfloat16)}
    dw.TensorReplica(store, mine).pull()
    assert bits(mine) == {"w": masters.astype(ml_dtypes.bfloat16).tobytes()}
    with pytest.raises(dw.InvalidArgument, match='tensor "w": F32 cannot be published as I8; F64, F32'):
        dw.Publisher(store).publish({"w": dw.Tensor(masters, cast="I8")})
    with pytest.raises(dw.InvalidArgument, match="cannot be cast"):
        dw.TensorReplica(store, {"w": dw.Tensor(masters, cast="BF16")})


MASTERS_WITH_LITTLE_MEMORY = """
import resource, sys
import numpy as np
import deltawire as dw

MIB = 1 << 20
store, snapshot = sys.argv[1:]
masters = {f"layer.{i}": np.zeros((4096, 2048), np.float32) for i in range(6)}  # 192 MiB, rounded 96
with open("/proc/self/status") as status:
    taken = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (taken + 80 * MIB, -1))
publisher = dw.Publisher(store, masters, dtype="bfloat16", snapshot=snapshot,
                         options=dw.PublishOptions(limits=dw.Limits(threads=2, memory_bytes=32 * MIB)))
assert publisher.publish().full
for array in masters.values():
    array[::64, ::64] = 1
version = publisher.publish()
assert (version.number, version.full, version.num_changed) == (1, False, 6 * 64 * 32), version
"""


def test_rounds_masters_without_a_copy_of_the_model(tmp_path: Path) -> None:
    """A memory limit of the kernel would not allow one."""
    command = [sys.executable, "-c", MASTERS_WITH_LITTLE_MEMORY, str(tmp_path / "store"), str(tmp_path / "snapshot")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_handles_have_a_readable_repr(store: str, tmp_path: Path) -> None:
    assert repr(dw.Publisher(store)) == f'Publisher("{store}")'
    assert repr(dw.Replica(store, tmp_path / "r")) == f'Replica("{store}", "{tmp_path}/r")'
    assert repr(dw.TensorReplica(store, {"w": np.zeros(3)})) == f'TensorReplica("{store}")'


def columns_of(weights: dict[str, np.ndarray], rank: int) -> tuple[dict[str, dw.Tensor | np.ndarray], slice]:
    """Arrays for half of the matrix's columns and for the vector, and the range of columns."""
    half = weights["up"].shape[1] // 2
    columns = slice(half) if rank == 0 else slice(half, None)
    up = np.zeros_like(weights["up"][:, columns])
    box = dw.Tensor(up, shape=weights["up"].shape, offset=(0, columns.start or 0))
    return {"up": box, "norm": np.zeros_like(weights["norm"])}, columns


@pytest.mark.parametrize("memory_limit", [2 << 30, 1 << 12])
def test_replicas_of_columns_follow(store: str, memory_limit: int, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weights = {"up": random.random((40, 31), np.float32), "norm": random.random(40)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    ranks = [columns_of(weights, rank) for rank in range(2)]
    limits = dw.Limits(memory_bytes=memory_limit)
    replicas = [dw.TensorReplica(store, held, limits=limits, scratch=tmp_path) for held, _ in ranks]
    for _ in range(3):
        for replica, (held, columns) in zip(replicas, ranks, strict=True):
            assert not replica.pull().repaired
            assert np.array_equal(held["up"].array, weights["up"][:, columns])
            assert np.array_equal(held["norm"], weights["norm"])
        assert list(tmp_path.iterdir())
        weights["up"][random.random(weights["up"].shape) < 0.1] += 1
        weights["norm"][3] += 1
        publisher.publish()
    ranks[1][0]["up"].array[2, 2] += 1  # by somebody else
    pulled = replicas[1].pull()
    assert pulled.repaired
    assert 'tensor "up", box 0,15+40,16' in pulled.repair_reason
    for replica in replicas:
        replica.close()
    assert not list(tmp_path.iterdir())
