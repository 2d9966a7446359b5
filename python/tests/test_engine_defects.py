"""What once went wrong with workers of engines."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")

from engine_models import Engine  # noqa: E402
from test_engines import Chain, Rank, Repacked, assert_same, loaded, together  # noqa: E402
from torch import nn  # noqa: E402

from deltawire.engines import Worker  # noqa: E402
from deltawire.engines import worker as worker_module  # noqa: E402
from deltawire.engines.map import bits  # noqa: E402


class Threaded(Engine):
    """SGLang's DeepSeek: tensors are loaded by a pool of threads."""

    def load_weights(self, weights) -> None:
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(super(Threaded, self).load_weights, [item]) for item in weights]:
                future.result()


def test_a_loader_with_threads_writes_nothing_while_it_is_recorded(tmp_path):
    chain = Chain(tmp_path)
    engine = Threaded()
    engine.load_weights(chain.tensors.items())
    worker = Worker(engine, chain.local, name="w")
    worker.attach()
    assert_same(engine, loaded(chain.tensors))
    assert worker.report.tensors == len(chain.tensors)
    version = chain.step(1)
    assert worker.update() == version
    assert_same(engine, loaded(chain.tensors))


class Scalar(nn.Module):
    """As vLLM and SGLang load parameters of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))
        self.weight = nn.Parameter(torch.zeros(4))

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            parameter = dict(self.named_parameters())[name]
            if parameter.numel() == 1 and tensor.numel() == 1:
                parameter.data.fill_(tensor.item())
            else:
                parameter.data.copy_(tensor)


class Given(Scalar):
    """Takes the checkpoint's memory instead of copying it."""

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data = tensor.reshape(-1).clone()

    def reload(self, weights) -> None:
        for name, tensor in weights:
            dict(self.named_parameters())[name].data.copy_(tensor.reshape(-1))


@pytest.mark.parametrize("kind", [Scalar, Given])
def test_parameters_that_are_not_copied_are_updated_too(tmp_path, kind):
    store, local = str(tmp_path / "store"), str(tmp_path / "local")
    tensors = {"scale": torch.tensor(0.5), "weight": torch.arange(4.0)}
    publisher = dw.Publisher(store)
    publisher.publish(tensors)
    replica = dw.Replica(store, local, feed=True)
    replica.pull()
    model = kind()
    model.load_weights(tensors.items())
    worker = Worker(model, local, name="w", reload=getattr(model, "reload", model.load_weights))
    worker.attach()
    publisher.publish({"scale": torch.tensor(0.75), "weight": torch.arange(4.0) + 1})
    replica.pull()
    assert worker.update() == 1
    assert model.scale.item() == 0.75
    assert torch.equal(model.weight.data, torch.arange(4.0) + 1)
