"""The half in SGLang's schedulers, without SGLang."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("torch")


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
def test_requests_are_computed_anew_also_when_the_version_came_late(scheduler_half, monkeypatch, there_before):
    done: list[str] = []
    scheduler = SimpleNamespace(
        _engine_paused=False,
        pause_generation=lambda _: done.append("retract"),
        continue_generation=lambda _: done.append("continue"),
        flush_cache=lambda **_: done.append("flush") or True,
    )
    member = SimpleNamespace(
        served=0,
        is_suspect=False,
        newest=int(there_before),
        settings=SimpleNamespace(keep_cache=False),
        group=SimpleNamespace(rank=0, size=1, gather=lambda words: [words]),
    )
    monkeypatch.setattr(scheduler_half, "_wait_for_device", lambda _: None)
    monkeypatch.setattr(scheduler_half, "_note_version", lambda _: None)
    with scheduler_half._stopped(scheduler, member):
        member.served = 1
    assert done == ["retract", "flush", "continue"]
