"""The same training steps as full versions and deltas, over a folder, S3, HTTP and gloo, give the same weights."""

import hashlib
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

from rank_processes import Rank, run_ranks

import deltawire as dw
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.torch import Broadcast, Rendezvous

STEPS, RANKS = 4, 3
QUICK: dict[str, Any] = {"options": dw.PublishOptions(limits=dw.Limits(threads=1))}
ENDPOINT, BUCKET = "DELTAWIRE_RGW_ENDPOINT", "matrix"
RGW = Path(__file__).parents[3] / "tests" / "servers" / "rgw"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment for clients of a real S3 server."""
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
    """The same in every process: some weights change with each step, none with the last one."""
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


@contextmanager
def _way(rank: Rank, transport: str, url: str, environment: dict[str, str]) -> Iterator[dw.Store]:
    """The store that this rank publishes to or reads."""
    with ExitStack() as ends:
        if transport == "http":
            server = ends.enter_context(dw.serve(url, token="of the matrix")) if rank.rank == 0 else None
            address = rank.told(server and server.url)
            yield dw.open_store(url) if server else dw.open_store(address, token="of the matrix")
            return
        store = _opened(url, environment)
        if transport == "gloo":
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = rank.told(free.getsockname()[1])
            here = Rendezvous(master_address="127.0.0.1", master_port=port, world_size=RANKS, rank=rank.rank)
            broadcast = ends.enter_context(Broadcast(here, store))
            broadcast.wait(100)
            store = broadcast.store
        yield store


def _publish(rank: Rank, store: dw.Store, mode: str) -> list[Any]:
    seen = []
    with dw.Publisher(store, anchors="only" if mode == "full" else None, **QUICK) as publisher:
        for step in range(STEPS):
            version = publisher.publish(state_after(step))
            rank.told(version.number)
            rank.meet()
            held = dw.Chain(store).wait_until_held(version.number, replicas=RANKS - 1)  # as their heartbeats say
            assert held, held
            rank.meet()
            seen.append({name: getattr(version, name) for name in vars(version) if name not in ("run", "seconds", "phases")})
    return seen


def _pull(rank: Rank, store: dw.Store, folder: Path) -> list[Any]:
    seen = []
    with dw.Replica(store, folder, limits=dw.Limits(threads=1)) as replica:
        for _ in range(STEPS):
            number = rank.told()
            pulled = replica.pull(number)
            tensors = dict(LocalCheckpoint(folder).items())
            wanted = state_after(len(seen))
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
            rank.meet()
    return seen


def _cell(rank: Rank, transport: str, url: str, environment: dict[str, str], mode: str, folder: Path) -> list[Any]:
    torch.set_num_threads(1)
    with _way(rank, transport, url, environment) as store:
        seen = _publish(rank, store, mode) if rank.rank == 0 else _pull(rank, store, folder / f"replica-{rank.rank}")
        rank.meet()
    return seen


@pytest.fixture(scope="module")
def cells() -> dict[str, list[Any]]:
    """The result of the first cell of each mode."""
    return {}


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("transport", ["disk", "s3", "http", "gloo"])
def test_every_transport_gives_the_same(
    transport: str, mode: str, tmp_path: Path, cells: dict[str, list[Any]], request: pytest.FixtureRequest
) -> None:
    environment = request.getfixturevalue("s3") if transport == "s3" else {}
    url = {"s3": f"s3://{BUCKET}/{mode}", "http": "memory:matrix"}.get(transport, str(tmp_path / "store"))
    published, *pulled = run_ranks(RANKS, _cell, transport, url, environment, mode, tmp_path)
    assert [version["number"] for version in published] == [0, 1, 2, 2]
    assert all(seen == pulled[0] for seen in pulled)
    assert {seen["whole"] for seen in pulled[0][1:3]} == {mode == "full"}
    for version in published:
        del version["manifest"]  # names the run
    assert cells.setdefault(mode, [published, pulled[0]]) == [published, pulled[0]]
    # Full versions and deltas give the same weights.
    digests = [[{name: seen[name] for name in ("state", "version", "up")} for seen in one[1]] for one in cells.values()]
    assert all(seen == digests[0] for seen in digests)
