"""The same training steps by every way: whole versions and deltas, over gloo, TCP, a folder, S3: what comes is the same."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

from rank_processes import Rank, run_ranks

import deltawire as dw
import deltawire.ship
from deltawire import _core
from deltawire.engines.checkpoint import LocalCheckpoint

STEPS, RANKS = 4, 3
QUICK: dict[str, Any] = {"options": dw.PublishOptions(limits=dw.Limits(threads=1))}
SHIPPED = ("gloo", "tcp")
ENDPOINT, BUCKET = "DELTAWIRE_RGW_ENDPOINT", "matrix"
RGW = Path(__file__).parents[3] / "tests" / "servers" / "rgw"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What clients of a real S3 server need in their environment."""
    folder = tmp_path_factory.mktemp("s3") / "rgw"
    up = subprocess.run(
        [RGW, "up", folder, "--owner", str(os.getpid())], capture_output=True, text=True, check=False, timeout=180
    )
    if up.returncode == 77:
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    lines = [line.removeprefix("export ") for line in (folder / "env").read_text().splitlines()]
    environment = {name: value for name, _, value in (line.partition("=") for line in lines)}
    keys = f"{environment['AWS_ACCESS_KEY_ID']}:{environment['AWS_SECRET_ACCESS_KEY']}"
    empty = f"x-amz-content-sha256: {hashlib.sha256().hexdigest()}"  # which older versions of curl leave out
    bucket = ["curl", "-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", empty, "-K", "-", "-X", "PUT"]
    bucket.append(f"{environment[ENDPOINT]}/{BUCKET}")
    subprocess.run(bucket, input=f'user = "{keys}"', text=True, check=True, timeout=60)
    yield environment
    subprocess.run([RGW, "down", folder], check=True, capture_output=True, timeout=60)


def state_after(step: int) -> dict[str, torch.Tensor]:
    """The same in every process: some weights move with each step, and with the last none."""
    generator = torch.Generator().manual_seed(7)
    shapes = {"embed": (300, 64), "up": (64, 256), "down": (256, 64), "norm": (64,), "scale": ()}
    state = {name: torch.randn(shape, generator=generator).to(torch.bfloat16) for name, shape in shapes.items()}
    for _ in range(min(step, STEPS - 2)):
        for tensor in state.values():
            moved = torch.rand(tensor.shape, generator=generator) < 0.02
            tensor.copy_(torch.where(moved, tensor * 1.5, tensor))
    return state


def _opened(url: str, environment: dict[str, str]) -> dw.Store:
    os.environ.update(environment)
    return dw.open_store(url, endpoint=environment.get(ENDPOINT, ""))


def _publish(rank: Rank, transport: str, url: str, environment: dict[str, str], mode: str) -> list[Any]:
    store, shipper = _opened(url, environment), None
    if transport in SHIPPED:
        shipper = deltawire.ship.serve(store, secret="of the matrix", backend=transport, timeout=60)
        store = shipper.store
    rank.told(None if shipper is None else shipper.address)
    if shipper is not None:
        shipper.wait_for(RANKS - 1, 60)
    seen = []
    with dw.Publisher(store, anchors="only" if mode == "full" else None, **QUICK) as publisher:
        for step in range(STEPS):
            version = publisher.publish(state_after(step))
            rank.told(version.number)
            if shipper is not None:
                report = shipper.settle()
                assert [(one.version, one.error) for one in report.replicas] == [(version.number, "")] * (RANKS - 1), report
                assert not version.committed or (report.carrier, report.bytes >= version.bytes) == (transport, True), report
            seen.append({name: getattr(version, name) for name in vars(version) if name not in ("run", "seconds", "phases")})
        rank.meet()
    return seen


def _pull(rank: Rank, transport: str, url: str, environment: dict[str, str], folder: Path) -> list[Any]:
    address = rank.told()
    store = deltawire.ship.join(address, secret="of the matrix") if address else _opened(url, environment)
    seen = []
    with dw.Replica(store, folder, limits=dw.Limits(threads=1)) as replica:
        watch = _core.Watch(replica._store)  # it follows: versions are sent here
        for step in range(STEPS):
            pulled = replica.pull(rank.told())
            tensors = dict(LocalCheckpoint(folder).items())
            wanted = state_after(step)
            assert {n: t.view(torch.uint8).tolist() if t.dim() else t.item() for n, t in tensors.items()} == {
                n: t.view(torch.uint8).tolist() if t.dim() else t.item() for n, t in wanted.items()
            }
            names = "version", "from_version", "changed", "bytes", "repaired", "num_hops", "num_changed", "whole"
            state = replica.state
            assert state is not None
            seen.append(
                {name: getattr(pulled, name) for name in names} | {"state": state.state, **dw.live.Proof(tensors).digests}
            )
        rank.meet()
        del watch
    return seen


def _cell(rank: Rank, transport: str, url: str, environment: dict[str, str], mode: str, folder: Path) -> list[Any]:
    torch.set_num_threads(1)
    if rank.rank == 0:
        return _publish(rank, transport, url, environment, mode)
    return _pull(rank, transport, url, environment, folder / f"replica-{rank.rank}")


@pytest.fixture(scope="module")
def cells() -> dict[str, list[Any]]:
    """What the first cell of each mode gave."""
    return {}


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("transport", ["disk", "gloo", "tcp", "s3"])
def test_every_cell_gives_the_same(
    transport: str, mode: str, tmp_path: Path, cells: dict[str, list[Any]], request: pytest.FixtureRequest
) -> None:
    environment = request.getfixturevalue("s3") if transport == "s3" else {}
    url = {"disk": str(tmp_path / "store"), "s3": f"s3://{BUCKET}/{mode}"}.get(transport, "memory:matrix")
    published, *pulled = run_ranks(RANKS, _cell, transport, url, environment, mode, tmp_path)
    assert [version["number"] for version in published] == [0, 1, 2, 2]
    assert all(seen == pulled[0] for seen in pulled)
    assert {seen["whole"] for seen in pulled[0][1:3]} == {mode == "full"}
    for version in published:
        del version["manifest"]  # names the run
    assert cells.setdefault(mode, [published, pulled[0]]) == [published, pulled[0]]
    # Whole or not, the weights are the same.
    digests = [[{name: seen[name] for name in ("state", "version", "up")} for seen in one[1]] for one in cells.values()]
    assert all(seen == digests[0] for seen in digests)
