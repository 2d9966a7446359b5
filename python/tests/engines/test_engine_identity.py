"""An engine reports correctly what it serves: which run, proven or not, ready or not, on all workers."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

import deltawire as dw

torch = pytest.importorskip("torch")
pytest.importorskip("fastapi")

from engine_models import changed, checkpoint
from test_engines import Chain, assert_same, attached, identity, loaded, loaded_ranks, ranks, together, wait_until

from deltawire._internal.identity import ANY, Wanted
from deltawire.engines import worker as worker_module
from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.follower import same
from deltawire.engines.host import local_identity
from deltawire.engines.map import bits
from deltawire.engines.routes import prometheus_text
from deltawire.engines.settings import Allowed, Settings
from deltawire.engines.worker import Worker

# ---- which run


def test_replaced_run_is_not_served(world, tmp_path):
    for seed in range(1, 5):
        world.server.serve(world.step(seed))
    held = world.server.follower.seen.served
    assert world.server.ready(version=1)[0] == 200
    assert world.server.metrics()["ready"] == 1
    world.replace_run(tmp_path, versions=5)

    def is_not_ready() -> bool:
        world.server.go_on()
        return world.server.ready(version=1)[0] == 503

    wait_until(is_not_ready)
    _, words = world.server.ready(version=1)
    assert (words["run"], words["version"]) == (held.run, 4)
    there = dw.Chain(world.chain.store).run
    assert f"holds run {there[:8]}" in words["error"] or there in words["error"]
    assert world.server.ready(version=1, run=there)[0] == 503
    # By number, by identity, and through the workers as a trainer does.
    answer = world.server.http.post("/deltawire/update", params={"version": 1, "timeout": 1})
    assert (answer.status_code, there[:8] in answer.json()["error"]) == (503, True), answer.json()
    said = world.server.members[0].call("update", wanted=[1], timeout=1)
    assert "base mismatch" in said["error"], said
    wanted = dw.Chain(world.chain.store)[1].identity
    assert "error" in world.server.members[0].call("update", wanted=list(Wanted.of(wanted)), timeout=1)
    metrics = world.server.metrics()
    assert metrics["ready"] == 0
    assert_same(world.engines[0], loaded(world.chain.tensors))
    assert world.server.labels[-1] == 4


def test_moving_the_folder_away_follows_the_other_run(world, tmp_path):
    world.server.serve(world.step(1))
    world.replace_run(tmp_path, versions=2)
    Path(world.chain.local).rename(tmp_path / "away")
    wanted = dw.Chain(world.chain.store)[1].identity
    world.server.serve(wanted)
    assert_same(world.engines[0], loaded(changed(checkpoint(), seed=101)))
    world.server.go_on_until(200, version=1, run=wanted.run, manifest=wanted.manifest)


@pytest.mark.parametrize("verify", ["all", "off"])
def test_folder_switched_to_another_run_is_compared(tmp_path, verify):
    chain, engine, worker = attached(tmp_path)
    chain.replica.close()
    shutil.rmtree(chain.local)
    other = Chain(tmp_path / "other")
    other.local = chain.local
    with dw.Replica(other.store, chain.local) as replica:
        replica.pull()
        other.tensors = changed(other.tensors, seed=9)
        other._publisher.publish(other.tensors)
        replica.pull()
    other._spool = None
    other.fetch()
    worker.stage()
    assert not worker._staged.from_deltas, "nothing of one run is applied onto another"
    assert worker.update(verify=verify) == identity(other, 1)
    assert_same(engine, loaded(other.tensors))


def test_republished_number_is_another_version(tmp_path):
    chain = Chain(tmp_path)
    version = identity(chain, 0)
    assert Wanted.of(version).is_met_by(version)
    assert Wanted(0, version.run).is_met_by(version)
    assert not Wanted(0, version.run, "f" * 64).is_met_by(version)
    assert not Wanted(0, "f" * 32).is_met_by(version)
    assert Wanted(0, version.run, "f" * 64).is_met_by(version._replace(version=1))
    assert not ANY.is_met_by(None)


# ---- never below the wanted version


def test_update_never_ends_below_the_wanted_version(tmp_path, monkeypatch):
    chain, engine, worker = attached(tmp_path)
    chain.step(1)
    first = chain.tensors
    worker.stage()
    chain.step(2)
    for where in ("local_identity", "spooled_identity", "newest_here"):  # the next one is still on its way
        monkeypatch.setattr(worker_module, where, lambda *_: None)
    with pytest.raises(dw.errors.Unavailable, match="being patched"):
        worker.update(identity(chain, 2))
    assert worker.served == identity(chain, 0)
    assert worker.update().version == worker.update(identity(chain, 1)).version == 1
    assert_same(engine, loaded(first))


def test_fast_versions_do_not_starve_staging(world, monkeypatch):
    stage, gate = Worker._stage, threading.Semaphore(0)

    def slow(self, goal):
        gate.acquire(timeout=30)
        return stage(self, goal)

    monkeypatch.setattr(Worker, "_stage", slow)
    try:
        for seed in range(1, 6):  # each is there before the one before it is staged
            wanted = world.step(seed)
            wait_until(lambda want=wanted: local_identity(world.chain.local) == want)
            if seed == 2:
                task = threading.Thread(target=world.server.go_on)
                task.start()
        gate.release(3)
        task.join(30)
        assert world.server.follower.seen.served not in (None, identity(world.chain, 0))
        gate.release(10)
        world.server.serve(identity(world.chain, 5))
    finally:
        gate.release(100)


# ---- all engines


def test_different_answers_are_an_error():
    with pytest.raises(RuntimeError, match="different answers: 12, 13"):
        same([{"ok": 12}, {"ok": 13}])


def test_engines_side_by_side_update_together_or_not_at_all(pair, monkeypatch):
    world, server = pair, pair.server
    broken = server.members[1].worker
    write = broken._write
    monkeypatch.setattr(broken, "_write", lambda *_: (_ for _ in ()).throw(RuntimeError("no room")))
    before = identity(world.chain, 0)
    world.step(1)
    wait_until(lambda: all(member.worker.staged for member in server.members))
    server.go_on()
    assert [member.served for member in server.members] == [before, before]
    for engine in world.engines:
        assert_same(engine, loaded(checkpoint()))
    assert server.labels == [0]
    assert "no room" in server.follower.seen.error
    monkeypatch.setattr(broken, "_write", write)
    server.serve(identity(world.chain, 1))
    assert [member.served.version for member in server.members] == [1, 1]
    assert server.labels == [0, 1]


def test_engines_with_different_versions_are_not_ready(pair):
    wanted = pair.step(1)
    wait_until(lambda: local_identity(pair.chain.local) == wanted)
    assert pair.server.members[0].call("update", wanted=[1])["ok"] == wanted
    asyncio.run(pair.server.follower.check())
    status, words = pair.server.ready()
    assert status == 503
    assert "workers serve different versions" in words["error"]
    pair.server.serve(wanted)
    assert pair.server.ready(version=1)[0] == 200


def test_engines_attached_at_different_versions_agree_on_one(pair):
    """The server is not ready until they are known to agree."""
    wanted = pair.step(1)
    wait_until(lambda: local_identity(pair.chain.local) == wanted)
    assert pair.server.members[1].call("update", wanted=[1])["ok"] == wanted
    pair.server.follow(pair.settings)  # the API server has come anew
    call, reasons = pair.server.call, []

    async def listen(name, **options):
        reasons.append(pair.server.follower.seen.why_not_ready(ANY))
        return await call(name, **options)

    pair.server.call = listen
    pair.server.go_on()
    assert reasons
    assert None not in reasons
    assert "workers serve different versions" in pair.server.ready()[1]["error"]
    pair.server.serve(wanted)
    pair.server.go_on_until(200, version=1)
    assert pair.server.labels[-1] == 1


# ---- reads of one version


@pytest.mark.parametrize("what", ["_read", "_compare", "_check_scales"])
def test_reads_one_version_from_start_to_end(tmp_path, monkeypatch, what):
    """The folder advances to the wanted version while it is read: at the end it has that version, but the reads were mixed."""
    chain, _, worker = attached(tmp_path)
    chain.step(1, pull=False)
    read, names = LocalCheckpoint.read, sorted(chain.tensors)

    def while_it_goes_on(self, name):
        tensor = read(self, name)
        if name == names[0]:
            chain.replica.pull()
        return tensor

    monkeypatch.setattr(LocalCheckpoint, "read", while_it_goes_on)
    monkeypatch.setattr(worker_module, "is_scale", lambda name: True)
    arguments = {"_read": (names,), "_compare": (names,), "_check_scales": (names,)}
    with pytest.raises(dw.errors.Unavailable, match="was expected"):
        getattr(worker, what)(identity(chain, 1), *arguments[what])


# ---- ready, proof, health


def test_not_ready_between_failed_proof_and_heal(world):
    world.server.serve(world.step(1))
    assert world.server.metrics()["proof_ok"] == 1
    with torch.no_grad():
        bits(world.engines[0].norm)[3] ^= 4
    answer = world.server.http.post("/deltawire/prove")
    assert (answer.status_code, answer.json()["wrong"]) == (500, ["model.norm.weight"])
    status, words = world.server.ready()
    assert (status, "model.norm.weight" in words["error"]) == (503, True)
    assert world.server.metrics()["proof_ok"] == 0
    assert world.server.http.post("/deltawire/prove", params={"mode": "sample"}).status_code in (200, 500)
    assert world.server.metrics()["proof_ok"] == 0, "a sample makes nothing right"
    wait_until(lambda: world.server.go_on() or world.server.ready()[0] == 200)
    assert_same(world.engines[0], loaded(world.chain.tensors))
    assert world.server.metrics()["heals_total"] == 1
    assert world.server.metrics()["proof_ok"] == 1


def test_verification_off_gives_no_proof(make_world):
    world = make_world(verify="off")
    world.server.serve(world.step(1))
    assert "proof_ok" not in world.server.metrics()
    assert world.server.http.post("/deltawire/prove").json()["wrong"] == []
    assert world.server.metrics()["proof_ok"] == 1
    world.server.serve(world.step(2))
    assert "proof_ok" not in world.server.metrics(), "that was of another version"


def test_detects_differing_replicated_weights(tmp_path):
    chain = Chain(tmp_path)
    engines = loaded_ranks(chain)
    workers = ranks(chain, engines)
    together(workers, lambda w: w.attach())
    with torch.no_grad():
        bits(engines[1].norm)[3] ^= 4
    for mode in ("all", "sample"):
        for proven in together(workers, lambda w, mode=mode: w.prove(mode)):
            assert mode == "sample" or proven.wrong == ("model.norm.weight",), proven
    assert all("model.norm.weight" in worker.report.suspect for worker in workers)
    assert [one.version for one in together(workers, lambda w: w.update())] == [0, 0]
    assert [worker.report.suspect for worker in workers] == [None, None]
    assert_same(engines[1], loaded(chain.tensors, rank=1, world=2))


@pytest.mark.parametrize("stride", [1, 2, 16])
def test_samples_cover_all_tensors_at_any_stride(tmp_path, stride):
    chain, _, worker = attached(tmp_path)
    seen: set[str] = set()
    of = worker._pieces.of
    worker._pieces.of = lambda names: of(name for name in names if not seen.add(name))
    seed = 0
    for _ in range(16):
        for _ in range(stride):
            seed += 1
            chain.step(seed, 0.001)
        worker.update(verify="sample")
    assert seen == set(chain.tensors)


def test_failed_resume_is_retried_and_not_ready(world):
    wanted = world.step(1)
    world.server.resume_error = "the engine core does not answer"
    wait_until(lambda: world.server.go_on() or world.server.paused)
    status, words = world.server.ready()
    assert status == 503
    assert "cannot resume the paused engine: the engine core does not answer" in words["error"]
    world.server.go_on()
    assert world.server.paused
    world.server.resume_error = ""
    world.server.serve(wanted)
    assert not world.server.paused
    assert world.server.ready()[0] == 200


# ---- access control


def test_routes_require_the_engines_key(world):
    app = world.server.http.app
    app.state.deltawire_is_allowed = lambda headers: headers.get("authorization") == "Bearer sesame"
    for method, path in [("GET", "status"), ("GET", "ready"), ("GET", "metrics"), ("POST", "prove"), ("POST", "update")]:
        assert world.server.http.request(method, f"/deltawire/{path}").status_code == 401
    assert world.server.http.get("/deltawire/ready", headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_callers_may_name_allowed_stores_and_folders_only(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "home")
    stores = ["s3://bucket/runs", "http://10.0.0.1:8410", str(tmp_path / "stores")]
    allowed = Allowed.of({"allow_stores": stores, "allow_locals": str(tmp_path / "models")})
    good = {"store": "s3://bucket/runs/7", "local": str(tmp_path / "models" / "a")}
    allowed.check(Settings.of(good))
    allowed.check(Settings.of(good | {"store": str(tmp_path / "stores" / "b")}))
    for bad in (
        {"store": "s3://bucket/runs-of-others"},
        {"store": "s3://bucket/runs/../secrets"},
        {"store": "http://10.0.0.1:8410/,http://evil:1"},
        {"store": str(tmp_path / "elsewhere")},
        {"local": str(tmp_path / "home" / ".ssh")},
        {"local": str(tmp_path / "models" / ".." / "home")},
        {"local": str(tmp_path / "models" / "link" / ".ssh")},
        {"trust": "/etc/passwd"},
        {"transport": "group", "master_address": "10.0.0.1", "master_port": 80, "world_size": 2, "rank_offset": 1},
    ):
        with pytest.raises(dw.errors.InvalidArgument, match="operator can allow it"):
            allowed.check(Settings.of(good | bad))
    with pytest.raises(dw.errors.InvalidArgument, match="DELTAWIRE_ALLOW_STORES"):
        Allowed.of({}).check(Settings.of(good))
    monkeypatch.setenv("DELTAWIRE_ALLOW_STORES", "s3://bucket/runs,s3://other")
    monkeypatch.setenv("DELTAWIRE_ALLOW_LOCALS", str(tmp_path / "models"))
    Allowed.of({}).check(Settings.of(good))


def test_file_urls_do_not_escape_allowed_folders(tmp_path):
    stores, secret = tmp_path / "stores", tmp_path / "secret"
    stores.mkdir()
    secret.mkdir()
    (stores / "link").symlink_to(secret)
    allowed = Allowed.of({"allow_stores": [f"file://{stores}"], "allow_locals": [str(tmp_path / "models")]})
    good = {"store": f"file://{stores}/7", "local": str(tmp_path / "models" / "a")}
    allowed.check(Settings.of(good))
    for bad in ("/../secret", "/%2e%2e/secret", "/link", "/link/7", "-of-others"):
        with pytest.raises(dw.errors.InvalidArgument, match="operator can allow it"):
            allowed.check(Settings.of(good | {"store": f"file://{stores}{bad}"}))


def test_metrics_name_the_run_and_omit_lag_across_runs(world):
    served = world.server.follower.seen.served
    status = asyncio.run(world.server.follower.status())
    assert f'weight_version{{run="{served.run}"}} 0' in prometheus_text(status)
    assert "lag_versions 0" in prometheus_text(status)
    for held in ({"run": "f" * 32, "version": 9, "manifest": ""}, None):
        assert "lag_versions" not in prometheus_text(status | {"held": held}).replace("# HELP deltawire_engine_lag_versions", "")
