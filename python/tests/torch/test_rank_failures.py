"""Ranks of a sharded trainer as processes of a gloo group: a mistake or death of one is an error on all."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist
from rank_processes import Rank, error_of, run_ranks
from watched_store import Watched

import deltawire as dw

SIZE = 3
LAST = SIZE - 1


def held(rank: int, step: int) -> list[tuple[str, Any]]:
    """Rows of one tensor, and another one whole on each rank."""
    rows = torch.arange(4 * 8, dtype=torch.float32).reshape(4, 8) + 100 * rank
    rows[0, step % 8] += 1000 * step
    return [("rows", dw.Tensor(rows, shape=(4 * SIZE, 8), offset=(4 * rank, 0))), (f"own.{rank}", torch.full((5,), float(step)))]


def expect(store: Path, version: int, step: int) -> None:
    """All ranks' tensors are of one step."""
    rows = torch.zeros(4 * SIZE, 8)
    state = {"rows": rows} | {f"own.{rank}": torch.zeros(5) for rank in range(SIZE)}
    with dw.TensorReplica(str(store), state) as replica:
        replica.pull(version)
    for rank in range(SIZE):
        (_, box), (name, own) = held(rank, step)
        assert torch.equal(rows[4 * rank : 4 * rank + 4], box.array), (rank, version)
        assert torch.equal(state[name], own), (rank, version)


def join(rank: Rank, folder: Path, name: str, seconds: float = 120) -> None:
    """A gloo group; each group has its own `name`."""
    torch.set_num_threads(1)
    meeting = dist.FileStore(str(folder / f"meeting-{name}"), SIZE)
    dist.init_process_group("gloo", store=meeting, rank=rank.rank, world_size=SIZE, timeout=timedelta(seconds=seconds))


def publisher_of(store: Any) -> dw.Publisher:
    return dw.Publisher(store, group=dist.group.WORLD, options=dw.PublishOptions(limits=dw.Limits(threads=1)))


# ---- mistakes: all ranks raise, nothing is committed, and the same publishers continue


def make_mistakes(rank: Rank, folder: Path) -> list[str]:
    join(rank, folder, "mistakes")
    me, last = rank.rank, rank.rank == LAST
    publisher, errors = publisher_of(str(folder / "store")), []
    assert publisher.publish(held(me, 0), step=0).number == 0

    def unreadable() -> Any:
        if last:
            raise RuntimeError("lost the weights")
        return held(me, 1)

    def other_shape() -> list[tuple[str, Any]]:
        _, own = held(me, 1)
        rows = torch.zeros(4, 9) if last else torch.zeros(4, 8)
        return [("rows", dw.Tensor(rows, shape=(4 * SIZE, rows.shape[1]), offset=(4 * me, 0))), own]

    def overlapping() -> list[tuple[str, Any]]:
        (name, box), own = held(me, 1)
        return [(name, dw.Tensor(box.array, shape=box.shape, offset=(3 if me == 1 else 4 * me, 0))), own]

    wrong: list[tuple[Any, int]] = [
        (unreadable, 1),
        (held(me, 1), 7 if last else 1),
        (other_shape(), 1),
        (overlapping(), 1),
        (held(me, 1)[: 1 if last else 2], 1),  # a tensor is gone
        (held(me, 1)[1 if last else 0 :], 1),  # rows are gone
    ]
    for tensors, step in wrong:
        try:
            version = publisher.publish(tensors, step=step)
            raise AssertionError(f"no failure, but {version}")
        except (dw.Error, RuntimeError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    assert dw.Chain(str(folder / "store")).head == 0
    # On one rank only: a missing file, and a value that is no model.
    files = [folder / "nothing"] if last else []
    errors.append(error_of(lambda: publisher.publish(held(me, 1), files)))
    errors.append(error_of(lambda: publisher.publish(None if last else held(me, 1))))
    assert publisher.publish(held(me, 1), step=1).number == 1
    assert not publisher.publish(held(me, 1), step=2).committed
    assert publisher.publish(held(me, 3), wait=False, step=3).result().number == 2
    return errors


def test_mistake_of_one_rank_is_reported_on_all(tmp_path: Path) -> None:
    results = run_ranks(SIZE, make_mistakes, tmp_path)
    words = [
        "lost the weights",
        f'rank 0 is at "step 1, begin", rank {LAST} at "step 7, begin"',
        'tensor "rows": F32 [12, 8] (rank 0) and F32 [12, 9]',
        'tensor "rows": ',
        f'1 tensor removed ("own.{LAST}")',
        'tensor "rows": its boxes (ranks 0, 1) cover 64 of 96 elements',
        "No such file",
        "no tensors",
    ]
    for rank, errors in enumerate(results):
        for said, wanted in zip(errors, words, strict=True):
            assert wanted in said, (rank, said)
        assert rank == LAST or f"rank {LAST} failed" in errors[0], errors[0]
        assert errors[0].startswith("RuntimeError" if rank == LAST else "Cancelled")
        assert all(said.startswith("InvalidArgument") for said in errors[1:6]), errors
        for wanted in "(rank 0)", "(rank 1)", "overlap":
            assert wanted in errors[3], errors[3]
    for version, step in enumerate([0, 1, 3]):
        expect(tmp_path / "store", version, step)


# ---- ranks that die or never join: the others raise, and a restart continues


def publish_until_killed(rank: Rank, folder: Path, who: int, when: str, name: str) -> str:
    join(rank, folder, f"{who}-{when}-{name}")
    store = Watched(folder / "store")
    publisher = publisher_of(store)
    publisher.publish(held(rank.rank, 0))

    def end(put: str) -> None:
        if put.startswith(name):
            os.kill(os.getpid(), signal.SIGKILL)

    if rank.rank == who:
        setattr(store, when, end)
    return error_of(lambda: publisher.publish(held(rank.rank, 1)))


def publish_again(rank: Rank, folder: Path, step: int) -> int:
    join(rank, folder, f"again-{step}")
    with publisher_of(str(folder / "store")) as publisher:
        return publisher.publish(held(rank.rank, step)).number


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("who", "name"), [(LAST, "parts"), (0, "manifests")])
def test_killed_rank_is_an_error_on_the_others(tmp_path: Path, who: int, when: str, name: str) -> None:
    errors = run_ranks(SIZE, publish_until_killed, tmp_path, who, when, name)
    for rank, error in enumerate(errors):
        if rank == who:
            assert error is None
        else:
            assert error.startswith("Unavailable: "), error
            assert "another rank does not answer" in error
    committed = (who, when) == (0, "after")
    assert dw.Chain(str(tmp_path / "store")).head == int(committed)
    if committed:
        expect(tmp_path / "store", 1, 1)
    assert run_ranks(SIZE, publish_again, tmp_path, 2) == [1 + committed] * SIZE
    expect(tmp_path / "store", 1 + committed, 2)


def stay_away(rank: Rank, folder: Path) -> str:
    join(rank, folder, "away", seconds=2)
    publisher = publisher_of(str(folder / "store"))
    rank.meet()
    error = "" if rank.rank == LAST else error_of(lambda: publisher.publish(held(rank.rank, 0)))
    rank.meet()  # the last one lives until the others have given up
    return error


def test_absent_rank_is_a_group_timeout(tmp_path: Path) -> None:
    errors = run_ranks(SIZE, stay_away, tmp_path)
    for error in errors[:LAST]:
        assert error.startswith("Unavailable: "), error
        assert "another rank does not answer" in error
    assert not (tmp_path / "store/manifests").exists()
    assert run_ranks(SIZE, publish_again, tmp_path, 0) == [0] * SIZE
    expect(tmp_path / "store", 0, 0)
