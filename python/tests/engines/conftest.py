"""Engines that follow a store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_world import World

from deltawire.engines.host import Host


@pytest.fixture(autouse=True)
def _keeper_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of processes, one per host, would take minutes; test_host.py tests the process itself."""
    monkeypatch.setattr(Host, "in_process", True)


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes servers of engines that follow a store, and closes them."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(tmp_path, **options))
        return made[-1]

    yield make
    for world in made:
        world.server.close()


@pytest.fixture
def world(make_world: Callable[..., Any]) -> Any:
    return make_world()


@pytest.fixture
def pair(make_world: Callable[..., Any]) -> Any:
    """Two engines side by side."""
    return make_world(engines=2)
