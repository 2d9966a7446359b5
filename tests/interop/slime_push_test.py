#!/usr/bin/env python3
"""slime-publish and slime-push against engines that answer over HTTP as slime's branch of SGLang does.

usage: slime_push_test.py DELTAWIRE

The engines here are small servers with real checkpoints: POST /pull_weights is answered by `deltawire serve-pull`'s
own command, the rest as SGLang answers it. They can fail, hang and lose answers.
"""

import json
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DELTAWIRE = sys.argv[1]


def write_model(path, values):
    """One file, two tensors."""
    data = [bytes(values), bytes(reversed(values))]
    header = {
        "a.weight": {"dtype": "BF16", "shape": [len(values) // 2], "data_offsets": [0, len(values)]},
        "b.weight": {"dtype": "BF16", "shape": [len(values) // 2], "data_offsets": [len(values), 2 * len(values)]},
    }
    text = json.dumps(header).encode()
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


class Engine:
    """What one engine was asked, and what it holds."""

    def __init__(self, base, local):
        self.base, self.local, self.calls, self.serving = base, local, [], "0"
        self.fail = self.lose_answer = self.hang = None
        self.paused = False
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
                self.answer(200, {"weight_version": engine.serving})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                engine.calls.append(self.path)
                if engine.hang == self.path:
                    time.sleep(20)
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

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def do(self, path, body):
        if self.fail == path:
            return 400, {"success": False, "message": "no"}
        if path == "/pull_weights":
            # Every engine has a folder of its own in place of its host's disk.
            call = [DELTAWIRE, "slime-pull", body["source_dir"], str(self.local), "--base", str(self.base)]
            run = subprocess.run([*call, "--version", str(body["target_version"])], capture_output=True, text=True)
            return (200, {"success": True, "message": "Success."}) if run.returncode == 0 else (
                400, {"success": False, "message": run.stderr})
        if path == "/pause_generation":
            self.paused = True
        if path == "/continue_generation":
            self.paused = False
        if path == "/update_weights_from_disk":
            assert self.paused
            self.serving = body["weight_version"]
        return 200, {"success": True, "message": "ok", "status": "ok"}


class World:
    def __init__(self, engines):
        self.dir = Path(tempfile.mkdtemp(prefix="deltawire-push-"))
        self.values = list(range(200))
        write_model(self.dir / "base", self.values)
        self.engines = [Engine(self.dir / "base", self.dir / f"engine{i}") for i in range(engines)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            engine.server.shutdown()
        shutil.rmtree(self.dir)

    def flags(self, *more, engines=None):
        own = ["--update-weight-disk-dir", self.dir / "source", "--engine-retries", "1"]
        own += ["--update-weight-local-checkpoint-dir", self.dir / "local", "--hf-checkpoint", self.dir / "base"]
        for engine in self.engines if engines is None else engines:
            own += ["--engine", engine.url]
        return [str(word) for word in [*own, *more]]

    def publish(self, *more, engines=None):
        self.values[len(list((self.dir / "source").glob("weight_v*"))) % 200] ^= 1
        self.values[7] = (self.values[7] + 1) % 256
        write_model(self.dir / "ckpt", self.values)
        call = [DELTAWIRE, "slime-publish", str(self.dir / "ckpt"), "--json", "--update-weight-mode", "delta"]
        call += ["--update-weight-transport", "disk", *self.flags(*more, engines=engines)]
        return subprocess.run(call, capture_output=True, text=True)

    def push(self, *more):
        return subprocess.run([DELTAWIRE, "slime-push", "--json", *self.flags(*more)], capture_output=True, text=True)

    def check(self, engine):
        assert (engine.local / "model.safetensors").read_bytes() == (self.dir / "ckpt/model.safetensors").read_bytes()

    def versions(self):
        return sorted(int(path.name[-6:]) for path in (self.dir / "source").glob("weight_v*"))


def test_order_and_acknowledgements():
    with World(2) as w:
        for version in (1, 2, 3):
            run = w.publish("--remove-acknowledged")
            assert run.returncode == 0, run.stderr
            answer = json.loads(run.stdout)
            assert [e["serving"] for e in answer["engines"]] == [version, version], answer
            for engine in w.engines:
                w.check(engine)
                assert engine.serving == str(version)
                assert not engine.paused
                wanted = ["/pull_weights", "/pause_generation", "/update_weights_from_disk", "/flush_cache"]
                assert engine.calls == [*wanted, "/continue_generation"], engine.calls
                engine.calls.clear()
            assert w.versions() == [version]  # those before are gone, the newest stays


def test_an_engine_that_fails_is_sent_what_it_missed():
    with World(3) as w:
        assert w.publish().returncode == 0
        broken = w.engines[1]
        broken.fail = "/pull_weights"
        for _ in range(2):
            run = w.publish("--remove-acknowledged")
            assert run.returncode != 0, run.stdout
            assert broken.url in run.stderr
            results, error = map(json.loads, run.stdout.splitlines())  # of every engine, and then that one failed
            assert [e["reloaded"] for e in results["engines"]] == [True, False, True], results
            assert results["behind"] == [broken.url]
            assert broken.url in error["error"]["message"]
        assert [e.serving for e in w.engines] == ["3", "1", "3"]
        assert not broken.paused
        assert w.versions() == [2, 3]  # what it lacks is kept
        # Also when nobody names it any more.
        assert w.publish("--remove-acknowledged", engines=[w.engines[0]]).returncode == 0
        assert w.versions() == [2, 3, 4]
        broken.fail = None
        run = w.push("--remove-acknowledged")
        assert run.returncode == 0, run.stderr
        assert [e.serving for e in w.engines] == ["4", "4", "4"]
        for engine in w.engines:
            w.check(engine)
        assert w.versions() == [4]


def test_a_forgotten_engine_holds_up_nothing():
    with World(2) as w:
        assert w.publish().returncode == 0
        w.engines[1].server.shutdown()
        gone = w.engines[1].url
        run = w.publish("--remove-acknowledged", "--forget-engine", gone + "/", engines=[w.engines[0]])
        assert run.returncode == 0, run.stderr
        assert w.versions() == [2]


def test_lost_answers_are_harmless():
    with World(1) as w:
        engine = w.engines[0]
        for path in ("/pull_weights", "/pause_generation", "/update_weights_from_disk", "/continue_generation"):
            engine.lose_answer = path
            run = w.publish()
            assert run.returncode == 0, (path, run.stderr)
            assert engine.serving == str(json.loads(run.stdout)["version"])
            assert not engine.paused
            w.check(engine)


def test_an_engine_that_hangs_does_not_hold_up_the_others():
    with World(2) as w:
        assert w.publish().returncode == 0
        w.engines[0].hang = "/pull_weights"
        begin = time.time()
        run = w.publish("--engine-timeout", "8", "--remove-acknowledged")
        assert run.returncode == 9, run  # unavailable
        assert time.time() - begin < 60
        assert w.engines[1].serving == "2"
        assert w.versions() == [2]  # all have 1; one lacks 2


def test_hook_and_repeat():
    with World(1) as w:
        run = w.publish("--pre-push-hook", "echo $DELTAWIRE_VERSION $DELTAWIRE_VERSION_DIR >&2; exit 3")
        assert run.returncode == 5, run
        assert "weight_v000001" in run.stderr
        assert w.engines[0].calls == []
        # The same checkpoint again: no further version, and the engine hears of the one that is there.
        call = [DELTAWIRE, "slime-publish", str(w.dir / "ckpt"), "--json", "--update-weight-mode", "delta"]
        run = subprocess.run([*call, "--update-weight-transport", "disk", *w.flags()], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["written"] is False
        assert w.versions() == [1]
        assert w.engines[0].serving == "1"


def test_what_is_published_is_not_the_local_folder():
    with World(0) as w:
        call = [DELTAWIRE, "slime-publish", str(w.dir / "base"), "--update-weight-transport", "disk"]
        call += ["--update-weight-disk-dir", str(w.dir / "source"), "--update-weight-local-checkpoint-dir"]
        run = subprocess.run([*call, str(w.dir / "base" / ".." / "base")], capture_output=True, text=True)
        assert run.returncode == 2, run
        assert "is both what to publish and the local folder" in run.stderr
        assert sorted(path.name for path in (w.dir / "base").iterdir()) == ["config.json", "model.safetensors"]


def test_full_versions_are_loaded_from_the_shared_folder():
    with World(1) as w:
        write_model(w.dir / "ckpt", w.values)
        call = [DELTAWIRE, "slime-publish", str(w.dir / "ckpt"), "--json", "--update-weight-transport", "disk"]
        call += ["--update-weight-disk-dir", str(w.dir / "source"), "--engine", w.engines[0].url]
        run = subprocess.run(call, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert "/pull_weights" not in w.engines[0].calls
        assert w.engines[0].serving == "1"


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        test()
        print(f"{name}: ok", flush=True)


if __name__ == "__main__":
    main()
