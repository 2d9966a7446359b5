"""Shared by all tests."""

import asyncio
import inspect
import itertools
from collections.abc import Iterator

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
    """A new memory store."""
    return f"memory:test-{next(_numbers)}"


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Tests must not leave Python threads behind."""
    import threading

    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    assert not left
