"""Weights of a trainer to an engine on the same GPU, by CUDA IPC."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import deltawire as dw
from deltawire.torch.colocated import NO_DELTA, Handles, _digests

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no GPU")


def test_a_delta_is_refused_with_the_reason() -> None:
    with pytest.raises(dw.Unsupported, match="where a full copy runs at the speed of its memory"):
        dw.torch.share({"w": torch.zeros(2)}, mode="delta")
    assert "store" in NO_DELTA


def test_tensors_of_the_host_are_refused_by_name() -> None:
    with pytest.raises(dw.InvalidArgument, match='tensor "w" is on cpu: CUDA IPC is for tensors on a GPU'):
        dw.torch.share({"w": torch.zeros(2)})
    with pytest.raises(dw.InvalidArgument, match='tensor "weight" is on cpu'):
        dw.torch.take(Handles("gpu", (), {}), torch.nn.Linear(2, 2, bias=False))


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    random = torch.Generator("cuda").manual_seed(1)
    return {
        "layer.weight": torch.randn(1024, 3000, device="cuda", generator=random).bfloat16(),
        "layer.bias": torch.randn(77, device="cuda", generator=random),
        "columns": torch.randn(64, 128, device="cuda", generator=random)[:, 3:99],  # not contiguous
        "empty": torch.zeros(0, 4, device="cuda"),
    }


def engine(handles: Handles, folder: Path, way: str = "") -> list[str]:
    """What an engine's process says that takes them."""
    path = folder / "handles"
    path.write_bytes(pickle.dumps(handles))
    worker = Path(__file__).with_name("colocated_worker.py")
    done = subprocess.run([sys.executable, worker, path, way], capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@on_gpu
def test_another_process_holds_the_same_bits(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with dw.torch.share(weights) as shared:
        for _ in range(2):  # two engine processes
            first, *digests = engine(shared.handles(), tmp_path)
            assert digests == [f"{name} {digest}" for name, digest in _digests(weights).items()]
            assert first.startswith(f"took {sum(tensor.nbytes for tensor in weights.values())} bytes")
            assert int(first.split()[3]) < 1 << 20  # no second copy
    with pytest.raises(dw.InvalidArgument, match="shared no more"):
        shared.handles()


@on_gpu
def test_nothing_is_written_where_the_tensors_differ(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with dw.torch.share(weights) as shared:
        (said,) = engine(shared.handles(), tmp_path, "other-shape")
        assert said.startswith('InvalidArgument: tensor "layer.weight": shared as torch.bfloat16 [1024, 3000], is to go to')
        assert said.endswith("(untouched: True)")
        (said,) = engine(shared.handles(), tmp_path, "other-names")
        assert said.startswith('InvalidArgument: tensors "another" are not among those that are shared')


@on_gpu
def test_a_write_meanwhile_is_found_out(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with dw.torch.share(weights) as shared:
        handles = shared.handles()
        weights["layer.bias"][3] += 1
        torch.cuda.synchronize()
        (said,) = engine(handles, tmp_path)
        assert said.startswith('BaseMismatch: tensors "layer.bias" changed while they were taken')


@on_gpu
def test_another_gpu_is_refused(weights: dict[str, torch.Tensor]) -> None:
    elsewhere = Handles("GPU-of-another-machine", (), {})
    with pytest.raises(dw.Unsupported, match="CUDA IPC is for one GPU"):
        dw.torch.take(elsewhere, weights)


@on_gpu
def test_a_trainer_that_has_gone_leaves_right_bits_or_an_error(tmp_path: Path) -> None:
    code = (
        "import pickle, sys, torch, deltawire as dw\n"
        "shared = dw.torch.share({'w': torch.ones(5000, device='cuda')})\n"
        "open(sys.argv[1], 'wb').write(pickle.dumps(shared.handles()))\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "gone"], check=True, timeout=120)
    handles = pickle.loads((tmp_path / "gone").read_bytes())
    first, *digests = engine(handles, tmp_path)
    if first.startswith("took"):  # the driver keeps such memory for a while
        assert digests == [f"w {handles.digests['w']}"]
    else:
        assert first.startswith(("Unavailable: ", "BaseMismatch: "))
