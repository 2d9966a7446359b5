"""From the ranks of a trainer to the workers of an engine, each of which gets its shard: real ranks, no engine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_models import Engine, changed, checkpoint
from shard_world import Served, Trainer, shards_of, wait_until

import deltawire as dw
from deltawire.engines.host import Keeper, local_identity
from deltawire.engines.settings import Settings


def fallbacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "shards.fallback" in record.getMessage()]


@pytest.mark.parametrize(
    ("trainer", "engine"), [("fsdp=4", "tp=2"), ("tp=4", "tp=4"), ("ep=2", "ep=4"), ("pp=2", "tp=2,ep=2")], ids=str
)
def test_versions_go_from_ranks_to_workers(tmp_path: Path, caplog: pytest.LogCaptureFixture, trainer: str, engine: str) -> None:
    with ExitStack() as closed:
        ranks = closed.enter_context(closing(Trainer(tmp_path / "trainer", trainer)))
        workers = shards_of(engine, ranks.tensors)
        served = closed.enter_context(closing(Served(tmp_path, ranks.tensors, workers, store=ranks.url)))
        assert served.attach() == [{"ok": 0}] * len(workers)
        for _ in range(3):
            served.go_to(ranks.step())
            served.assert_serves(shards_of(engine, ranks.tensors))
        for said in served.call("prove"):
            assert (said["ok"]["version"], said["ok"]["wrong"], said["ok"]["unproven"]) == (3, (), ())
            assert said["ok"]["num_tensors"] == len(ranks.tensors)
        assert [local_identity(str(local)).version for local in served.locals] == [0] * len(workers), "no checkpoint is kept"
    assert not fallbacks(caplog)
    assert ranks.results == ["ended"] * len(ranks.results)


def test_names_a_dead_trainer_rank_and_serves_on(tmp_path: Path) -> None:
    with ExitStack() as closed:
        ranks = closed.enter_context(closing(Trainer(tmp_path / "trainer", "tp=2", dies=1)))
        workers = shards_of("tp=2", ranks.tensors)
        served = closed.enter_context(closing(Served(tmp_path, ranks.tensors, workers, store=ranks.url, follow=False)))
        served.attach()
        for member in served.members:  # they hear of the version when its rank is gone
            member._host._keeper.close()
        before = shards_of("tp=2", ranks.tensors)
        ranks.step()
        wait_until(lambda: (ranks.folder / "died").exists() and dw.Chain(ranks.url).head == 1)
        for member in served.members:
            member._host._keeper = Keeper(member.settings)
        wait_until(lambda: all("-rank-1/" in (said["ok"]["host_error"] or "") for said in served.call("status")))
        assert all("did not arrive" in said["error"] for said in served.call("update", wanted=[1], timeout=0.5))
        served.assert_serves(before)


class Origin(dw.Store):
    """A chain in memory, like a remote server's: every range is counted, and may be damaged."""

    def __init__(self) -> None:
        self.inner = dw.open_store(f"memory:{uuid.uuid4().hex}")
        self.fetched: list[tuple[str, int, int]] = []
        self.flips = ""

    def put(self, name: str, data: bytes) -> None:
        self.inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> None:
        self.inner.put_if_absent(name, data)

    def get(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        data = bytearray(self.inner.get(name, offset, length))
        if name.startswith("parts/"):
            self.fetched.append((name, offset, len(data)))
            if offset and name.startswith(f"parts/{self.flips}-"):
                data[len(data) // 2] ^= 1
        return bytes(data)

    def stat(self, name: str) -> dw.ObjectInfo:
        return self.inner.stat(name)

    def list(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> Sequence[dw.ObjectInfo]:
        return self.inner.list(prefix, start_after, limit)

    def remove(self, name: str) -> None:
        self.inner.remove(name)


class World:
    """A trainer of one process and an engine of two workers on one host, both of the same small model."""

    def __init__(self, folder: Path, kind: type = Engine, hosts: Sequence[int] = (0, 0), **form: Any) -> None:
        self.store, self.folder, self._kind, self._form = Origin(), folder, kind, form
        self.tensors, self._hosts = checkpoint(tied=form.get("tied", False)), list(hosts)
        self._publisher = dw.Publisher(self.store)
        self._publisher.publish(self.tensors)
        self.served = self.start()

    def engines(self) -> list[Any]:
        made = [self._kind(rank=rank, world=2, **self._form) for rank in range(2)]
        for engine in made:
            engine.load_weights(self.tensors.items())
        return made

    def start(self) -> Served:
        """Start the server with the weights of the host's folder."""
        return Served(self.folder, self.tensors, self.engines(), self._hosts, store=self.store)

    def step(self) -> int:
        self.tensors = changed(self.tensors, len(self.store.fetched) + 1)
        return self._publisher.publish(self.tensors).number

    def go_on(self) -> None:
        self.served.go_to(self.step())
        self.served.assert_serves(self.engines())

    def local(self) -> int:
        held = local_identity(str(self.served.locals[0]))
        assert held is not None
        return held.version

    def close(self) -> None:
        self.served.close()


@pytest.mark.parametrize("hosts", [(0, 0), (0, 1)], ids=["one host", "a host each"])
def test_decodes_small_tensors_with_data_of_other_ranks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hosts: Sequence[int]
) -> None:
    """Tensors too small for tiles: each worker also keeps the rest of them."""
    with closing(World(tmp_path, hosts=hosts)) as world:
        assert world.served.attach() == [{"ok": 0}] * 2
        for _ in range(3):
            world.go_on()
        assert world.local() == 0
    assert not fallbacks(caplog)


class Repacked(Engine):
    """Always stores a parameter differently than the checkpoint."""

    def load_weights(self, weights: Any) -> None:
        super().load_weights(weights)
        self.norm.data.copy_(self.norm.data.flip(0))


@pytest.mark.parametrize(("kind", "form"), [(Repacked, {}), (Engine, {"transposed": True})], ids=["repacked", "transposed"])
def test_falls_back_to_whole_tensors(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type, form: dict[str, Any]) -> None:
    with closing(World(tmp_path, kind, **form)) as world:
        world.served.attach()
        for number in (1, 2):
            world.go_on()
            assert world.local() == number
        assert any(name in said for said in fallbacks(caplog) for name in ("model.norm.weight", "o_proj.weight"))
        assert all(not said["ok"]["wrong"] for said in world.served.call("prove"))


def test_worker_without_a_delta_path_fetches_the_whole_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(World(tmp_path)) as world:
        first = world.tensors
        world.served.close()
        world.step()
        dw.Replica(world.store, world.served.locals[0]).pull(version=0)
        for _ in range(40):
            number = world.step()
        now, world.tensors = world.tensors, first
        world.served = world.start()
        world.tensors = now
        world.served.attach()
        world.served.go_to(number)
        world.served.assert_serves(world.engines())
        assert "no usable deltas" in fallbacks(caplog)[0]
        assert world.local() == number
        world.go_on()
        world.go_on()
        assert world.local() == number, "by boxes again"


def test_restarted_worker_continues_from_its_hosts_files(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        first = world.tensors
        world.served.attach()
        for _ in range(2):
            world.go_on()
        world.served.close()
        number = world.step()
        now, world.tensors = world.tensors, first
        world.served = world.start()
        world.tensors = now
        world.served.attach()
        world.served.go_to(number)
        world.served.assert_serves(world.engines())
        assert world.local() == 0


def test_rolls_back_and_recovers_from_a_flipped_bit(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        world.served.attach()
        world.go_on()
        before = world.engines()
        world.store.flips = "0000000002"
        world.step()
        wait_until(lambda: any(said["ok"]["staged"] or said["ok"]["staging_error"] for said in world.served.call("status")))
        world.store.flips = ""
        answers = world.served.call("update", wanted=[2])
        if any("error" in said for said in answers):
            world.served.assert_serves(before)
            wait_until(lambda: world.served.call("update", wanted=[2]) == [{"ok": 2}] * 2)
        world.served.assert_serves(world.engines())
        world.go_on()


def test_accepts_the_alias_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"local": "l", "store": "s"}
    assert Settings.of(named | {"use_p2p_weight_update": True}).shards
    assert not Settings.of(named | {"use_p2p_weight_update": False}).shards
    with pytest.raises(dw.InvalidArgument, match="an alias of `shards`"):
        Settings.of(named | {"use_p2p_weight_update": True, "shards": False})
    for name, value in (named | {"use_p2p_weight_update": "yes"}).items():
        monkeypatch.setenv(f"DELTAWIRE_{name.upper()}", value)
    found = Settings.from_environment()
    assert found is not None
    assert found.shards


@pytest.mark.parametrize("verify", ["off", "sample"])
def test_shards_require_verification(verify: str) -> None:
    with pytest.raises(dw.InvalidArgument, match="only these verify"):
        Settings.of({"local": "l", "store": "s", "shards": True, "verify": verify})
