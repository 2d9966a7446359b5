"""Torch tensors wherever arrays are."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np
from states import ARRAY_DTYPES
from torch_states import state_bits, torch_dtype

import deltawire as dw
from deltawire._internal import tensors


def random_tensor(dtype: str, *shape: int) -> torch.Tensor:
    kind = torch_dtype(dtype)
    if dtype == "BOOL":
        return torch.randint(0, 2, shape).bool()
    count = int(np.prod(shape)) * kind.itemsize
    return torch.randint(0, 256, (count,), dtype=torch.uint8).view(kind).reshape(shape)


@pytest.mark.parametrize("dtype", ARRAY_DTYPES)
def test_publishes_every_dtype_without_copies(dtype: str, store: str) -> None:
    torch.manual_seed(1)
    weights = {"w": random_tensor(dtype, 30, 40), "scalar": random_tensor(dtype, 1).reshape(())}
    mine = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    for wrap in tensors.readable, tensors.writable:
        for wrapped, tensor in zip(wrap(weights), weights.values(), strict=True):
            assert (wrapped.address, wrapped.size_bytes) == (tensor.data_ptr(), tensor.nbytes)
            assert (wrapped.dtype, tuple(wrapped.shape)) == (dtype, tuple(tensor.shape))
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    replica = dw.TensorReplica(store, mine)
    replica.pull()
    weights["w"][::5] = random_tensor(dtype, 6, 40)
    publisher.publish()
    replica.pull()
    assert state_bits(mine) == state_bits(weights)


def test_publishes_packed_float4(store: str) -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4_e2m1fn_x2")
    packed = torch.arange(12, dtype=torch.uint8).reshape(3, 4).view(torch.float4_e2m1fn_x2)
    dw.Publisher(store, {"w": packed}).publish()
    assert dw.Chain(store).tensors(0) == [dw.reports.TensorSpec("w", "F4", (3, 8))]


def test_publishes_parameters_and_views(store: str) -> None:
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    state = {"w": weight, "t": weight.t(), "wide": torch.ones(1).expand(5), "conj": torch.ones(2, dtype=torch.complex64).conj()}
    state["every other"] = weight.detach().flatten()[::2]
    publisher = dw.Publisher(store, state)
    publisher.publish()
    weight.data += 1
    publisher.publish()
    mine = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in state.items()}
    dw.TensorReplica(store, mine).pull()
    assert all(torch.equal(mine[name], tensor) for name, tensor in state.items())


def test_follows_tensors_that_move(store: str) -> None:
    trainer, server = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    publisher = dw.Publisher(store, trainer)
    publisher.publish()
    replica = dw.TensorReplica(store, server)
    replica.pull()
    server.weight.data = server.weight.data.clone()
    with torch.no_grad():
        trainer.weight[0, 0] = 7
    publisher.publish()
    pulled = replica.pull()
    assert (pulled.from_version, pulled.version) == (0, 1)  # it was recognised
    assert torch.equal(server.weight, trainer.weight)
    with torch.no_grad():
        trainer.weight[0, 1] = 7
    publisher.publish()
    replica.prepare()
    old = server.weight.data
    server.weight.data = old.clone()
    with pytest.raises(dw.InvalidArgument, match='tensor "weight": its memory has moved'):
        replica.commit()
    assert old[0, 1] != 7
    replica.pull()
    assert torch.equal(server.weight, trainer.weight)


def test_replicas_refuse_unpatchable_tensors(store: str) -> None:
    with pytest.raises(dw.InvalidArgument, match='tensor "w": the array is not contiguous'):
        dw.TensorReplica(store, {"w": torch.zeros(3, 4).t()})
    with pytest.raises(dw.InvalidArgument, match='tensor "w": is a lazily'):
        dw.TensorReplica(store, {"w": torch.zeros(3, dtype=torch.complex64).conj()})


def test_refuses_tensors_without_memory(store: str) -> None:
    with pytest.raises(dw.Unsupported, match='tensor "w": is sparse_coo'):
        dw.Publisher(store, {"w": torch.eye(3).to_sparse()}).publish()


def test_numpy_and_torch_give_the_same_delta(tmp_path: object) -> None:
    old, new = torch.arange(100.0), torch.arange(100.0)
    new[7] = -1
    by_torch = dw.diff({"w": old}, {"w": new})
    by_numpy = dw.diff({"w": old.numpy()}, {"w": new.numpy()})
    assert (by_torch.base, by_torch.target, by_torch.entries) == (by_numpy.base, by_numpy.target, by_numpy.entries)
    by_torch.apply_({"w": old})
    assert torch.equal(old, new)
