#!/usr/bin/env python3
"""`import slime --listen` and `export slime --notify`: the HTTP calls between slime's trainers and engines.

usage: slime_calls_test.py DELTAWIRE

A trainer here is a client that puts versions into a folder and posts /pull_weights; an engine is a small server that answers as
slime's branch of SGLang does, or as an engine with deltawire. Engines can fail, hang and lose answers.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

DELTAWIRE = sys.argv[1]
SECONDS = 120  # for whatever must happen


def run(*words, code=0):
    result = subprocess.run([DELTAWIRE, *map(str, words)], capture_output=True, text=True, timeout=SECONDS)
    assert code is None or result.returncode == code, (words, result)
    return result


def stopped(process):
    """What it had to say, once it has ended as it was told to."""
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    return said


def wait_until(what, *arguments):
    end = time.monotonic() + SECONDS
    while not what(*arguments):
        assert time.monotonic() < end, what
        time.sleep(0.02)


class World:
    """A run of three versions: checkpoints, the chain that a trainer publishes, and slime's files of it, ready to be put in place."""

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="deltawire-calls-"))
        os.environ["XDG_CACHE_HOME"] = str(self.dir / "cache")
        self.trainer, self.source, self.store, self.local = (self.dir / n for n in ("trainer", "updates", "store", "local"))
        run("simulate", "--params", "1M", "--steps", "3", "--seed", "7", "-o", self.dir / "sim", "-q")
        self.processes, self.published = [], 0
        self.source.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.dir)

    def checkpoint(self, version):
        return self.dir / f"sim/v{version}.safetensors"

    def publish(self, last):
        """To the trainer's chain."""
        while self.published <= last:
            run("publish", self.checkpoint(self.published), self.trainer, "-q")
            self.published += 1

    def ready_files(self):
        self.publish(3)
        run("export", "slime", self.trainer, self.dir / "files", "-q")

    def write(self, version):
        """As a trainer of slime does, to the shared folder."""
        shutil.copytree(self.dir / f"files/weight_v{version:06d}", self.source / f"weight_v{version:06d}")

    def start(self, *words):
        process = subprocess.Popen([DELTAWIRE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def follow(self):
        return self.start("follow", self.store, self.local, "--interval", "0.05", "-q")

    def listen(self, *options):
        """The import looks at the source when it is called, and hardly ever by itself."""
        base = ["--base", self.checkpoint(0), "--interval", "3600", "--json", "--log-level", "error"]
        process = self.start("import", "slime", self.source, self.store, "--follow", "--listen", "127.0.0.1:0", *base, *options)
        self.port = json.loads(process.stdout.readline())["port"]
        return process

    def call(self, method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path, body, {"Content-Type": content_type})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        return reply.status, answer

    def body(self, version, **other):
        return json.dumps(
            {"local_checkpoint_dir": str(self.local), "source_dir": str(self.source), "target_version": version} | other
        )

    def pull(self, version, **other):
        return self.call("POST", "/pull_weights", self.body(version, **other))

    def refused(self, version, code, words, **other):
        status, answer = self.pull(version, **other)
        assert status == 400 and answer["success"] is False and answer["code"] == code, answer
        assert words in answer["message"], answer


@contextmanager
def listening(*options, follow=False):
    """A world whose import listens, with the files of all versions at hand; it may have a replica that follows."""
    with World() as w:
        w.ready_files()
        w.process = w.listen(*options)
        if follow:
            w.follow()
        yield w


class Engine:
    """What one engine was asked, and which version it serves."""

    def __init__(self, port=0):
        self.calls, self.serving, self.paused, self.models = [], "0", False, []
        self.fail = self.lose_answer = self.hang = None
        self.ready = lambda query: (503, {"error": "loading", "run": "", "version": None})
        self.over = threading.Event()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                asked = urlparse(self.path)
                if asked.path == "/deltawire/ready":
                    engine.calls.append(self.path)
                    self.answer(*engine.ready({k: v[0] for k, v in parse_qs(asked.query).items()}))
                else:
                    self.answer(200, {"weight_version": engine.serving})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                engine.calls.append(self.path)
                if engine.hang == self.path:
                    engine.over.wait()
                status, answer = engine.do(self.path, body)
                if engine.lose_answer == self.path:
                    engine.lose_answer = None
                    self.connection.close()
                    return
                try:
                    self.answer(status, answer)
                except OSError:
                    pass  # nobody waits for it any more

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def do(self, path, body):
        if self.fail == path:
            return 400, {"success": False, "message": "out of disk"}
        if path == "/pull_weights":
            for version in range(1, body["target_version"] + 1):
                assert (Path(body["source_dir"]) / f"weight_v{version:06d}/model.safetensors.index.json").exists()
            self.models.append((body["local_checkpoint_dir"], body["target_version"]))
        if path == "/pause_generation":
            self.paused = True
        if path == "/continue_generation":
            self.paused = False
        if path == "/update_weights_from_disk":
            assert self.paused
            self.serving = body["weight_version"]
            self.models.append(body["model_path"])
        return 200, {"success": True, "message": "ok", "status": "ok"}


# ---- import --listen


def test_a_call_imports_and_waits_for_the_replica():
    with listening() as w:
        assert w.call("GET", "/health") == (200, {"status": "ok"})
        w.follow()
        for version in (0, 1, 2, 3, 3):
            if version and not (w.source / f"weight_v{version:06d}").exists():
                w.write(version)
            assert w.pull(version) == (200, {"success": True, "message": "Success.", "version": version})
            run("verify", w.checkpoint(version), w.local)


def test_all_ranks_ask_at_once():
    with listening(follow=True) as w:
        w.write(1)
        with ThreadPoolExecutor(16) as pool:
            assert [status for status, _ in pool.map(w.pull, [1] * 16)] == [200] * 16
        versions = [json.loads(line)["version"] for line in stopped(w.process)[0].splitlines()]
        assert versions == [0, 1], versions  # imported once


def test_a_call_waits_until_engines_serve_it():
    with Engine() as first, Engine() as second, listening("--engine", first.url, "--engine", second.url + "/") as w:
        w.write(1)
        asked = []

        def ready(query):
            asked.append(query)
            if len(asked) < 3:
                return 503, {"error": "loading", "run": query["run"], "version": 0, "manifest": "0"}
            return 200, {"run": query["run"], "version": 1, "manifest": query["manifest"]}

        first.ready = second.ready = ready
        assert w.pull(1)[0] == 200
        identity = json.loads(run("log", w.store, "1", "--json").stdout)
        assert asked[-1]["version"] == "1" and asked[-1]["run"] == identity["run"], (asked, identity)
        assert first.calls and second.calls
        # One that will never serve it: at once.
        w.write(2)
        second.ready = lambda _: (404, {"error": "no such path"})
        w.refused(2, "unsupported", second.url)
        second.ready = lambda query: (200, {"run": query["run"], "version": 3, "manifest": "0"})  # a later one
        assert w.pull(2)[0] == 200


def test_a_call_ends_in_time():
    with Engine() as engine, listening("--engine", engine.url, "--listen-timeout", "1") as w:
        # Another run under the same number is not it.
        engine.ready = lambda query: (200, {"run": "f" * 32, "version": 0, "manifest": query["manifest"]})
        wait_until(lambda: "serves version 0 of run ffffffff" in w.pull(0)[1]["message"])
        w.refused(0, "unavailable", "after 1 s")


def test_what_is_not_there_is_refused():
    with listening(follow=True) as w:
        w.refused(1, "not found", "holds no complete version 1; the chain is at version 0")
        w.write(1)
        (w.source / "weight_v000002").mkdir()  # no index
        w.refused(2, "not found", "the chain is at version 1")
        assert w.pull(1)[0] == 200
        w.refused(0, "conflict", "a run that began again needs a store of its own")
        w.refused(1, "invalid argument", "the import reads", source_dir=str(w.dir))
        wrong = {"target_version": (-1, "1", None), "source_dir": (3, "updates"), "local_checkpoint_dir": (None, "/a\0b")}
        for field, values in wrong.items():
            for value in values:
                w.refused(1, "invalid argument", field, **{field: value})
        for body in ("", "{", "[]", "null", "\x00"):
            assert w.call("POST", "/pull_weights", body)[0] == 400, body
        for status, *call in (
            (400, "POST", "/pull_weights", w.body(1), "text/plain"), (413, "POST", "/pull_weights", "x" * 70_000),
            (405, "GET", "/pull_weights"), (405, "POST", "/health", "{}"), (404, "POST", "/other", "{}")):
            assert w.call(*call)[0] == status, call
        assert w.pull(1)[0] == 200


def test_a_replica_that_does_not_follow():
    with listening("--listen-timeout", "1") as w:
        wait_until(lambda: "deltawire follow STORE" in w.pull(0)[1]["message"])
        run("pull", w.trainer, w.local, "--version", "0", "-q")
        wait_until(lambda: "and the chain is of run" in w.pull(0)[1]["message"])  # a stale folder of another run


def test_an_import_that_fails_says_so_and_goes_on():
    with listening(follow=True) as w:
        assert w.pull(0)[0] == 200
        w.write(1)
        part = next((w.source / "weight_v000001").glob("*.safetensors"))
        good = part.read_bytes()
        part.write_bytes(good[:-100])
        status, answer = w.pull(1)
        assert status == 400 and answer["code"] == "corruption" and part.name in answer["message"], answer
        part.write_bytes(good)
        assert w.pull(1)[0] == 200
        assert w.process.poll() is None


def test_a_failure_that_ends_the_import_answers_first():
    with World() as w:
        w.ready_files()
        w.write(1)
        w.write(2)
        process = w.listen()
        w.follow()
        assert w.pull(2)[0] == 200
        shutil.rmtree(w.source / "weight_v000002")  # the run began again in its old place
        status, answer = w.pull(1)
        assert status == 400 and answer["code"] == "base mismatch" and "another run" in answer["message"], answer
        assert process.wait(SECONDS) == 7, process.returncode
        assert "another run" in process.stderr.read()


def test_a_trainer_that_goes_away():
    with Engine() as engine, listening("--engine", engine.url) as w:
        w.write(1)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", w.port), SECONDS) as raw:
                body = w.body(1).encode()
                raw.sendall(
                    b"POST /pull_weights HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
        wait_until(lambda: engine.calls)  # it is imported, and asked for
        assert json.loads(run("log", w.store, "--json").stdout)["head"] == 1
        engine.ready = lambda query: (200, {"run": query["run"], "version": 1, "manifest": query["manifest"]})
        assert w.pull(1)[0] == 200
        assert w.process.poll() is None


def test_calls_that_wait_hold_up_nobody():
    with Engine() as engine, listening("--engine", engine.url) as w:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(w.pull(0))) for _ in range(30)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answers) == 6)  # one more than 24 is too many
        assert {status for status, _ in answers} == {503}
        assert w.call("GET", "/health")[0] == 200
        w.process.send_signal(signal.SIGTERM)  # who waits is answered
        for thread in threads:
            thread.join()
        assert sorted(status for status, _ in answers) == [400] * 24 + [503] * 6, answers
        assert {answer["code"] for status, answer in answers if status == 400} == {"cancelled"}, answers
        assert w.process.wait(SECONDS) == 0


def test_an_address_that_is_taken():
    with World() as w, socket.create_server(("127.0.0.1", 0)) as taken:
        w.ready_files()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = ["import", "slime", w.source, w.store, "--base", w.checkpoint(0), "--follow", "--listen"]
        result = run(*listen, address, code=None)
        assert result.returncode == 8 and "Address already in use" in result.stderr, result
        assert not w.store.exists()
        for wrong, words in (("nowhere", "HOST:PORT"), ("localhost:1", "IPv4 or IPv6"), ("127.0.0.1:99999", "port")):
            result = run(*listen, wrong, code=2)
            assert words in result.stderr, result


# ---- export --notify


def test_engines_are_told_in_slimes_order():
    with World() as w, Engine() as one, Engine() as two:
        options = ["--notify", one.url, "--notify", two.url + "/", "--notify-checkpoint", "/nvme/ckpt"]
        process = w.start("export", "slime", w.trainer, w.source, "--follow", "--interval", "0.05", "--json", *options)
        order = ["/pull_weights", "/pause_generation", "/update_weights_from_disk", "/flush_cache", "/continue_generation"]
        for version in (1, 2):
            w.publish(version)
            for engine in (one, two):
                wait_until(lambda: "/continue_generation" in engine.calls and not engine.paused)
                assert engine.calls == order, engine.calls
                assert engine.serving == str(version) and not engine.paused
                assert engine.models == [("/nvme/ckpt", version), "/nvme/ckpt"]
                engine.calls.clear()
                engine.models.clear()
        told = [line for line in map(json.loads, stopped(process)[0].splitlines()) if "engines" in line]
        assert [[e["serving"] for e in line["engines"]] for line in told] == [[1, 1], [2, 2]], told


def test_an_engine_that_refuses_is_told_again():
    with World() as w, Engine() as good, Engine() as bad:
        w.publish(3)
        export = ["export", "slime", w.trainer, w.source, "--json", "--notify-checkpoint", "/nvme/ckpt"]
        export += ["--notify", bad.url, "--notify", good.url]
        for path in ("/pull_weights", "/pause_generation", "/update_weights_from_disk"):
            bad.fail = path
            result = run(*export, code=2)
            assert bad.url in result.stderr and "out of disk" in result.stderr, result
            engines = [line for line in map(json.loads, result.stdout.splitlines()) if "engines" in line][0]["engines"]
            assert {e["engine"]: e["reloaded"] for e in engines} == {f"sglang={bad.url}": False, f"sglang={good.url}": True}
            assert good.serving == "3" and bad.serving == "0" and not bad.paused
            assert len(list(w.source.glob("weight_v*"))) == 3
        assert good.calls.count("/update_weights_from_disk") == 3  # several versions at once are told once
        bad.fail = None
        run(*export)
        assert bad.serving == "3" and bad.models[-2:] == [("/nvme/ckpt", 3), "/nvme/ckpt"]


def test_an_engine_that_is_down_holds_up_nothing():
    with World() as w, Engine() as up:
        with Engine() as down:
            pass
        export = ["export", "slime", w.trainer, w.source, "--follow", "--interval", "0.05", "--notify-retries", "0"]
        export += ["--notify-checkpoint", "/nvme/ckpt", "--notify", down.url, "--notify", up.url]
        process = w.start(*export)
        for version in (1, 2):
            w.publish(version)
            wait_until(lambda: up.serving == str(version) and not up.paused)
        assert process.poll() is None
        with Engine(int(down.url.rpartition(":")[2])) as back:
            wait_until(lambda: back.serving == "2" and not back.paused)  # it missed one
        errors = stopped(process)[1]
        assert "engine failed" in errors and down.url in errors, errors


def test_an_engine_that_hangs_does_not_hold_up_the_others():
    with World() as w, Engine() as hangs, Engine() as good:
        w.publish(1)
        hangs.hang = "/pull_weights"
        export = ["export", "slime", w.trainer, w.source, "--notify-checkpoint", "/nvme/ckpt", "--notify-retries", "0"]
        result = run(*export, "--notify-timeout", "5", "--notify", hangs.url, "--notify", good.url, code=9)
        assert hangs.url in result.stderr
        assert good.serving == "1"


def test_lost_answers_are_harmless():
    with World() as w, Engine() as engine:
        export = ["export", "slime", w.trainer, w.source, "--notify-checkpoint", "/nvme/ckpt", "--notify", engine.url]
        for version, path in enumerate(("/pull_weights", "/update_weights_from_disk", "/continue_generation"), 1):
            w.publish(version)
            engine.lose_answer = path
            run(*export, "-q")
            assert engine.serving == str(version) and not engine.paused


def test_whole_versions_are_loaded_from_the_shared_folder():
    with World() as w, Engine() as engine:
        w.publish(1)
        run("export", "slime", w.trainer, w.source, "--full", "--notify", engine.url)
        assert "/pull_weights" not in engine.calls
        assert engine.models == [str(w.source / "weight_v000001")]


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        begin = time.monotonic()
        test()
        print(f"{name}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
