"""A server after a failure: its engines roll back together, it heals by itself, and it is not ready before that."""

import asyncio
import itertools
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")
pytest.importorskip("fastapi")

from engine_models import Engine, checkpoint
from engine_world import Server, World
from test_engines import assert_same, identity, loaded, wait_until

from deltawire import _core
from deltawire._internal.identity import ANY, Wanted
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.host import Host, Keeper, local_identity, newest_here
from deltawire.engines.map import bits
from deltawire.engines.settings import Settings
from deltawire.engines.worker import Worker
from deltawire.engines.workers import WorkerFile


def fail(*_: Any) -> None:
    raise RuntimeError("no room")


def fail_a_proof(world: World) -> None:
    """Of the first engine."""
    with torch.no_grad():
        bits(world.engines[0].norm)[3] ^= 4
    assert world.server.http.post("/deltawire/prove").status_code == 500
    assert world.server.ready()[0] == 503


def wait_until_staged(world: World) -> None:
    wait_until(lambda: all(member.worker.staged for member in world.server.members))


# ---- engines side by side


class Rounds(threading.Event):
    """Counts how often a thread checks whether to stop."""

    number = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.number += 1
        return super().wait(timeout)


def test_rolls_back_though_the_next_version_has_arrived(pair, monkeypatch):
    first, second = pair.server.members
    first._stop = rounds = Rounds()
    pair.step(1)
    wait_until_staged(pair)

    def fail_late(*_: Any) -> None:  # the first engine is done, and would have the time to stage version 2
        wanted = pair.step(2)
        wait_until(lambda: local_identity(pair.chain.local) == wanted)
        number = rounds.number
        wait_until(lambda: rounds.number > number + 2)
        fail()

    monkeypatch.setattr(second.worker, "_write", fail_late)
    pair.server.go_on()
    assert [member.served.version for member in pair.server.members] == [0, 0]
    for engine in pair.engines:
        assert_same(engine, loaded(checkpoint()))
    monkeypatch.undo()
    pair.server.go_on_until(200, version=2)


def test_failed_proof_is_kept_when_another_engine_fails(pair, monkeypatch):
    pair.server.serve(pair.step(1))
    fail_a_proof(pair)
    wait_until(lambda: pair.server.members[0].worker.staged)  # what heals it; the next version comes to the other alone
    pair.step(2)
    wait_until_staged(pair)
    with monkeypatch.context() as broken:
        broken.setattr(pair.server.members[1].worker, "_write", fail)
        pair.server.go_on()  # the first engine is healed, the second one fails, and all is taken back
    assert [member.served.version for member in pair.server.members] == [1, 1]
    assert pair.server.ready()[0] == 503
    pair.server.go_on_until(200, version=2)
    for engine in pair.engines:
        assert_same(engine, loaded(pair.chain.tensors))


def test_failed_rollback_is_not_served(pair, monkeypatch):
    first, second = (member.worker for member in pair.server.members)
    put_back = first._put_back

    def fail_at_the_end(staged: Any) -> None:
        put_back(staged)
        fail()

    pair.step(1)
    wait_until_staged(pair)
    with monkeypatch.context() as broken:
        broken.setattr(second, "_write", fail)
        broken.setattr(first, "_put_back", fail_at_the_end)
        pair.server.go_on()
    assert first.served is None
    assert pair.server.ready()[0] == 503
    pair.server.go_on_until(200, version=1)
    for engine in pair.engines:
        assert_same(engine, loaded(pair.chain.tensors))


# ---- a keeper that dies


def test_survives_a_killed_keeper_at_any_point(tmp_path, monkeypatch):
    """Killed between the notice of a version and its record: engine and checkpoint still reach the newest version, proven."""
    monkeypatch.setattr(Host, "in_process", False)
    start = subprocess.Popen
    log = tmp_path / "points"

    def two_versions(folder: Path, **environment: str) -> int:
        """Returns how many processes were needed; the first one has that environment."""
        begun: list[subprocess.Popen] = []

        def keep(*args: Any, **options: Any) -> subprocess.Popen:
            begun.append(start(*args, **options, env={**os.environ, **({} if begun else environment)}))
            return begun[-1]

        monkeypatch.setattr(subprocess, "Popen", keep)
        world = World(folder)
        try:
            with closing(WorkerFile(world.chain.local, "reader", reads_local=True)):  # the checkpoint follows at once
                for number in (1, 2):
                    wanted = world.step(number)
                    world.server.serve(wanted)
                    wait_until(lambda wanted=wanted: local_identity(world.chain.local) == wanted)
            assert world.server.http.post("/deltawire/prove").status_code == 200
            assert world.server.ready(version=2)[0] == 200
            assert_same(world.engines[0], loaded(world.chain.tensors))
            held = LocalCheckpoint(Path(world.chain.local))
            assert all(torch.equal(bits(tensor), bits(world.chain.tensors[name])) for name, tensor in held.items())
        finally:
            world.server.close()
        return len(begun)

    assert two_versions(tmp_path / "whole", DELTAWIRE_CRASH_LOG=str(log)) == 1
    points = len(log.read_text().splitlines())
    chosen = range(1, points + 1, max(1, points // 12))
    needed = [two_versions(tmp_path / f"killed-{point}", DELTAWIRE_CRASH_AT=str(point)) for point in chosen]
    assert needed.count(2) > len(chosen) // 2, (points, needed)  # some runs pass fewer points


# ---- an engine that sleeps


@pytest.mark.parametrize("loses", [False, True], ids=["level 1", "level 2"])
def test_does_not_read_weights_of_a_sleeping_engine(tmp_path, loses):
    world = World(tmp_path)
    (member,) = world.server.members
    try:
        member.sleep(loses_weights=loses)
        saved = {name: value.data.clone() for name, value in world.engines[0].named_parameters()}
        for value in world.engines[0].parameters():
            value.data.fill_(float("nan"))  # on a GPU: unmapped
        wanted = world.step(1)
        wait_until(lambda: newest_here(world.chain.local) == wanted)
        assert not member.worker.stage()
        for call in ("update", "prove"):
            assert "sleeps" in member.call(call)["error"]
        for name, value in world.engines[0].named_parameters():
            if not loses:
                value.data.copy_(saved[name])
        member.wake()
        world.server.serve(wanted)
        world.server.go_on_until(200, version=1)
        assert world.server.metrics()["heals_total"] == loses
        assert_same(world.engines[0], loaded(world.chain.tensors))
    finally:
        world.server.close()


# ---- a waiting caller


class SilentWatch:
    """The watch of a store without notifications: it is woken or times out."""

    def __init__(self, _: Any) -> None:
        self._woken = threading.Event()

    def wait(self, seconds: float) -> bool:
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def wake(self) -> None:
        self._woken.set()


def test_query_for_a_newer_version_checks_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(_core, "Watch", SilentWatch)
    world = World(tmp_path, interval=300)
    try:
        world.step(1)
        wait_until(lambda: world.server.go_on() or world.server.ready(version=1)[0] == 200)
    finally:
        world.server.close()


# ---- proofs after the pause


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, engines=2, verify="behind")
    yield world
    world.server.close()


def proofs_of(world: World) -> list[tuple[int, str]]:
    reports = [member.worker.report.proof for member in world.server.members]
    return [(proof["version"], proof["mode"]) for proof in reports if proof is not None]


def test_proves_each_version_after_the_resume(behind):
    for number in (1, 2):
        wanted = behind.step(number)
        behind.server.serve(wanted)
        wait_until(lambda n=number: behind.server.go_on() or proofs_of(behind) == [(n, "behind")] * 2)
        assert behind.server.ready(version=number)[0] == 200
    for engine in behind.engines:
        assert_same(engine, loaded(behind.chain.tensors))


def test_waits_for_the_proof_before_the_next_version(behind):
    behind.step(1)
    wait_until_staged(behind)
    behind.server.go_on()
    assert [member.served.version for member in behind.server.members] == [1, 1]
    seen = []
    for member in behind.server.members:
        prove = member.worker.prove
        member.worker.prove = lambda mode, prove=prove: seen.append((mode, prove(mode))) or seen[-1][1]
    behind.step(2)
    wait_until_staged(behind)
    behind.server.serve(identity(behind.chain, 2))
    assert [(mode, proven.version) for mode, proven in seen[:2]] == [("behind", 1)] * 2


def test_heals_weights_that_fail_a_later_proof(behind):
    behind.step(1)
    wait_until_staged(behind)
    with torch.no_grad():
        bits(behind.engines[1].norm)[3] ^= 4
    behind.server.serve(identity(behind.chain, 1))
    wait_until(lambda: all(member.worker.report.summed for member in behind.server.members))
    behind.server.go_on()
    status, words = behind.server.ready(version=1)
    assert (status, "model.norm.weight" in words["error"]) == (503, True)
    behind.server.go_on_until(200, version=1)
    assert behind.server.metrics()["heals_total"] == 1
    for engine in behind.engines:
        assert_same(engine, loaded(behind.chain.tensors))


# ---- healing


def test_healing_drops_the_cache(world):
    kept: list[bool] = []

    async def pause(keep_cache: bool) -> None:
        kept.append(keep_cache)

    world.server.pause = pause
    world.server.serve(world.step(1))
    fail_a_proof(world)
    world.server.go_on_until(200)
    assert kept == [True, False]


def test_healing_compares_weights_without_a_pause(world, monkeypatch):
    compare, paused = Worker._compare, []

    def compare_and_note(self: Worker, *arguments: Any) -> Any:
        paused.append(world.server.paused)
        return compare(self, *arguments)

    monkeypatch.setattr(Worker, "_compare", compare_and_note)
    fail_a_proof(world)
    world.server.go_on_until(200)
    assert set(paused) == {False}


def versions_come_while_it_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish a version with every read of the host's checkpoint, and leave time to apply it."""
    read, seeds = LocalCheckpoint.read, itertools.count(1)

    def read_slowly(self: LocalCheckpoint, name: str) -> torch.Tensor:
        if name == "model.norm.weight":
            held = local_identity(world.chain.local)
            world.step(next(seeds))
            end = time.monotonic() + 0.5
            while local_identity(world.chain.local) == held and time.monotonic() < end:
                time.sleep(0.01)
        return read(self, name)

    monkeypatch.setattr(LocalCheckpoint, "read", read_slowly)


def test_heals_while_versions_arrive_fast(world, monkeypatch):
    fail_a_proof(world)
    versions_come_while_it_is_read(world, monkeypatch)
    world.server.go_on_until(200)
    assert world.server.metrics()["heals_total"] == 1


class Odd(Engine):
    """Stores one weight differently than the checkpoint: its module uses the engine's own loader."""

    def load_weights(self, weights) -> None:
        super().load_weights((name, tensor + 1 if name == "model.norm.weight" else tensor) for name, tensor in weights)


def test_reloads_modules_while_versions_arrive_fast(make_world, monkeypatch):
    world = make_world(kind=Odd)
    assert "model.norm.weight" in world.server.members[0].worker.report.reloaded
    versions_come_while_it_is_read(world, monkeypatch)
    world.step(0)
    world.server.go_on_until(200, version=1)


def test_heals_one_engine_of_two(pair):
    fail_a_proof(pair)
    pair.server.go_on_until(200)
    for engine in pair.engines:
        assert_same(engine, loaded(pair.chain.tensors))


def test_heals_at_the_served_version_without_follow(make_world):
    world = make_world(follow=False)
    fail_a_proof(world)
    world.server.go_on_until(200)
    assert world.server.follower.seen.served.version == 0
    assert_same(world.engines[0], loaded(checkpoint()))


def test_does_not_heal_to_an_unrequested_version(make_world):
    world = make_world(follow=False)
    follower, wanted = world.server.follower, world.step(1)
    wait_until(lambda: local_identity(world.chain.local) == wanted)
    fail_a_proof(world)
    checked = follower._checked
    wait_until(lambda: world.server.go_on() or follower._checked > checked)  # there is nothing else to do
    assert world.server.ready()[0] == 503
    assert follower.seen.served.version == 0
    assert world.server.labels == [0]
    assert world.server.http.post("/deltawire/update").json()["version"] == 1
    assert world.server.ready(version=1)[0] == 200
    assert follower.seen.heals == 1
    assert_same(world.engines[0], loaded(world.chain.tensors))


def test_heals_without_a_local_checkpoint(make_world):
    world = make_world(shards=True)
    world.server.serve(world.step(1))
    assert local_identity(world.chain.local).version == 0
    bits(world.engines[0].norm.data)[0] ^= 64
    assert world.server.http.post("/deltawire/prove").status_code == 500
    world.server.go_on_until(200, version=1)
    assert_same(world.engines[0], loaded(world.chain.tensors))
    assert local_identity(world.chain.local).version == 1
    world.server.serve(world.step(2))
    assert local_identity(world.chain.local).version == 1, "by boxes again"


@pytest.mark.filterwarnings("default")  # PEFT's
def test_does_not_heal_an_adapter_from_wrong_files(tmp_path):
    """For every value of `verify`."""
    adapters = pytest.importorskip("test_adapters")
    from deltawire.engines.adapters import AdapterFollower

    store, local = str(tmp_path / "store"), tmp_path / "local"
    settings = Settings(store=store, local=str(local), adapter="policy", interval=0.1, verify="off")

    async def steps(follower: AdapterFollower) -> None:
        await adapters.come_to(follower, 0)
        for folder in (follower._served.folder, local / "v0000000000"):
            file = folder / "adapter_model.safetensors"
            contents = bytearray(file.read_bytes())
            contents[-1] ^= 1
            file.unlink()
            file.write_bytes(contents)
        assert (await follower.prove("all"))["wrong"]
        with pytest.raises(dw.errors.Error):
            await follower.update()
        assert follower.seen.why_not_ready(ANY)
        assert follower.seen.heals == 0

    with dw.Publisher(store, adapters.with_lora(), adapter=True) as publisher:
        publisher.publish()
        follower = AdapterFollower(settings, adapters.Shelf())
        try:
            asyncio.run(steps(follower))
        finally:
            follower.close()


# ---- labels, runs and manifests


def test_retries_a_failed_label(world):
    set_version, errors = world.server.set_version, [RuntimeError("the engine core does not answer")]

    async def fail_once(served: dw.Identity) -> None:
        if errors:
            raise errors.pop()
        await set_version(served)

    world.server.set_version = fail_once
    world.server.serve(world.step(1))
    assert world.server.labels == [0]
    status, words = world.server.ready()
    assert (status, "the engine core does not answer" in words["error"]) == (503, True)
    world.server.go_on_until(200, version=1)
    assert world.server.labels == [0, 1]


def test_serves_a_written_version_that_could_not_be_recorded(world, monkeypatch):
    def fail_to_note(**_: Any) -> None:
        raise dw.errors.IoError("No space left on device")

    member, wanted = world.server.members[0], world.step(1)
    wait_until(lambda: member.worker.staged == wanted)
    with monkeypatch.context() as broken:
        broken.setattr(member.worker, "_file", SimpleNamespace(note=fail_to_note))
        assert member.call("update", wanted=list(Wanted.of(wanted))) == {"ok": wanted}
    assert member.served == wanted
    assert_same(world.engines[0], loaded(world.chain.tensors))


def test_refuses_an_update_to_another_run(make_world):
    world = make_world(follow=False)
    said = world.server.members[0].call("update", wanted=list(Wanted(None, "f" * 32)), timeout=1)
    assert "of run ffffffff is wanted" in said["error"]


def test_manifest_query_needs_a_version(world):
    served = world.server.follower.seen.served
    assert world.server.ready(manifest=served.manifest)[0] == 400
    assert world.server.ready(version=0, manifest="f" * 64)[0] == 503
    assert world.server.ready(version=0, manifest=served.manifest)[0] == 200


def test_servers_sharing_a_stuck_folder_are_both_not_ready(world, monkeypatch):
    other = Server(world.settings, [world.member("other", loaded(world.chain.tensors))])
    servers = [world.server, other]
    keep, tries, seen = Keeper._keep, Counter(), set()

    def count(self: Keeper, *arguments: Any) -> None:
        tries[id(self)] += 1
        keep(self, *arguments)

    def statuses() -> tuple[int, ...]:
        for server in servers:
            server.go_on()
        return tuple(server.ready()[0] for server in servers)

    try:
        wanted = world.step(1)
        for server in servers:
            server.serve(wanted)
        (manifest,) = Path(world.chain.store, "manifests").glob("*0001.json")
        manifest.with_name(manifest.name.replace("1", "2")).write_bytes(manifest.read_bytes()[:-20])
        wait_until(lambda: statuses() == (503, 503))
        monkeypatch.setattr(Keeper, "_keep", count)
        wait_until(lambda: seen.add(statuses()) or (len(tries) == 2 and min(tries.values()) > 1))
        assert seen == {(503, 503)}, "whichever of them has the folder"
        for server in servers:
            assert "0002" in server.ready()[1]["error"]
            assert server.follower.seen.served.version == 1
    finally:
        other.close()


def test_does_not_go_back_to_older_versions(world, tmp_path):
    """The store was restored from a backup that lacks its last version, and the folder was moved away."""
    for seed in (1, 2):
        world.server.serve(world.step(seed))
    (manifest,) = Path(world.chain.store, "manifests").glob("*0002.json")
    manifest.unlink()
    Path(world.chain.local).rename(tmp_path / "away")
    wait_until(lambda: local_identity(world.chain.local) == identity(world.chain, 1))
    wait_until(lambda: world.server.go_on() or "lost versions" in (world.server.ready()[1]["error"] or ""))
    assert world.server.follower.seen.served.version == 2
    assert world.server.labels == [0, 1, 2]
    assert_same(world.engines[0], loaded(world.chain.tensors))
