"""One worker process of an engine: answers instead of exceptions, and workers that do not leave each other waiting."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_models import Engine, changed, checkpoint

import deltawire as dw
from deltawire.engines.member import Member
from deltawire.engines.settings import Settings
from deltawire.engines.sglang import loader


def _published(folder: Path) -> tuple[dw.Publisher, dict[str, torch.Tensor], Settings]:
    tensors = checkpoint()
    publisher = dw.Publisher(str(folder / "store"), tensors)
    publisher.publish()
    settings = Settings(store=str(folder / "store"), local=str(folder / "local"), interval=0.05, timeout=30)
    with dw.Replica(settings.store, settings.local) as replica:
        replica.pull()
    return publisher, tensors, settings


def _identity(settings: Settings, number: int) -> dw.Identity:
    return dw.Chain(settings.store)[number].identity


def _loaded(tensors: dict[str, torch.Tensor]) -> Engine:
    engine = Engine()
    engine.load_weights(iter(tensors.items()))
    return engine


def test_a_member_goes_to_a_version_and_proves_it(tmp_path: Path) -> None:
    publisher, tensors, settings = _published(tmp_path)
    engine = _loaded(tensors)
    with closing(Member(settings, engine, engine="test")) as member:
        assert member.call("attach") == {"ok": _identity(settings, 0)}
        newer = changed(tensors, seed=1)
        publisher.publish(newer)
        assert member.call("update", wanted=[1]) == {"ok": _identity(settings, 1)}
        assert all(torch.equal(mine, its) for mine, its in zip(engine.parameters(), _loaded(newer).parameters(), strict=True))
        proof = member.call("prove")["ok"]
        assert (proof["version"], proof["num_tensors"], proof["wrong"]) == (1, len(tensors), ())
        assert member.call("status")["ok"]["served"] == _identity(settings, 1)._asdict()


def test_a_version_is_staged_before_it_is_asked_for(tmp_path: Path) -> None:
    publisher, tensors, settings = _published(tmp_path)
    with closing(Member(settings, _loaded(tensors), engine="test")) as member:
        member.call("attach")
        publisher.publish(changed(tensors, seed=1))
        end = time.monotonic() + 30
        while not member.call("status")["ok"]["staged"]:
            assert time.monotonic() < end, member.call("status")
            time.sleep(0.01)
        assert member.call("update") == {"ok": _identity(settings, 1)}
        assert member.call("status")["ok"]["last_pause"]["staged_before"]


class _Two:
    """A group whose other worker says something."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.other: Any = "as this one"

    def gather(self, words: Any) -> list[Any]:
        return [words, words if self.other == "as this one" else self.other]


def test_a_version_that_does_not_come_to_one_worker_comes_to_none(tmp_path: Path) -> None:
    publisher, tensors, settings = _published(tmp_path)
    group = _Two()
    with closing(Member(settings, _loaded(tensors), engine="test", group=group)) as member:
        member.call("attach")
        answer = member.call("update", wanted=[7], timeout=0.1)
        assert answer["error"].startswith("unavailable: ")
        assert "version 7 did not come in 0.1 s" in answer["error"]
        publisher.publish(changed(tensors, seed=1))
        group.other = "the disk is full"  # said by the other worker, while this one has it
        assert member.call("update", wanted=[1]) == {"error": "cancelled: worker 1: the disk is full"}
        assert member.served == _identity(settings, 0)


def test_what_cannot_be_done_is_answered(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "store"), local=str(tmp_path / "local"), interval=0.05)
    with closing(Member(settings, Engine(), engine="test")) as member:
        assert "holds no version yet" in member.call("attach")["error"]
        assert "holds no version yet" in member.call("update")["error"]
        assert "error" in member.call("dance")
        assert member.call("status")["ok"]["pid"]


def test_sglangs_loader_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELTAWIRE_STORE", "DELTAWIRE_LOCAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(loader, "_member", None)
    loader.load(Engine(), [])
    success, words = loader.tell_outcome((True, "Success"), load_format="deltawire.engines.sglang.load") or (None, "")
    assert success is False
    assert "DELTAWIRE_STORE and DELTAWIRE_LOCAL must be set" in words
    assert loader.tell_outcome((True, "Success"), load_format="deltawire.engines.sglang.load") is None  # told once
    monkeypatch.setenv("DELTAWIRE_STORE", str(tmp_path))
    monkeypatch.setenv("DELTAWIRE_LOCAL", str(tmp_path))
    monkeypatch.setenv("DELTAWIRE_VERIFY", "some")
    loader.load(Engine(), [])
    assert "verify='some'" in (loader.tell_outcome(None, load_format="deltawire.engines.sglang.load") or (None, ""))[1]


def test_sglangs_loader_speaks_for_itself_alone() -> None:
    loader._outcome = {"ok": dw.Identity("1a2b3c4d", 3, "")}
    assert loader.tell_outcome((True, "Success"), load_format="direct") is None
    loader._outcome = {"ok": dw.Identity("1a2b3c4d", 3, "")}
    said = loader.tell_outcome((True, "Success"), load_format="deltawire.engines.sglang.load")
    assert said == (True, "deltawire: version 3 of run 1a2b3c4d")
