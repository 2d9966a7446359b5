"""What an optimizer did not touch is not read, and nothing that anybody wrote is missed."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch_states import published, state_bits

import deltawire as dw


def half_frozen() -> nn.Sequential:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.rand(3, 4)).square().sum().backward()
    optimizer.step()


def tracked(store: str, model: nn.Module, *optimizers: Any) -> dw.Publisher:
    return dw.Publisher(store, model, tracker=dw.torch.track(*optimizers))


def skipped(publisher: dw.Publisher, model: nn.Module) -> set[str]:
    """What a publish would not read."""
    return {tensor.name for tensor in publisher._reader.read(model) if tensor.unchanged}


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_steps_are_seen_whatever_makes_them(store: str, kind: Any, options: dict[str, bool]) -> None:
    model = half_frozen()
    optimizer = kind(model.parameters(), lr=0.1, **options)
    publisher = tracked(store, model, optimizer)
    publisher.publish()
    for _ in range(3):
        train(model, optimizer)
        assert skipped(publisher, model) == {"0.weight", "0.bias"}
        publisher.publish()
        assert state_bits(published(store)) == state_bits(model.state_dict())
        assert skipped(publisher, model) == {name for name, _ in model.named_parameters()}  # buffers never


def test_parameters_without_gradients_are_skipped(store: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.AdamW(model.parameters())
    publisher = tracked(store, model, optimizer)
    publisher.publish()
    model[3](torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert skipped(publisher, model) == {name for name, _ in model.named_parameters() if not name.startswith("3.")}


def write_in_place(weight: Any) -> None:
    with torch.no_grad():
        weight.add_(1)


def write_through_a_view(weight: Any) -> None:
    weight.detach()[1].fill_(7)


def write_by_foreach(weight: Any) -> None:
    with torch.no_grad():
        torch._foreach_mul_([weight], 2)


def write_by_init(weight: Any) -> None:
    nn.init.uniform_(weight)


def write_new_data(weight: Any) -> None:
    weight.data = torch.rand(4, 4)


def write_there_and_back(weight: Any) -> None:
    weight.data = weight.data.bfloat16()
    weight.data = weight.data.float()  # may lie where it lay before


def write_by_swap(weight: Any) -> None:
    torch.utils.swap_tensors(weight, nn.Parameter(torch.rand(4, 4), requires_grad=weight.requires_grad))


def write_in_inference_mode(weight: Any) -> None:
    with torch.inference_mode():
        weight.mul_(3)


WRITES = [value for name, value in list(globals().items()) if name.startswith("write_")]


@pytest.mark.parametrize("layer", ["0", "2"])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_what_is_written_behind_its_back_is_published(store: str, write: Callable[[Any], None], layer: str) -> None:
    model = half_frozen()
    publisher = tracked(store, model, torch.optim.AdamW(model.parameters()))
    publisher.publish()
    write(model.get_submodule(layer).weight)
    publisher.publish()
    assert state_bits(published(store)) == state_bits(model.state_dict())
    assert dw.Chain(store).changes(1).keys() == {f"{layer}.weight"}


def test_loaded_states_are_published(store: str) -> None:
    model, other = half_frozen(), half_frozen()
    write_by_init(other[0].weight)
    publisher = tracked(store, model, torch.optim.AdamW(model.parameters()))
    publisher.publish()
    model.load_state_dict(other.state_dict())
    publisher.publish()
    write_by_init(other[0].weight)
    model.load_state_dict(other.state_dict(), assign=True)
    publisher.publish()
    assert state_bits(published(store)) == state_bits(model.state_dict())
    assert dw.Chain(store).head == 2


def test_a_model_that_a_replica_patches_is_published_on(store: str) -> None:
    trainer, relay = half_frozen(), half_frozen()
    first, second = dw.Publisher(f"{store}-a", trainer), tracked(f"{store}-b", relay)
    first.publish()
    replica = dw.TensorReplica(f"{store}-a", relay.requires_grad_(False))
    replica.pull()
    second.publish()
    write_by_init(trainer[0].weight)
    first.publish()
    replica.pull()
    second.publish()
    assert state_bits(published(f"{store}-b")) == state_bits(trainer.state_dict())


def test_masters_elsewhere_are_not_trusted(store: str) -> None:
    model = half_frozen()
    masters = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    publisher = tracked(store, model, optimizer)
    publisher.publish()
    masters[-1].grad = torch.ones(4)
    optimizer.step()
    list(model.parameters())[-1].data.copy_(masters[-1])  # uncounted, and no tracked optimizer has it
    publisher.publish()
    assert state_bits(published(store)) == state_bits(model.state_dict())


def test_what_torch_does_not_count(store: str) -> None:
    """The contract's other side: it is missed by those who track, and never by those who do not."""
    model = half_frozen()
    trusting, comparing = tracked(f"{store}-a", model), dw.Publisher(f"{store}-b", model)
    trusting.publish()
    comparing.publish()
    model[0].weight.data.add_(1)
    assert not trusting.publish().committed
    assert comparing.publish().num_changed == 16
    write_by_foreach(model[0].weight)  # counted: all of it is compared, and what was missed is made up for
    trusting.publish()
    assert state_bits(published(f"{store}-a")) == state_bits(model.state_dict())


def test_after_a_failure_everything_is_compared(store: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    publisher = tracked(store, model, optimizer)
    publisher.publish()
    assert skipped(publisher, model)
    with pytest.raises(dw.Error):
        publisher.publish([("0.weight", object())])
    assert not skipped(publisher, model)
    publisher.publish()
    assert skipped(publisher, model)


def test_in_the_background_too(store: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    publisher = tracked(store, model, optimizer)
    publisher.publish()
    for _ in range(3):
        train(model, optimizer)
        future = publisher.publish(wait=False)
    wanted = state_bits(model.state_dict())
    assert future.result().number == 3
    assert skipped(publisher, model) == {name for name, _ in model.named_parameters()}
    assert state_bits(published(store)) == wanted


def test_skipped_tensors_are_in_versions_that_are_stored_whole(store: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    publisher = dw.Publisher(store, model, tracker=dw.torch.track(optimizer), anchors=dw.Anchors(every=2))
    for _ in range(5):
        train(model, optimizer)
        publisher.publish()
    assert state_bits(published(store)) == state_bits(model.state_dict())
    assert sum(dw.Chain(store)[version].full for version in range(5)) >= 1


def test_trackers_end(store: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracker = dw.torch.track(optimizer)
    train(model, optimizer)
    steps = tracker.steps_of(model[3].weight)
    assert steps > 0
    tracker.close()
    train(model, optimizer)
    assert tracker.steps_of(model[3].weight) == steps
