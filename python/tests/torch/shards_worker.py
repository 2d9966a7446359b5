"""One rank of a group over TCP: python shards_worker.py RANK SIZE TRAINERS TICKET|- FOLDER prove|go-on|die

Trainer ranks hold rows of `w`, engine ranks columns. There are three versions. With `die`, this rank kills itself in the second;
with `prove`, all prove the last.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import deltawire as dw
from deltawire.carriers import enter_group, open_group
from deltawire.shards import ShardLayout, ShardReceiver, ShardSender, gather_layouts, plan_shards, prove_shards

SHAPE = (60, 96)


def weights(version: int) -> np.ndarray:
    random = np.random.default_rng(0)
    state = random.integers(0, 2**32, SHAPE, np.uint32)
    for step in range(1, version):
        changed = np.random.default_rng(step).random(SHAPE) < 0.02
        state[changed] ^= np.uint32(step)
    return state.view(np.float32)


def mine(state: np.ndarray, axis: int, rank: int, ranks: int) -> dw.Tensor:
    size = SHAPE[axis] // ranks
    box = [slice(None), slice(None)]
    box[axis] = slice(rank * size, (rank + 1) * size)
    offset = [0, 0]
    offset[axis] = rank * size
    return dw.Tensor(state[tuple(box)].copy(), shape=SHAPE, offset=offset)


def join(rank: int, size: int, ticket: str, folder: Path):
    if ticket != "-":
        return enter_group(ticket, rank, size, secret="of the test")
    gathering = open_group(size, secret="of the test")
    (folder / "ticket.new").write_text(gathering.ticket)
    (folder / "ticket.new").rename(folder / "ticket")
    return gathering.finish(60)


def main() -> None:
    rank, size, trainers = map(int, sys.argv[1:4])
    folder, then = Path(sys.argv[5]), sys.argv[6]
    carrier = join(rank, size, sys.argv[4], folder)
    is_trainer = rank < trainers
    own_rank, ranks = (rank, trainers) if is_trainer else (rank - trainers, size - trainers)
    held = mine(weights(1) if is_trainer else np.zeros(SHAPE, np.float32), 0 if is_trainer else 1, own_rank, ranks)
    layouts = gather_layouts(carrier, ShardLayout.of_rank({"w": held}), trainers)
    side = "trainer_rank" if is_trainer else "engine_rank"
    plan = plan_shards(*layouts, **{side: own_rank})
    end = (ShardSender if is_trainer else ShardReceiver)(plan, own_rank, {"w": held}, timeout=30, threads=1)
    for version in (1, 2, 3):
        expected = mine(weights(version), 0 if is_trainer else 1, own_rank, ranks).array
        if then == "die" and version == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if is_trainer:
            held.array[:] = expected
            report = end.send(carrier, version)
        else:
            report = end.receive(carrier)
            end.commit()
            assert np.array_equal(held.array.view(np.uint32), expected.view(np.uint32)), f"version {version}"
        print(f"version {version}: {report.num_delta} delta, {report.num_whole} whole, lost {report.lost}", flush=True)
    if then == "prove":
        print("proven", prove_shards(carrier, plan, end.proof(), 30), flush=True)


if __name__ == "__main__":
    main()
