"""Versions over a carrier, from Python: what the C++ tests do not see."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import deltawire as dw
import deltawire.ship

SECRET = "between us"


def model() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {"a": random.standard_normal(20000).astype(np.float32), "b": np.zeros((50, 50), np.float16)}


def change(weights: dict[str, np.ndarray], step: int) -> None:
    weights["a"][step::97] += 1
    weights["b"][step % 50] = step


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


class Following:
    """A replica on a thread."""

    def __init__(self, address: str, **options) -> None:
        self.weights = {name: np.zeros_like(array) for name, array in model().items()}
        self.store = deltawire.ship.join(address, secret=SECRET, **options)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        replica = None
        while not self.stop.is_set():
            try:
                replica = replica or dw.TensorReplica(self.store, self.weights)
                replica.pull()
            except dw.Error:
                pass
            self.stop.wait(0.02)

    def close(self) -> None:
        self.stop.set()
        self.thread.join()


@pytest.mark.parametrize("anchors", [None, "only"], ids=["delta", "full"])
@pytest.mark.parametrize("durable", [True, False], ids=["folder", "memory"])
def test_both_ways_give_the_same_versions(tmp_path, anchors, durable):
    place = str(tmp_path / "chain") if durable else f"memory:ship-{anchors}"
    weights = model()
    with deltawire.ship.serve(place, secret=SECRET) as shipper:
        replicas = [Following(shipper.address, name=f"r{i}") for i in range(2)]
        try:
            with dw.Publisher(shipper.store, weights, anchors=anchors) as publisher:
                for step in range(4):
                    change(weights, step)
                    version = publisher.publish()
                    shipper.wait_for(2, timeout=60)  # they follow once there is something to follow
                    report = shipper.settle()
                    assert report.version == version.number == step
                    assert [one.version for one in report.replicas] == [step, step], report
                    assert report.warnings == ()
                    assert all(same(replica.weights, weights) for replica in replicas)
            by_disk = {name: np.zeros_like(array) for name, array in weights.items()}
            assert dw.TensorReplica(place, by_disk).pull().version == 3
            assert same(by_disk, weights)
            over = dw.Chain(deltawire.ship.join(shipper.address, secret=SECRET))
            under = dw.Chain(place)
            assert over.run == under.run
            assert list(over) == list(under)
        finally:
            for replica in replicas:
                replica.close()


def test_the_url_opens_it_too(tmp_path):
    (tmp_path / "secret").write_text(SECRET + "\n")
    weights = model()
    with deltawire.ship.serve(tmp_path / "chain", secret=SECRET) as shipper:
        dw.Publisher(shipper.store, weights).publish()
        store = dw.open_store(f"ship://{shipper.address}", secret_file=str(tmp_path / "secret"))
        assert dw.Chain(store).head == 0
        with pytest.raises(dw.InvalidArgument, match="secret"):
            dw.open_store(f"ship://{shipper.address}", retries=0)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(dw.InvalidArgument, match="tcp"):
        deltawire.ship.serve("memory:wrong-carrier", backend="pigeons")
    with pytest.raises(dw.InvalidArgument):
        deltawire.ship.serve("memory:open", address="0.0.0.0:0")
    with deltawire.ship.serve("memory:secret", secret=SECRET) as shipper:
        with pytest.raises(dw.InvalidArgument, match="secret"):
            deltawire.ship.join(shipper.address, secret="another")
        with pytest.raises(dw.Unavailable, match="0 of 1"):
            shipper.wait_for(1, timeout=0.01)
    with pytest.raises(dw.InvalidArgument, match="closed"):
        shipper.settle()


def _replica(address: str, out) -> None:
    weights = {name: np.zeros_like(array) for name, array in model().items()}
    replica = dw.TensorReplica(deltawire.ship.join(address, secret=SECRET), weights)
    while True:
        if replica.pull().changed:
            out.send(replica.version)
        signal.sigtimedwait([], 0.02)


def test_a_process_that_is_killed_is_named_and_the_others_go_on(tmp_path):
    context = multiprocessing.get_context("spawn")
    weights = model()
    with (
        deltawire.ship.serve(tmp_path / "chain", secret=SECRET, timeout=20) as shipper,
        dw.Publisher(shipper.store, weights) as publisher,
    ):
        publisher.publish()
        replicas, pipes = [], []
        for _ in range(2):
            here, there = context.Pipe()
            process = context.Process(target=_replica, args=(shipper.address, there), daemon=True)
            process.start()
            assert here.poll(60)
            assert here.recv() == 0
            replicas.append(process)
            pipes.append(here)
        change(weights, 1)
        publisher.publish()
        assert shipper.settle().warnings == ()
        os.kill(replicas[0].pid, signal.SIGKILL)
        replicas[0].join()
        change(weights, 2)
        publisher.publish()
        report = shipper.settle()
        assert [one.version for one in report.replicas if not one.error] == [2], report
        replicas[1].kill()
        replicas[1].join()


def test_files_beside_the_weights_travel_too(tmp_path):
    weights = model()
    config = tmp_path / "config.json"
    with deltawire.ship.serve("memory:ship-files", secret=SECRET) as shipper, dw.Publisher(shipper.store, weights) as publisher:
        config.write_text('{"a": 1}')
        publisher.publish(extra_files=[config])
        with dw.Replica(deltawire.ship.join(shipper.address, secret=SECRET), tmp_path / "local") as replica:
            replica.pull()
            shipper.wait_for(1, timeout=60)  # its heartbeat says that it follows
            for step in (1, 2):
                change(weights, step)
                config.write_text(f'{{"a": {step + 1}}}')
                publisher.publish(extra_files=[config])
                assert replica.pull().version == step
                report = shipper.settle()
                assert report.bytes > 0
                assert report.warnings == ()
                assert (tmp_path / "local" / "config.json").read_text() == f'{{"a": {step + 1}}}'


def test_a_store_may_be_collected_in_a_thread_of_its_own() -> None:
    """Python collects garbage wherever it runs: in a handler of `logging`, say, that a thread of the store calls."""
    code = """
import logging, threading, time
import deltawire as dw

shipper = dw.ship.serve("memory:collected")
held, done = [dw.ship.join(shipper.address, timeout=5)], threading.Event()

class Collects(logging.Handler):
    def emit(self, record):
        if record.event == "ship.publisher_away":
            held.clear()
            done.set()

logging.getLogger("deltawire.events").addHandler(Collects())
shipper.close()
assert done.wait(60)
time.sleep(0.5)
print("goes on")
"""
    goes_on(code)


def goes_on(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "goes on\n"), ended.stderr


def test_it_may_be_closed_while_another_thread_waits_for_replicas() -> None:
    """Whoever lets go last ends its threads, which log: that thread must not hold the GIL."""
    goes_on("""
import logging, threading, time
import numpy as np
import deltawire as dw

logging.basicConfig(level=logging.INFO)
shipper = dw.ship.serve("memory:closed", timeout=3)
replica = dw.TensorReplica(dw.ship.join(shipper.address), {"w": np.ones(1000, np.float32)})
weights = {"w": np.zeros(1000, np.float32)}
with dw.Publisher(shipper.store, weights) as publisher:
    publisher.publish()
    replica.pull()
    shipper.wait_for(1, 60)
    weights["w"][3] = 1
    publisher.publish()  # which the replica does not pull: settle() waits
del publisher
waits = threading.Thread(target=shipper.settle)
waits.start()
time.sleep(0.5)
shipper.close()
waits.join()
print("goes on")
""")


def test_a_publisher_may_come_back_while_somebody_begins_to_follow(tmp_path) -> None:
    """A handler of `logging` wants the GIL, and the thread that calls it has the store's locks no more."""
    goes_on(f"""
import logging, socket, threading, time
import numpy as np
import deltawire as dw

back = threading.Event()

class Slow(logging.Handler):
    def emit(self, record):
        if record.event == "ship.publisher_back":
            back.set()
            time.sleep(0.3)

logging.getLogger("deltawire.events").addHandler(Slow())
logging.getLogger("deltawire.events").setLevel(logging.INFO)
with dw.Publisher({str(tmp_path)!r}, {{"w": np.zeros(1000, np.float32)}}) as publisher:
    publisher.publish()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % free.getsockname()[1]
store = dw.ship.join(address, behind={str(tmp_path)!r}, timeout=5)
replica = dw.TensorReplica(store, {{"w": np.ones(1000, np.float32)}}, heartbeat=False)
shipper = dw.ship.serve({str(tmp_path)!r}, address)
assert back.wait(60)
assert [pulled.version for pulled in replica.follow(timeout=2)] == [0]
print("goes on")
""")


def test_who_holds_the_newest_from_the_start_says_so() -> None:
    """Trainer and replicas begin with the same base model: nothing is to be pulled, and all are there."""
    with deltawire.ship.serve("memory:base") as shipper, dw.Publisher(shipper.store) as publisher:
        publisher.publish(model())
        with dw.TensorReplica(deltawire.ship.join(shipper.address), model()) as replica:
            assert not replica.pull().changed
            shipper.wait_for(1, 60)
            assert [one.version for one in shipper.settle().replicas] == [0]


def test_who_has_let_go_of_all_has_the_port_again(tmp_path) -> None:
    """Nothing waits for Python's collector."""
    gc.disable()
    try:
        port = 0
        for _ in range(2):
            shipper = deltawire.ship.serve(tmp_path / "chain", address=f"127.0.0.1:{port}", secret=SECRET)
            port = int(shipper.address.rpartition(":")[2])
            with dw.Publisher(shipper.store) as publisher:
                publisher.publish(model())
            with dw.Replica(shipper.store, tmp_path / "local") as replica:
                replica.pull()
            shipper.close()
            del shipper, publisher, replica
    finally:
        gc.enable()
