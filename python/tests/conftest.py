"""What the tests share."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests may be coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture
def store() -> str:
    """A store of its own, in memory."""
    return f"memory:test-{next(_numbers)}"


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes servers of engines that follow a store, and closes them."""
    from engine_world import World

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


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Tests leave no thread of Python's behind."""
    import threading

    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    assert not left
