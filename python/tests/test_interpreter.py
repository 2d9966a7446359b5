"""Living with the interpreter: the GIL, Ctrl-C, progress, forks and exits."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from interrupted import interrupted
from test_stores import DictStore

import deltawire as dw
from deltawire import _core


def large(megabytes: int = 64) -> np.ndarray:
    """Takes a while to compare and encode."""
    return np.random.default_rng(1).integers(0, 1 << 16, megabytes << 19, np.uint16)


def ticks_during(call: object) -> int:
    """Count how often another Python thread runs during the call."""
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        call()  # type: ignore[operator]
    finally:
        stop.set()
        thread.join()
    return ticks[0]


def test_releases_the_gil(store: str, tmp_path: Path) -> None:
    old = {"w": large()}
    new = {"w": old["w"] ^ (np.arange(len(old["w"])) % 50 == 0)}
    mine = {"w": old["w"].copy()}
    publisher = dw.Publisher(store, options=dw.PublishOptions(limits=dw.Limits(threads=1)))
    delta = dw.diff(old, new)
    calls = {
        "publish": lambda: publisher.publish(old),
        "publish changes": lambda: publisher.publish(new),
        "pull": lambda: dw.TensorReplica(store, mine, limits=dw.Limits(threads=1)).pull(),
        "files": lambda: dw.Replica(store, tmp_path, limits=dw.Limits(threads=1)).pull(),
        "diff": lambda: dw.diff(old, new, threads=1),
        "apply": lambda: delta.apply_(old, threads=1),
    }
    for name, call in calls.items():
        assert ticks_during(call) >= 3, name


def test_ctrl_c_ends_a_publish_and_the_next_is_complete() -> None:
    store = DictStore()
    weights = {f"w{i}": large(4) for i in range(8)}
    publisher = dw.Publisher(store, weights)
    slow = threading.Event()

    def wait(call: str, name: str) -> None:
        if call == "put" and not slow.is_set():
            time.sleep(0.3)

    store.before = wait
    with interrupted(0.2):
        publisher.publish()
    slow.set()
    assert publisher.publish().number == 0


def test_ctrl_c_ends_a_hook_without_a_commit(store: str, tmp_path: Path) -> None:
    started, weights = tmp_path / "started", {"w": np.zeros(3)}

    def interrupt_when_started() -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_started).start()
    with pytest.raises(KeyboardInterrupt):
        dw.Publisher(
            store, weights, options=dw.PublishOptions(hook_before_commit=dw.Hook(f"touch {started}; sleep 600"))
        ).publish()
    assert not dw.open_store(store).list("manifests/")
    assert dw.Publisher(store, weights).publish().number == 0


def test_ctrl_c_ends_a_diff() -> None:
    old = {f"w{i}": large(16) for i in range(12)}
    new = {name: ~array for name, array in old.items()}
    with interrupted(0.1):
        dw.diff(old, new, codec="tight", threads=1)


def test_ctrl_c_ends_a_follower(store: str) -> None:
    dw.Publisher(store, {"w": np.zeros(3)}).publish()
    with interrupted(0.1):
        for _ in dw.TensorReplica(store, {"w": np.zeros(3)}).follow(interval=3600):  # waits longer than any test may take
            pass


def test_progress_is_reported_and_may_cancel(store: str) -> None:
    seen: list[tuple[int, int]] = []
    weights = {f"w{i}": large(8) for i in range(16)}
    dw.diff(weights, {name: array + 1 for name, array in weights.items()}, progress=lambda *step: seen.append(step))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(dw.Cancelled):
        dw.Publisher(store, weights, progress=lambda done, total: False).publish()
    assert dw.Publisher(store, weights).publish().number == 0


def test_propagates_exceptions_of_progress() -> None:
    weights = {"w": large(8)}

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dw.diff(weights, weights, progress=fail)


def test_shows_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    weights = {"w": large(8)}
    dw.diff(weights, weights, progress=True)
    assert "diff" in capsys.readouterr().err


def test_rejects_reentrant_calls_from_callbacks(store: str) -> None:
    weights = {"w": large(8)}
    publisher: dw.Publisher

    def again(done: int, total: int) -> None:
        publisher.publish()

    publisher = dw.Publisher(store, weights, progress=again)
    gone = weakref.ref(publisher)
    with pytest.raises(dw.InvalidArgument, match="is busy"):
        publisher.publish()
    publisher = again = None  # type: ignore[assignment]  # a circle: the publisher has the callback, which has it
    gc.collect()
    assert gone() is None


def test_serialises_calls_of_threads(store: str) -> None:
    publisher = dw.Publisher(store)
    numbers = []

    def publish(value: int) -> None:
        numbers.append(publisher.publish({"w": np.full(10_000, value)}).number)

    threads = [threading.Thread(target=publish, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(8))


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    preamble = "import os, sys, warnings, numpy as np, deltawire as dw\n"
    preamble += "warnings.simplefilter('ignore', DeprecationWarning)  # Python 3.12 and later warn of forks beside threads\n"
    return subprocess.run([sys.executable, "-c", preamble + script], cwd=folder, capture_output=True, text=True, timeout=60)


def test_forked_child_is_refused_without_harm_to_its_parent(tmp_path: Path) -> None:
    script = """
weights = {"w": np.zeros(1000)}
publisher = dw.Publisher("store", weights)
publisher.publish()
replica = dw.Replica("store", "replica")
replica.pull()
store = dw.open_store("store")
weights["w"] += 1
future = publisher.publish(wait=False)
child = os.fork()
if child == 0:
    for call in publisher.publish, publisher.close, replica.pull, lambda: store.get("run.json"):
        try:
            call()
        except dw.InvalidArgument as error:
            print(error)
    del publisher, replica, store
    print("made anew:", dw.Chain("store").run != "", flush=True)
    os._exit(0)  # as children of multiprocessing do
assert os.waitpid(child, 0)[1] == 0
weights["w"] += 1
print("parent:", publisher.publish().number, replica.pull().version)
"""
    done = run(script, tmp_path)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all("process" in line and "fork" in line for line in lines[:4])
    assert lines[4:] == ["made anew: True", "parent: 2 2"]


def test_exits_cleanly_with_everything_open(tmp_path: Path) -> None:
    script = """
weights = {"w": np.zeros(100_000)}
publisher = dw.Publisher("store", weights)
publisher.publish()
replica = dw.Replica("store", "replica")
replica.pull()
mine = {"w": np.zeros(100_000)}
memory = dw.TensorReplica("store", mine)
memory.pull()
chain = dw.Chain("store")
delta = dw.diff(weights, {"w": np.ones(100_000)})
weights["w"][::3] = 1
publisher.publish(wait=False)
"""
    done = run(script, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert dw.Chain(tmp_path / "store").head == 1


def test_reports_a_failure_at_exit(tmp_path: Path) -> None:
    script = """
weights = {"w": np.zeros(100_000)}
publisher = dw.Publisher("store", weights, options=dw.PublishOptions(hook_before_commit=dw.Hook("test $DELTAWIRE_VERSION = 0")))
publisher.publish()
weights["w"][0] = 1
publisher.publish(wait=False)
"""
    done = run(script, tmp_path)
    assert "the last version was not published" in done.stderr


def test_closes_a_python_store_at_exit(tmp_path: Path) -> None:
    script = f"""
sys.path.append({str(Path(__file__).parent)!r})
from test_stores import DictStore
store = DictStore()
publisher = dw.Publisher(store, {{"w": np.zeros(1000)}})
publisher.publish()
publisher.publish({{"w": np.ones(1000)}}, wait=False)
"""
    done = run(script, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


# Each exits while a daemon thread is inside the library: in its own code, or in Python code that it called.
DAEMONS = {
    "follow": "for _ in dw.Replica(store, 'replica').follow(interval=0.001): inside.set()",
    "follow tensors": "for _ in dw.TensorReplica(store, mine).follow(interval=0.001): inside.set()",
    "pull": "while True: dw.TensorReplica(store, mine, progress=heard).pull()",
    "publish": "while True: weights['w'] ^= 1; publisher.publish(); inside.set()",
}


@pytest.mark.parametrize("kind", ["folder", "python"])
@pytest.mark.parametrize("work", DAEMONS)
def test_exits_without_waiting_for_daemon_threads(work: str, kind: str, tmp_path: Path) -> None:
    script = f"""
import logging, threading, time
sys.path.append({str(Path(__file__).parent)!r})
from test_stores import DictStore
logging.getLogger("deltawire.events").setLevel(logging.DEBUG)
store = DictStore() if {kind == "python"} else "store"
weights = {{"w": np.arange(1_000_000, dtype=np.uint32)}}
mine = {{"w": np.zeros(1_000_000, np.uint32)}}
publisher = dw.Publisher(store, weights)
publisher.publish()
inside = threading.Event()
def heard(done, total):
    inside.set()
def work():
    {DAEMONS[work]}
threading.Thread(target=work, daemon=True).start()
inside.wait()
time.sleep({0.06 if kind == "folder" else 0})
"""
    done = run(script, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    if work.startswith("follow"):
        assert done.stderr == ""
    elif done.stderr:  # the thread was told so while it still could speak
        assert "Cancelled: " in done.stderr.splitlines()[-1]


def test_does_not_import_torch(tmp_path: Path) -> None:
    script = """
live = np.zeros(3, np.uint16)
dw.Publisher("memory:x", {"w": live}).publish()
dw.live.Exchange([(live, np.array([2], np.uint32), np.array([9], np.uint16))]).swap()
print("torch" in sys.modules)
"""
    assert run(script, tmp_path).stdout.strip() == "False"


def test_shows_one_progress_bar_per_call(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    from deltawire._internal.output import callback_of

    show = callback_of(True, "publish")
    assert show is not None
    for done in 0, 50, 20, 100, 100, 100:  # broken off at 50; the next one ends, and is told so more than once
        show(done, 100)
    shown = capsys.readouterr().err
    assert shown.count("publish:   0%") == 1 + 1
    show(100, 100)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_extension_exports_no_symbols():
    """Symbols shared by two libraries of a process would resolve to either of them."""
    listed = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], check=True, capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["PyInit__core"]


def test_torch_may_be_imported_last():
    """Every test of it imports it first."""
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", "import deltawire, torch; torch.nn.functional.relu(torch.zeros(1))"], check=True)
