"""One worker process of an engine: it answers instead of raising, and workers do not block each other."""

import pickle
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_models import Engine
from test_engines import Chain, assert_same, identity, loaded, wait_until

import deltawire as dw
from deltawire.engines.group import Alone
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.engines.sglang import loader


def _published(folder: Path) -> tuple[Chain, Settings]:
    chain = Chain(folder)
    chain.replica.close()
    return chain, Settings(store=chain.store, local=chain.local, interval=0.05, timeout=30)


def test_member_updates_to_a_version_and_proves_it(tmp_path: Path) -> None:
    chain, settings = _published(tmp_path)
    engine = loaded(chain.tensors)
    with closing(Member(settings, engine, engine="test")) as member:
        assert member.call("attach") == {"ok": identity(chain, 0)}
        chain.step(1, pull=False)
        assert member.call("update", wanted=[1]) == {"ok": identity(chain, 1)}
        assert_same(engine, loaded(chain.tensors))
        proof = member.call("prove")["ok"]
        assert (proof["version"], proof["num_tensors"], proof["wrong"]) == (1, len(chain.tensors), ())
        assert member.call("status")["ok"]["served"] == identity(chain, 1)._asdict()


def test_stages_a_version_before_the_update(tmp_path: Path) -> None:
    chain, settings = _published(tmp_path)
    with closing(Member(settings, loaded(chain.tensors), engine="test")) as member:
        member.call("attach")
        chain.step(1, pull=False)
        wait_until(lambda: member.call("status")["ok"]["staged"])
        assert member.call("update") == {"ok": identity(chain, 1)}
        assert member.call("status")["ok"]["last_pause"]["staged_before"]


class _Two:
    """A group with a scripted second worker."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.other: Any = "as this one"

    def all_gather(self, data: bytes) -> list[bytes]:
        return [data, data if self.other == "as this one" else pickle.dumps(self.other)]


def test_version_missing_on_one_worker_updates_none(tmp_path: Path) -> None:
    chain, settings = _published(tmp_path)
    group = _Two()
    with closing(Member(settings, loaded(chain.tensors), engine="test", group=group)) as member:
        member.call("attach")
        answer = member.call("update", wanted=[7], timeout=0.1)
        assert answer["error"].startswith("unavailable: ")
        assert "version 7 did not arrive within 0.1 s" in answer["error"]
        chain.step(1, pull=False)
        group.other = "the disk is full"  # said by the other worker, while this one has it
        assert member.call("update", wanted=[1]) == {"error": "cancelled: worker 1: the disk is full"}
        assert member.served == identity(chain, 0)


def test_failures_are_answers(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "store"), local=str(tmp_path / "local"), interval=0.05)
    with closing(Member(settings, Engine(), engine="test")) as member:
        assert "holds no version yet" in member.call("attach")["error"]
        assert "holds no version yet" in member.call("update")["error"]
        assert "error" in member.call("dance")
        assert member.call("status")["ok"]["pid"]


def test_sglang_loader_reports_failures_without_raising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELTAWIRE_STORE", "DELTAWIRE_LOCAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(loader, "_member", None)
    loader.load(Engine(), [])
    success, words = loader.report_outcome((True, "Success"), load_format="deltawire.engines.sglang.load") or (None, "")
    assert success is False
    assert "DELTAWIRE_STORE and DELTAWIRE_LOCAL must be set" in words
    assert loader.report_outcome((True, "Success"), load_format="deltawire.engines.sglang.load") is None  # told once
    monkeypatch.setenv("DELTAWIRE_STORE", str(tmp_path))
    monkeypatch.setenv("DELTAWIRE_LOCAL", str(tmp_path))
    monkeypatch.setenv("DELTAWIRE_VERIFY", "some")
    loader.load(Engine(), [])
    assert "verify='some'" in (loader.report_outcome(None, load_format="deltawire.engines.sglang.load") or (None, ""))[1]


def test_sglang_loader_reports_its_own_loads_only() -> None:
    loader._outcome = {"ok": dw.Identity("1a2b3c4d", 3, "")}
    assert loader.report_outcome((True, "Success"), load_format="direct") is None
    loader._outcome = {"ok": dw.Identity("1a2b3c4d", 3, "")}
    said = loader.report_outcome((True, "Success"), load_format="deltawire.engines.sglang.load")
    assert said == (True, "deltawire: version 3 of run 1a2b3c4d")


# ---- the half in SGLang's schedulers


@pytest.fixture
def scheduler_half(monkeypatch):
    class Base:
        def __init_subclass__(cls, **_) -> None:
            pass

    fake = ModuleType("sglang.srt.managers.io_struct")
    fake.BaseReq, fake.hook_custom_types = Base, lambda *_: None
    fake.PauseGenerationReqInput = fake.ContinueGenerationReqInput = SimpleNamespace
    for name in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    for name in ("deltawire.engines.sglang.messages", "deltawire.engines.sglang.scheduler"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from deltawire.engines.sglang import scheduler

    yield scheduler
    for name in ("deltawire.engines.sglang.messages", "deltawire.engines.sglang.scheduler"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("there_before", [True, False])
def test_retracts_requests_also_for_a_late_version(scheduler_half, monkeypatch, there_before):
    done: list[str] = []
    waiting = [SimpleNamespace(kv=SimpleNamespace(holds_kv=False))]
    scheduler = SimpleNamespace(
        _engine_paused=False,
        pause_generation=lambda _: done.append("retract"),
        continue_generation=lambda _: done.append("continue"),
        waiting_queue=waiting,
    )

    def flush_cache(**_):  # as of SGLang 0.5.20
        done.append("busy" if scheduler.waiting_queue else "flush")
        return not scheduler.waiting_queue

    scheduler.flush_cache = flush_cache
    member = SimpleNamespace(
        served=0,
        is_suspect=False,
        newest=int(there_before),
        settings=SimpleNamespace(keep_cache=False),
        group=Alone(),
    )
    monkeypatch.setattr(scheduler_half, "_wait_for_device", lambda _: None)
    monkeypatch.setattr(scheduler_half, "_note_version", lambda _: None)
    with scheduler_half._stopped(scheduler, member):
        member.served = 1
    assert done == ["retract", "flush", "continue"]
    assert scheduler.waiting_queue is waiting
