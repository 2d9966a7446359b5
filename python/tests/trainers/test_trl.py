"""`deltawire.trainers.trl.WeightTransfer` as TRL calls it, with stores; tests/engines uses a real server."""

import contextlib
import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from test_stores import DictStore

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.torch import Broadcast, Rendezvous
from deltawire.trainers.trl import WeightTransfer

pytestmark = pytest.mark.filterwarnings("default")  # theirs, of each other


def weights(dtype: Any = torch.float32) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {f"layers.{n}.weight": torch.randn(8, 16, generator=generator).to(dtype) for n in range(3)}


def sync(transfer: WeightTransfer, pairs: Any) -> None:
    """The calls of `AsyncGRPOTrainer._sync_weight_merged`, in order."""
    transfer.pause()
    transfer.send_weights(iter(pairs.items()))
    transfer.resume()


def synced(store: Any, pairs: Any, **options: Any) -> WeightTransfer:
    """A transfer that has sent these and ended; it continues with the next sync."""
    transfer = WeightTransfer(store, **options)
    sync(transfer, pairs)
    transfer.destroy()
    return transfer


def held(store: Any, version: int) -> dict[str, Any]:
    tensors = dw.Chain(store).tensors(version)
    names = {"BF16": torch.bfloat16, "F32": torch.float32}
    arrays = {spec.name: torch.empty(spec.shape, dtype=names[spec.dtype]) for spec in tensors}
    with dw.TensorReplica(store, arrays) as replica:
        assert replica.pull().version == version
    return arrays


def save(folder: Path, tensors: dict[str, Any]) -> Path:
    safetensors = pytest.importorskip("safetensors.torch")
    folder.mkdir()
    safetensors.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "toy"}')
    return folder


class Gate(DictStore):
    """Blocks writes while it is shut; fails them on request."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.broken = False

    def put(self, *args: Any, **kwargs: Any) -> Any:
        assert self.open.wait(20)
        if self.broken:
            raise dw.IoError("the disk is gone")
        return super().put(*args, **kwargs)


def test_implements_the_protocol() -> None:
    trainer = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
    wanted = trainer.WeightTransferProtocol
    names = [name for name, _ in inspect.getmembers(wanted, inspect.isfunction) if not name.startswith("_")]
    assert {"init_weight_transfer", "pause", "send_weights", "resume", "destroy"} <= set(names)
    for name in names:
        assert list(inspect.signature(getattr(WeightTransfer, name)).parameters) == list(
            inspect.signature(getattr(wanted, name)).parameters
        )


def test_each_sync_publishes_a_version_in_the_engines_dtype(store: str) -> None:
    model = weights()
    transfer = WeightTransfer(store, dtype="bfloat16")
    transfer.init_weight_transfer()
    sync(transfer, model)
    assert transfer.version is not None
    assert transfer.version.full
    model["layers.1.weight"][0, 0] += 1
    sync(transfer, model)
    assert (transfer.version.number, transfer.version.num_changed) == (1, 1)
    transfer.destroy()
    transfer.destroy()
    for name, tensor in held(store, 1).items():
        assert torch.equal(tensor, model[name].bfloat16())


def test_accepts_parameters_as_they_are(store: str) -> None:
    model = torch.nn.Linear(4, 4)
    transfer = WeightTransfer(store)
    transfer.send_weights(model.named_parameters())
    transfer.destroy()
    assert torch.equal(held(store, 0)["weight"], model.weight.detach())


def test_capture_returns_before_the_upload_and_keeps_its_state() -> None:
    store, model = Gate(), weights()
    transfer = synced(store, model, wait="captured")
    store.open.clear()
    before = model["layers.0.weight"].clone()
    before[0, 0] = 7
    model["layers.0.weight"][0, 0] = 7
    sync(transfer, model)  # again after the end of a training: it goes on where the chain is
    assert transfer.version is not None
    assert transfer.version.number == 0
    model["layers.0.weight"][0, 1] = 9  # the next step
    store.open.set()
    transfer.destroy()
    assert transfer.version.number == 1
    assert torch.equal(held(store, 1)["layers.0.weight"], before)


def test_next_sync_raises_a_background_failure() -> None:
    store, model = Gate(), weights()
    transfer = synced(store, model, wait="captured")
    store.broken = True
    model["layers.0.weight"][0, 0] = 7
    sync(transfer, model)
    with pytest.raises(dw.IoError, match="the disk is gone"):
        sync(transfer, model)
    store.broken = False
    sync(transfer, model)
    transfer.destroy()
    assert torch.equal(held(store, 1)["layers.0.weight"], model["layers.0.weight"])


def test_end_of_training_raises_unread_failures() -> None:
    store, model = Gate(), weights()
    transfer = WeightTransfer(store, wait="captured")
    sync(transfer, model)  # whole, which takes no capture
    store.broken = True
    model["layers.0.weight"][0, 0] = 7
    sync(transfer, model)
    with pytest.raises(dw.IoError, match="the disk is gone"):
        transfer.destroy()
    transfer.destroy()


def test_hanging_store_times_out() -> None:
    store, model = Gate(), weights()
    synced(store, model)
    transfer = WeightTransfer(store, timeout=2)
    transfer.init_weight_transfer()
    store.open.clear()
    model["layers.0.weight"][0, 0] = 7
    with pytest.raises(dw.Unavailable, match=r"not committed within 2 s"):
        sync(transfer, model)
    store.open.set()
    with contextlib.suppress(dw.Unavailable):  # a slow machine may take longer; that it is committed is what counts
        transfer.destroy()
    assert torch.equal(held(store, 1)["layers.0.weight"], model["layers.0.weight"])


def test_versions_continue_after_resuming_an_older_step(store: str) -> None:
    model = weights()
    old = {name: tensor.clone() for name, tensor in model.items()}
    first = WeightTransfer(store)
    sync(first, model)
    run = dw.Chain(store).run
    for step in range(2):
        model["layers.0.weight"][0, step] += 1
        sync(first, model)
    first.destroy()
    second = WeightTransfer(store, run=run)
    second.init_weight_transfer()
    assert second.run == run
    sync(second, old)
    assert second.version is not None
    assert (second.version.number, second.version.full, second.version.num_changed) == (3, False, 2)
    second.destroy()
    assert torch.equal(held(store, 3)["layers.0.weight"], old["layers.0.weight"])


def test_refuses_another_run(store: str) -> None:
    missing = WeightTransfer(store, run="a" * 32)
    with pytest.raises(dw.NotFound, match="is the store mounted"):
        missing.init_weight_transfer()
    synced(store, weights())
    other = WeightTransfer(store, run="a" * 32)
    with pytest.raises(dw.BaseMismatch, match="holds run"):
        other.init_weight_transfer()
    assert dw.Chain(store).head == 0


def test_refuses_unservable_weights_before_writing(store: str) -> None:
    model = weights()
    synced(store, model, dtype="bfloat16")
    cases = [
        (WeightTransfer(store), model, "published as F32, but is BF16"),
        (WeightTransfer(store, dtype="bfloat16"), model | {"other": torch.zeros(2)}, "no such tensor"),
        (WeightTransfer(store, dtype="bfloat16"), model | {"layers.0.weight": torch.zeros(2, 2)}, r"\[2, 2\].*\[8, 16\]"),
        (WeightTransfer(store, dtype="bfloat16"), {"layers.0.weight": model["layers.0.weight"]}, "does not send"),
    ]
    for transfer, tensors, words in cases:
        with pytest.raises(dw.InvalidArgument, match=words):
            sync(transfer, tensors)
        transfer.destroy()
    assert dw.Chain(store).head == 0


def test_failure_still_reads_every_parameter(store: str) -> None:
    """Other ranks take part in gathering each parameter."""
    read = []

    def gathered() -> Iterator[tuple[str, Any]]:
        for name, tensor in (weights() | {"z": torch.zeros(1)}).items():
            read.append(name)
            yield name, tensor

    seeded = WeightTransfer(store)
    sync(seeded, weights())
    with pytest.raises(dw.InvalidArgument, match="no such tensor"):
        seeded.send_weights(gathered())
    seeded.destroy()
    assert len(read) == 4


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_checkpoint_provides_the_seed_and_frozen_weights(store: str, dtype: str | None, tmp_path: Path) -> None:
    model = weights() | {"vision.weight": torch.ones(4)}
    folder = save(tmp_path / "model", model)
    transfer = WeightTransfer(store, checkpoint=folder, dtype=dtype)
    transfer.init_weight_transfer()
    assert transfer.version is not None
    assert transfer.version.number == 0
    assert [file.name for file in dw.Chain(store)[0].files] == ["config.json"]
    trained = {name: tensor + 1 for name, tensor in weights().items()}
    sync(transfer, trained)
    transfer.destroy()
    served = held(store, 1)
    assert torch.equal(served["vision.weight"], torch.ones(4).to(served["vision.weight"].dtype))
    assert torch.equal(served["layers.0.weight"], trained["layers.0.weight"].to(served["layers.0.weight"].dtype))
    assert [file.name for file in dw.Chain(store)[1].files] == ["config.json"]


def test_maps_trainer_names_to_checkpoint_names(store: str) -> None:
    synced(store, {"a.weight": torch.zeros(2), "b.weight": torch.ones(2)})
    select = dw.Select(exclude="rope", rename=lambda name: name.removeprefix("model."))
    synced(store, {"model.a.weight": torch.zeros(2), "model.b.weight": torch.ones(2), "rope": torch.zeros(9)}, select=select)
    assert dw.Chain(store).head == 0  # nothing has changed
    split = {"tensors": lambda pairs: zip(("a.weight", "b.weight"), dict(pairs)["fused"], strict=True)}
    synced(store, {"fused": torch.tensor([[0.0, 0.0], [1.0, 2.0]])}, **split)
    assert dw.Chain(store)[1].num_changed == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"wait": "soon"}, dw.InvalidArgument, "captured, published, applied"),
        ({"wait": "applied"}, dw.InvalidArgument, "needs base_url"),
        ({"timeout": 0}, dw.InvalidArgument, "more than 0"),
        ({"dtype": "int8"}, dw.InvalidArgument, "int8"),
        ({"ranks": None}, TypeError, "no option 'ranks'"),
        ({"anchor": 3}, TypeError, "anchors=dw.Anchors"),
    ],
)
def test_rejects_wrong_options_by_name(store: str, options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        WeightTransfer(store, **options)


@pytest.mark.parametrize("way", ["http", "group"])
@pytest.mark.parametrize("wait", ["captured", "published"])
def test_sync_reaches_replicas_without_a_shared_store(way: str, wait: Any, store: str) -> None:
    model = {name: tensor.bfloat16() for name, tensor in weights().items()}
    with ExitStack() as ends:
        server = ends.enter_context(dw.serve(store))
        to: Any = store
        behind: Any = server.url
        if way == "group":  # two ranks of one process
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            trainer, engine = (
                ends.enter_context(
                    Broadcast(Rendezvous(master_address="127.0.0.1", master_port=port, world_size=2, rank=rank), place)
                )
                for rank, place in enumerate((store, server.url))
            )
            engine.wait(60)
            to, behind = trainer.store, engine.store
        transfer = WeightTransfer(to, wait=wait)
        sync(transfer, model)
        transfer.destroy()
        live = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
        with dw.TensorReplica(behind, live) as replica:
            assert replica.pull().version == 0
            for step in range(1, 4):
                model["layers.1.weight"][0, step] += 1
                sync(transfer, model)
                transfer.destroy()  # the upload is done
                [pulled] = replica.follow(until=step, timeout=20)
                assert (pulled.version, pulled.whole) == (step, False)
                for name, tensor in live.items():
                    assert torch.equal(tensor, model[name]), name
        if way == "group":
            assert (trainer.error, engine.error) == (None, None)
        assert [one.held and one.held.version for one in dw.Chain(store).replicas] == [3]
        transfer.destroy()
