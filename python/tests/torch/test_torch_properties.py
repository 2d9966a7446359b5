"""For any network, dtypes, optimizer and steps, replicas equal their trainer, bit for bit."""

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch_states import state_bits

import deltawire as dw

_runs = itertools.count()

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float64])
LAYERS = st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans(), DTYPES), min_size=1, max_size=4)
OPTIMIZERS = st.sampled_from(
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, fused=True),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
        lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
    ]
)
# Events between two versions.
EVENTS = st.lists(st.sampled_from(["step", "step", "partial step", "write", "nothing", "thaw"]), max_size=4)


class Layer(nn.Module):
    def __init__(self, before: int, width: int, bias: bool, norm: bool, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        self.linear = nn.Linear(before, width, bias=bias, dtype=dtype)
        self.norm = nn.BatchNorm1d(width, dtype=dtype) if norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.linear(x.to(self.dtype))))


def make(layers: list[tuple[int, bool, bool, Any]]) -> nn.Sequential:
    widths = [3, *(width for width, *_ in layers)]
    return nn.Sequential(*(Layer(before, *layer) for before, layer in zip(widths, layers, strict=False)))


def happen(event: str, model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    if event == "thaw":
        model.requires_grad_(True)
    elif event == "write":
        with torch.no_grad():
            next(model.parameters()).mul_(-1)
    elif event == "step":
        model(torch.rand(4, 3)).sum().backward()
        optimizer.step()
    elif event == "partial step":
        last = model[-1]
        last(torch.rand(4, last.linear.in_features)).sum().backward()
        optimizer.step()


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    layers=LAYERS,
    frozen=st.integers(0, 3),
    optimizer=OPTIMIZERS,
    events=EVENTS,
    cast=st.sampled_from([None, torch.bfloat16]),
)
def test_replicas_equal_their_trainer(layers: list[Any], frozen: int, optimizer: Any, events: list[str], cast: Any) -> None:
    torch.manual_seed(7)
    store = f"memory:torch-property-{next(_runs)}"
    trainer, server = make(layers), make(layers)
    for layer in trainer[: min(frozen, len(layers) - 1)]:
        layer.requires_grad_(False)
    steps = optimizer(trainer.parameters())
    if cast is not None:
        server = server.to(cast)
    with dw.Publisher(store, trainer, dtype=cast, options=dw.PublishOptions(limits=dw.Limits(threads=1))) as publisher:
        publisher.publish()
        with dw.TensorReplica(store, server, limits=dw.Limits(threads=1), heartbeat=False) as replica:
            for event in ["nothing", *events]:
                happen(event, trainer, steps)
                publisher.publish()
                replica.pull()
                wanted = {
                    name: tensor.to(cast) if cast is not None and tensor.is_floating_point() else tensor
                    for name, tensor in trainer.state_dict().items()
                }
                assert state_bits(server.state_dict()) == state_bits(wanted)
