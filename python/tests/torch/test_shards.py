"""Shards from rank to rank, in threads over sockets: arrays, torch tensors, callbacks, failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import deltawire as dw
from deltawire.carriers import local_group
from deltawire.shards import ShardBox, ShardLayout, ShardReceiver, ShardSender, gather_layouts, plan_shards, prove_shards


def on_ranks(carriers, *calls):
    """Call one function for each rank, all at once; what they return, or raise."""
    outcome = [None] * len(calls)

    def call(number):
        try:
            outcome[number] = calls[number](carriers[number])
        except dw.Error as error:
            outcome[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for one in outcome:
        if isinstance(one, dw.Error):
            raise one
    return outcome


def columns(array, ranks):
    width = array.shape[1] // ranks
    parts = [(array[:, at : at + width], (0, at)) for at in range(0, array.shape[1], width)]
    return [{"w": dw.Tensor(part.copy(), shape=array.shape, offset=offset)} for part, offset in parts]


def rows(array, ranks):
    height = array.shape[0] // ranks
    parts = [(array[at : at + height], (at, 0)) for at in range(0, array.shape[0], height)]
    return [{"w": dw.Tensor(part.copy(), shape=array.shape, offset=offset)} for part, offset in parts]


@pytest.fixture
def state():
    random = np.random.default_rng(1)
    return random.integers(0, 2**32, (64, 48), np.uint32).view(np.float32)  # NaN of every kind


def test_rows_to_columns(state):
    trainers, engines = rows(state, 2), columns(np.zeros_like(state), 3)
    trainer = ShardLayout.join([ShardLayout.of_rank(own) for own in trainers])
    engine = ShardLayout.join([ShardLayout.of_rank(own) for own in engines])
    plan = plan_shards(trainer, engine)
    assert plan.edges == {(t, e): 32 * 16 * 4 for t in range(2) for e in range(3)}
    senders = [ShardSender(plan_shards(trainer, engine, trainer_rank=r), r, own) for r, own in enumerate(trainers)]
    receivers = [ShardReceiver(plan_shards(trainer, engine, engine_rank=r), r, own) for r, own in enumerate(engines)]
    carriers = local_group(5)

    def sends(sender, version):
        return lambda carrier: sender.send(carrier, version)

    def receives(receiver):
        def call(carrier):
            report = receiver.receive(carrier)
            receiver.commit()
            return report

        return call

    for version in (1, 2, 3):
        reports = on_ranks(carriers, *(sends(s, version) for s in senders), *map(receives, receivers))
        assert [report.num_whole for report in reports] == ([3, 3, 2, 2, 2] if version == 1 else [0] * 5)
        got = np.concatenate([own["w"].array for own in engines], axis=1)
        expected = np.concatenate([own["w"].array for own in trainers])
        assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))
        proven = on_ranks(carriers, *(lambda c, e=end: prove_shards(c, plan, e.proof()) for end in (*senders, *receivers)))
        assert proven == [1] * 5
        trainers[0]["w"].array[version, version] = version
    assert senders[0].version == 3
    assert receivers[0].version == 3
    assert senders[0].snapshot_bytes == 32 * 48 * 4


def test_an_engine_stages_and_swaps(state):
    live = np.zeros_like(state)
    layout = ShardLayout.of_rank({"w": state})
    plan = plan_shards(layout, layout)

    def read(name, offset, extent, room):
        assert name == "w"
        box = tuple(slice(at, at + size) for at, size in zip(offset, extent, strict=True))
        np.frombuffer(room, np.uint8)[:] = live[box].reshape(-1).view(np.uint8)

    sender, receiver = ShardSender(plan, 0, {"w": state}), ShardReceiver(plan, 0, read=read)
    carriers = local_group(2)
    on_ranks(carriers, lambda c: sender.send(c, 1), receiver.receive)
    [staged] = receiver.staged
    assert (staged.name, staged.dtype, staged.positions) == ("w", "F32", None)
    live.reshape(-1).view(np.uint8)[:] = staged.values
    receiver.committed()
    state[3, 5] = 7
    on_ranks(carriers, lambda c: sender.send(c, 2), receiver.receive)
    [staged] = receiver.staged
    assert staged.positions.tolist() == [3 * 48 + 5]
    assert staged.values.view(np.float32).tolist() == [7]
    receiver.discarded()
    assert receiver.version == 1
    report = on_ranks(carriers, lambda c: sender.send(c, 3), receiver.receive)[0]
    assert (report.num_delta, report.num_merged, report.notes) == (1, 1, [])
    [staged] = receiver.staged  # what has changed since version 1
    assert staged.positions.tolist() == [3 * 48 + 5]
    receiver.discarded()
    forgetful = ShardSender(plan, 0, {"w": state}, history_bytes=0)
    on_ranks(carriers, lambda c: forgetful.send(c, 4), receiver.receive)
    live.reshape(-1).view(np.uint8)[:] = receiver.staged[0].values
    receiver.committed()
    for version in (5, 6):
        report = on_ranks(carriers, lambda c, version=version: forgetful.send(c, version), receiver.receive)[0]
        receiver.discarded()
    assert report.num_whole == 1
    [note] = report.notes
    assert note == "engine rank 0: whole, because it holds version 4, not 5 or one of the 0 before it whose changes are kept"


def test_what_a_reader_raises_is_the_cause(state):
    layout = ShardLayout.of_rank({"w": state})
    plan = plan_shards(layout, layout)

    def read(name, offset, extent, room):
        raise OSError("the GPU has gone")

    sender, receiver = ShardSender(plan, 0, read=read), ShardReceiver(plan, 0, {"w": state.copy()})
    with pytest.raises(dw.Error, match="the GPU has gone"):
        on_ranks(local_group(2), lambda c: sender.send(c, 1), receiver.receive)


def test_layouts():
    box = ShardBox("w", "BF16", (4, 4), (0, 0), (2, 4))
    layout = ShardLayout.of_boxes([box])
    assert layout.boxes(0) == [box]
    assert layout.rank_bytes(0) == 16
    assert ShardLayout.parse(layout.text) == layout
    with pytest.raises(dw.Corruption, match="shard layout"):
        ShardLayout.parse("{}")
    with pytest.raises(dw.InvalidArgument, match="leaves dimension 0"):
        ShardLayout.of_boxes([ShardBox("w", "BF16", (4, 4), (3, 0), (2, 4))])


def test_refusals_have_names(state):
    half = ShardLayout.of_rank(rows(state, 2)[0])
    plan = plan_shards(half, ShardLayout.of_rank({"w": state}))
    assert [(one.obstacle, one.tensor) for one in plan.refusals] == [("gap", "w")]
    with pytest.raises(dw.Unsupported, match="shard to shard: gap: tensor"):
        plan.check()
    with pytest.raises(dw.Unsupported, match="gap"):
        ShardSender(plan, 0, {"w": state})


def test_layouts_are_gathered(state):
    trainers, engines = rows(state, 2), columns(state, 1)
    layouts = [ShardLayout.of_rank(own) for own in (*trainers, *engines)]
    heard = on_ranks(local_group(3), *(lambda c, own=own: gather_layouts(c, own, 2) for own in layouts))
    for trainer, engine in heard:
        assert trainer == ShardLayout.join(layouts[:2])
        assert engine == layouts[2]


def test_torch_modules():
    torch = pytest.importorskip("torch")
    from deltawire.torch import HeldShards

    torch.manual_seed(0)
    trainer = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LayerNorm(8)).to(torch.bfloat16)
    engine = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LayerNorm(8)).to(torch.bfloat16)
    ours, theirs = HeldShards(trainer), HeldShards(engine)
    plan = plan_shards(ours.layout, theirs.layout)
    sender, receiver = ShardSender(plan, 0, read=ours.read), ShardReceiver(plan, 0, read=theirs.read)
    carriers = local_group(2)
    for version in (1, 2):
        on_ranks(carriers, lambda c, v=version: sender.send(c, v), receiver.receive)
        theirs.write(receiver.staged)
        receiver.committed()
        for name, value in trainer.state_dict().items():
            assert torch.equal(value.view(torch.int16), engine.state_dict()[name].view(torch.int16)), name
        with torch.no_grad():
            trainer[0].weight[2, 3] += 1
            trainer[1].bias[1] = float("nan")


def run_processes(folder, size, trainers, dies=None):
    """Processes of `shards_worker.py`; what each printed, and how it ended."""
    worker = Path(__file__).with_name("shards_worker.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(rank, ticket):
        then = "prove" if dies is None else "die" if rank == dies else "go-on"
        words = [str(rank), str(size), str(trainers), ticket, str(folder), then]
        return subprocess.Popen(
            [sys.executable, str(worker), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )

    processes = [start(0, "-")]
    try:
        while not (folder / "ticket").exists():
            assert processes[0].poll() is None, processes[0].communicate()[0]
            time.sleep(0.02)
        ticket = (folder / "ticket").read_text()
        processes += [start(rank, ticket) for rank in range(1, size)]
        return [(process.communicate(timeout=120)[0], process.returncode) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()


def test_processes_over_tcp(tmp_path):
    for text, code in run_processes(tmp_path, 5, 2):
        assert code == 0, text
        assert "version 3: " in text
        assert "0 whole" in text
        assert "proven 1" in text


def test_a_killed_engine_rank_does_not_keep_the_others(tmp_path):
    outcome = run_processes(tmp_path, 4, 2, dies=3)
    assert outcome[3][1] == -9
    for text, code in outcome[:3]:
        assert code == 0, text
        assert "version 3: " in text
    assert "lost [3]" in outcome[0][0].splitlines()[1]


def test_a_killed_trainer_rank_is_named(tmp_path):
    outcome = run_processes(tmp_path, 4, 2, dies=1)
    for text, code in outcome[2:]:
        assert code != 0
        assert "version 1: " in text
        assert "rank 1" in text
        assert "Unavailable" in text


@pytest.mark.parametrize("size", [0, 257 << 20, 1 << 62])
def test_layouts_of_no_size_are_refused(size):
    own, other = local_group(2)
    head = size.to_bytes(8, "little")
    liar = threading.Thread(target=lambda: other.exchange([(0, head)], [(0, bytearray(8))], 30))
    liar.start()
    with pytest.raises(dw.InvalidArgument, match=f"rank 1: a layout of {size} bytes"):
        gather_layouts(own, ShardLayout.of_rank({"w": np.zeros(4)}), 1)
    liar.join()


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"own": 1, "absent": {}}', '{"own": "", "absent": {"x": ""}}', "\0"])
def test_words_that_are_no_layout_are_refused(said):
    from deltawire.engines.shard_group import Meeting

    own, other = local_group(2)
    text = said.encode() or b" "
    rooms = bytearray(8), bytearray(1 << 20)

    def lie():
        other.exchange([(0, len(text).to_bytes(8, "little"))], [(0, rooms[0])], 30)
        other.exchange([(0, text)], [(0, memoryview(rooms[1])[: int.from_bytes(rooms[0], "little")])], 30)

    liar = threading.Thread(target=lie)
    liar.start()
    with pytest.raises(dw.Corruption, match="rank 1: no layout"):
        Meeting(own, [0, 1], 1, 30).plan(lambda: ShardLayout.of_rank({"w": np.zeros(4)}), {})
    liar.join()
