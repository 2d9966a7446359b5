"""publish(wait=False): the trainer continues, and no failure is lost."""

import gc
import logging
import threading
import time
import weakref
from concurrent.futures import wait

import numpy as np
import pytest
from states import bits, blank
from test_stores import DictStore

import deltawire as dw


class GatedStore(DictStore):
    """Commits wait until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.before = self.wait

    def wait(self, call: str, name: str) -> None:
        if call == "put_if_absent":
            assert self.gate.wait(10)


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    return {"w": np.zeros(50_000, np.float32)}


def test_arrays_may_change_at_once(weights: dict[str, np.ndarray]) -> None:
    store = GatedStore()
    mine = blank(weights)
    with dw.Publisher(store, weights) as publisher:
        publisher.publish()
        store.gate.clear()
        weights["w"][::100] = 1
        wanted = bits(weights)
        future = publisher.publish(wait=False)
        weights["w"][::100] = 2
        assert not future.done()
        assert dw.Chain(store).head == 0
        store.gate.set()
        assert future.result().number == 1
        dw.TensorReplica(store, mine).pull()
        assert bits(mine) == wanted
        assert publisher.publish().num_changed == 500


def test_next_call_waits_for_the_previous_one(weights: dict[str, np.ndarray]) -> None:
    store = GatedStore()
    with dw.Publisher(store, weights) as publisher:
        futures = []
        for step in range(5):
            weights["w"][step] = 1
            futures.append(publisher.publish(wait=False))
        assert [future.result().number for future in futures] == [0, 1, 2, 3, 4]
    assert dw.Chain(store).head == 4


def test_close_waits(weights: dict[str, np.ndarray]) -> None:
    store = GatedStore()
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    store.gate.clear()
    weights["w"][0] = 1
    publisher.publish(wait=False)
    threading.Timer(0.05, store.gate.set).start()
    publisher.close()
    assert dw.Chain(store).head == 1


def refuse(call: str, name: str) -> None:
    if call == "put_if_absent":
        raise PermissionError("not today")


class Failing:
    """A publisher with a version, and a store that accepts no more until `mend`."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.store = DictStore()
        self.publisher = dw.Publisher(self.store, weights)
        self.publisher.publish()
        self._works, self.store.before = self.store.before, refuse
        weights["w"][:10] = 1

    def mend(self) -> None:
        self.store.before = self._works


@pytest.fixture
def failing(weights: dict[str, np.ndarray]) -> Failing:
    return Failing(weights)


def test_next_call_raises_the_failure_and_loses_nothing(failing: Failing, weights: dict[str, np.ndarray]) -> None:
    failing.publisher.publish(wait=False)
    with pytest.raises(dw.IoError, match="not today"):
        failing.publisher.publish(wait=False)
    failing.mend()
    assert failing.publisher.publish().num_changed == 10
    mine = blank(weights)
    dw.TensorReplica(failing.store, mine).pull()
    assert bits(mine) == bits(weights)


def test_failure_returned_by_result_is_not_raised_again(failing: Failing) -> None:
    with pytest.raises(dw.IoError):
        failing.publisher.publish(wait=False).result()
    failing.mend()
    assert failing.publisher.publish().number == 1


def test_close_raises_unread_failures(failing: Failing) -> None:
    failing.publisher.publish(wait=False)
    with pytest.raises(dw.IoError):
        failing.publisher.close()
    with pytest.raises(dw.InvalidArgument, match="closed"):
        failing.publisher.publish()


def test_logs_the_failure_of_a_forgotten_publisher(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    failing.publisher.publish(wait=False)
    with caplog.at_level(logging.ERROR, "deltawire"):
        del failing.publisher
        for thread in threading.enumerate():
            if thread.name == "deltawire-publish":
                thread.join()
    assert "the last version was not published: i/o error" in caplog.text


def test_close_leaves_no_thread(store: str, weights: dict[str, np.ndarray]) -> None:
    publisher = dw.Publisher(store, weights)
    publisher.publish(wait=False).add_done_callback(lambda _: time.sleep(0.2))  # in the thread that publishes, at its end
    publisher.close()
    assert "deltawire-publish" not in {thread.name for thread in threading.enumerate()}


def test_callback_may_close(store: str, weights: dict[str, np.ndarray]) -> None:
    publisher = dw.Publisher(store, weights)
    future = publisher.publish(wait=False)
    closed = threading.Event()
    future.add_done_callback(lambda _: (publisher.close(), closed.set()))
    assert closed.wait(20)
    assert future.result().number == 0


def test_failure_does_not_keep_the_tensors(failing: Failing) -> None:
    tensors = {"w": np.zeros(50_000, np.float32)}
    tensors["w"][:10] = 1
    held, future = weakref.ref(tensors["w"]), failing.publisher.publish(tensors, wait=False)
    wait([future])
    del tensors
    gc.collect()
    assert held() is None
    with pytest.raises(dw.IoError, match="not today"):
        failing.publisher.close()


def test_threads_take_turns(weights: dict[str, np.ndarray]) -> None:
    store = GatedStore()
    with dw.Publisher(store, weights) as publisher:
        publisher.publish()
        store.gate.clear()
        captured, futures = threading.Event(), []

        def other() -> None:
            futures.append(publisher.publish({"w": weights["w"] + 2}, wait=False))
            captured.set()

        thread = threading.Thread(target=other)

        def slowly() -> dict[str, np.ndarray]:
            thread.start()
            captured.wait(0.3)  # it would come in between
            store.gate.set()
            return {"w": weights["w"] + 1}

        assert publisher.publish(slowly).number == 1
        thread.join()
        assert futures[0].result().number == 2
