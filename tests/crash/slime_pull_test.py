#!/usr/bin/env python3
"""serve-pull over HTTP, and a process that is killed at every instant of a pull.

usage: slime_pull_test.py DELTAWIRE [--quick]

Versions are written here in slime's layout (xor and overwrite), without any code of deltawire. Then
- the HTTP side: answers, refusals, limits, pulls at the same time;
- SIGKILL at every sync point of a pull: the next call ends at the version asked for, byte for byte, and until then the
  folder claims no version that it does not hold;
- SIGKILL at random times of a server that is pulling.
"""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

try:
    import xxhash
except ImportError:
    xxhash = None

DELTAWIRE = sys.argv[1]
QUICK = "--quick" in sys.argv
NAMES = ["embed.weight", "layer.0.up", "layer.0.norm", "layer.1.up"]
random.seed(15)


def safetensors(tensors, metadata=None):
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def write_model(folder, model):
    """Two shards and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for shard in range(2):
        own = {n: ("BF16", [len(model[n]) // 2], model[n]) for i, n in enumerate(NAMES) if i % 2 == shard}
        file = f"model-0000{shard + 1}-of-00002.safetensors"
        (folder / file).write_bytes(safetensors(own))
        weight_map |= dict.fromkeys(own, file)
    index = {"metadata": {"total_size": sum(map(len, model.values()))}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def payload(encoding, old, new):
    if encoding == "xor":
        content = bytes(a ^ b for a, b in zip(old, new))
    else:
        at = [i for i, (a, b) in enumerate(zip(old, new)) if a != b]
        content = struct.pack(f"<I{len(at)}I", len(at), *at) + bytes(new[i] for i in at)
    return zstd_frame(content)


def zstd_frame(content):
    """A frame of raw blocks, with its content size."""
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", len(content))
    blocks = [content[at : at + 100_000] for at in range(0, len(content), 100_000)] or [b""]
    for i, block in enumerate(blocks):
        frame += struct.pack("<I", len(block) << 3 | (i == len(blocks) - 1))[:3] + block
    return frame


def digest(data):
    return xxhash.xxh3_128(data).hexdigest() if xxhash else f"{zlib.adler32(data):08x}"


def publish(source, version, old, new, encoding):
    folder = source / f"weight_v{version:06d}"
    folder.mkdir(parents=True)
    changed = {n: payload(encoding, old[n], new[n]) for n in NAMES if old[n] != new[n]}
    digests = {n: digest(new[n]) for n in changed}
    file = "model-00000-of-00001.safetensors"
    (folder / file).write_bytes(safetensors({n: ("U8", [len(b)], b) for n, b in changed.items()}, digests))
    metadata = {
        "version": f"{version:06d}",
        "base_version": f"{version - 1:06d}",
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": "xxh3-128" if xxhash else "adler32",
    }
    index = {"metadata": metadata, "weight_map": dict.fromkeys(changed, file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def changed(model):
    model = dict(model)
    for name in random.sample(NAMES, 3):
        data = bytearray(model[name])
        for _ in range(len(data) // 100 + 1):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        model[name] = bytes(data)
    return model


def held(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        data = file.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, info in json.loads(data[8 : 8 + size]).items():
            begin, end = info["data_offsets"]
            tensors[name] = data[8 + size + begin : 8 + size + end]
    return tensors


def state(folder):
    try:
        return int(json.loads((folder / ".weight_sync/state.json").read_text())["version"])
    except FileNotFoundError:
        return None


class World:
    def __init__(self, size, encoding, versions=3):
        self.dir = Path(tempfile.mkdtemp(prefix="deltawire-slime-"))
        self.source, self.local, self.base = self.dir / "source", self.dir / "local", self.dir / "base"
        self.models = [{n: random.randbytes(2 * (size // (i + 1))) for i, n in enumerate(NAMES)}]
        write_model(self.base, self.models[0])
        for version in range(1, versions + 1):
            self.models.append(changed(self.models[-1]))
            publish(self.source, version, self.models[-2], self.models[-1], encoding)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def pull(self, version, base=True, environment=None):
        call = [DELTAWIRE, "slime-pull", str(self.source), str(self.local), "--version", str(version), "--quiet"]
        call += ["--base", str(self.base)] if base else []
        return subprocess.run(call, env=os.environ | (environment or {}), capture_output=True, text=True)

    def check(self, version, place):
        assert state(self.local) == version, f"{place}: state.json says {state(self.local)}, not {version}"
        assert held(self.local) == self.models[version], f"{place}: not version {version}"


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [DELTAWIRE, "serve-pull", "--port", "0", "--json", "--log-level", "error", *map(str, options)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = json.loads(self.process.stdout.readline())["port"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(20) == 0
        self.process.stdout.close()

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers or {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        return reply.status, answer

    def pull(self, world, version, **other):
        body = {"local_checkpoint_dir": str(world.local), "source_dir": str(world.source), "target_version": version}
        return self.call("POST", "/pull_weights", json.dumps(body | other))


def test_http():
    with World(2000, "xor") as w, Server("--root", w.dir, "--base", w.base) as server:
        assert server.call("GET", "/health") == (200, {"status": "ok"})
        for version in (0, 1, 3, 3, 2):
            status, answer = server.pull(w, version)
            assert status == 200 and answer["success"] is True and answer["message"] == "Success.", answer
            assert answer["version"] == version
            w.check(version, "HTTP")
        # Several ranks of one host ask at the same time: one works, the others find it done.
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.pull(w, 3))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(status == 200 for status, _ in answers), answers
        assert sum(answer["changed"] for _, answer in answers) == 1
        w.check(3, "eight at once")
        # Failures are JSON, with their 400.
        status, answer = server.pull(w, 9)
        assert status == 400 and answer["success"] is False and "weight_v000009" in answer["message"], answer
        w.check(3, "after a failure")


def test_http_refusals():
    with World(500, "xor") as w, Server("--root", w.dir, "--base", w.base, "--max-body", "4KiB") as server:
        outside = tempfile.mkdtemp(prefix="deltawire-outside-")
        (w.dir / "link").symlink_to(outside)
        for path in (outside, "/", "/etc", f"{w.dir}/../{Path(outside).name}", f"{w.dir}/link", f"{w.dir}/link/x"):
            for field in ("local_checkpoint_dir", "source_dir"):
                status, answer = server.pull(w, 1, **{field: path})
                assert status == 403 and answer["success"] is False and "--root" in answer["message"], (path, answer)
        assert os.listdir(outside) == []
        for path in ("local", "", "a\0b"):
            status, answer = server.pull(w, 1, local_checkpoint_dir=path)
            assert status == 403, answer
        for field, value in [
            ("target_version", -1),
            ("target_version", "1"),
            ("target_version", 1.5),
            ("target_version", True),
            ("target_version", None),
            ("source_dir", 3),
            ("local_checkpoint_dir", None),
        ]:
            status, answer = server.pull(w, 1, **{field: value})
            assert status == 400 and field in answer["message"], (field, value, answer)
        post = lambda body, **more: server.call("POST", "/pull_weights", body, **more)  # noqa: E731
        for body in ("", "{", "[]", "null", "\x00", '{"local_checkpoint_dir": "/x"}'):
            status, answer = post(body)
            assert status == 400 and answer["success"] is False, (body, answer)
        assert post("{}", headers={"Content-Type": "text/plain"})[0] == 400
        assert post("x" * 5000)[0] == 413
        assert post("x" * (20 << 20))[0] == 413  # who is still sending gets the answer, not a reset
        assert post("{}", headers={"Content-Type": "application/jsonp"})[1]["message"].find("application/json") > 0
        assert "JSON" not in post("{}", headers={"Content-Type": "Application/JSON; charset=utf-8"})[1]["message"]
        assert server.call("GET", "/pull_weights")[0] == 405
        assert server.call("POST", "/health", "{}")[0] == 405
        assert server.call("POST", "/other", "{}")[0] == 404
        for request in (
            b"POST /pull_weights HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /pull_weights HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /pull_weights HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"POST /pull_weights HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"\x16\x03\x01 hello\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 9000,
        ):
            with socket.create_connection(("127.0.0.1", server.port), 20) as raw:
                raw.sendall(request)
                assert raw.recv(100).startswith(b"HTTP/1.1 4"), request[:80]
        # A body that never comes is cut off; nobody else waits for it.
        with socket.create_connection(("127.0.0.1", server.port), 20) as raw:
            raw.sendall(b"POST /pull_weights HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
            assert server.call("GET", "/health")[0] == 200
            assert raw.recv(100) == b""
        assert not w.local.exists()
        assert server.pull(w, 1)[0] == 200
        w.check(1, "after all that")
        os.rmdir(outside)


def test_listens_on_loopback_alone():
    with World(100, "xor") as w, Server("--root", w.dir) as server:
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = [a for a in listening if a.endswith(f":{server.port:04X}")]
        assert "0100007F" in own[0] and not any(a.startswith("00000000") for a in own), own


def test_time_limit():
    with World(500, "xor") as w, Server("--root", w.dir, "--base", w.base, "--timeout", "3") as server:
        assert server.pull(w, 1)[0] == 200
        import fcntl

        with open(w.local / ".weight_sync/lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            status, answer = server.pull(w, 2)
            assert status == 400 and answer["code"] == "unavailable" and "within 3 s" in answer["message"], answer
            assert server.call("GET", "/health")[0] == 200
        w.check(1, "after the time limit")
        assert server.pull(w, 2)[0] == 200
    with World(500, "xor") as w, Server("--root", w.dir, "--base", w.base, "--timeout", "60") as server:
        assert server.pull(w, 1)[0] == 200
        answers = []
        with open(w.local / ".weight_sync/lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            threads = [threading.Thread(target=lambda: answers.append(server.pull(w, 2)[0])) for _ in range(40)]
            for thread in threads:
                thread.start()
            while len(answers) < 16:
                time.sleep(0.01)
            begin = time.time()
            assert server.call("GET", "/health")[0] == 200
            assert time.time() - begin < 30, "waited for those who wait"
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200] * 24 + [503] * 16, answers
        w.check(2, "after many at once")
        assert server.pull(w, 2)[0] == 200


def test_somebody_else_goes_on_after_a_kill():
    """Their own puller knows nothing of our journal: it begins anew, or goes on. The journal must not be put on top of that."""
    with World(3000, "xor") as w:
        assert w.pull(1).returncode == 0
        prepared, journals = w.dir / "prepared", 0
        shutil.copytree(w.local, prepared)
        (prepared / ".weight_sync/deltawire.json").unlink()
        for theirs in (0, 3):
            for at in range(1, 1000):
                shutil.rmtree(w.local)
                shutil.copytree(prepared, w.local)
                if w.pull(2, True, {"DELTAWIRE_CRASH_AT": str(at)}).returncode == 0:
                    break
                journals += (w.local / ".weight_sync/journal").exists()
                if state(w.local) is None or at % 2:
                    for file in w.local.glob("*.safetensors*"):
                        file.unlink()
                write_model(w.local, w.models[theirs])
                (w.local / ".weight_sync/state.json").write_text(f'{{"version": "{theirs:06d}"}}')
                again = w.pull(2)
                assert again.returncode == 0, again.stderr
                w.check(2, f"killed at point {at}, theirs went to {theirs}")
        assert journals >= 8, journals


def test_state_that_lies():
    with World(500, "xor") as w:
        assert w.pull(2).returncode == 0
        (w.local / ".weight_sync/state.json").write_text('{"version": "000000"}')
        run = w.pull(0, False)
        assert run.returncode != 0 and "files are those of 2" in run.stderr, run.stderr
        assert w.pull(0).returncode == 0
        w.check(0, "with a base")
        # What the file leads to is not told to whoever asks.
        (w.dir / "secret").write_text("hunter2")
        (w.local / ".weight_sync/state.json").unlink()
        (w.local / ".weight_sync/state.json").symlink_to(w.dir / "secret")
        with Server("--root", w.dir) as server:
            status, answer = server.pull(w, 1)
            assert status == 400 and "is a link" in answer["message"] and "hunter2" not in answer["message"], answer


def test_another_run_that_has_removed_its_first_versions():
    with World(500, "xor") as w:
        assert w.pull(2).returncode == 0
        other = dict(w.models[2], **{NAMES[0]: w.models[0][NAMES[0]][::-1]})  # differs where version 3 changes nothing
        after = dict(other, **{NAMES[3]: bytes(len(other[NAMES[3]]))})
        w.source = w.dir / "another"
        publish(w.source, 3, other, after, "xor")
        run = w.pull(3, False)
        assert run.returncode != 0 and "no such version any more" in run.stderr, run.stderr
        assert held(w.local) == w.models[2]


def test_links_in_the_local_folder_stay_below_the_roots():
    with World(500, "xor") as w, World(500, "xor") as outside, Server("--root", w.dir) as server:
        w.local.mkdir()
        for file in outside.base.iterdir():
            (w.local / file.name).symlink_to(file)
        status, answer = server.pull(w, 0)
        assert status == 400 and "leads out of the folders" in answer["message"], answer
        for file in w.local.glob("model*"):
            file.unlink()
            file.symlink_to(w.base / file.name)  # as in a cache of models
        assert server.pull(w, 1)[0] == 200
        w.check(1, "links below the root")
        assert held(w.base) == w.models[0]


def test_a_hook_that_hangs():
    with World(500, "xor") as w, Server("--root", w.dir, "--pre-read-hook", "sleep 60", "--timeout", "0.5") as server:
        status, answer = server.pull(w, 1)
        assert status == 400 and answer["code"] == "unavailable" and "0.5 s" in answer["message"], answer


def test_the_base_is_not_written_to():
    with World(500, "xor") as w, Server("--root", w.dir, "--base", w.base) as server:
        (w.dir / "link").symlink_to(w.base)
        for local in (w.base, w.dir / "link"):
            status, answer = server.pull(w, 1, local_checkpoint_dir=str(local))
            assert status == 400 and "the base" in answer["message"], answer
        assert held(w.base) == w.models[0]
        assert server.pull(w, 1)[0] == 200
        w.check(1, "beside the base")


def kill_at_every_point(encoding, base, start, target):
    with World(3000, encoding) as w:
        prepared = w.dir / "prepared"
        if start is not None:
            assert w.pull(start).returncode == 0
            shutil.copytree(w.local, prepared)  # other inodes: as files that somebody copied
            shutil.rmtree(w.local)
            (prepared / ".weight_sync/deltawire.json").unlink()
        killed = 0
        for at in range(1, 1000):
            shutil.rmtree(w.local, ignore_errors=True)
            if start is not None:
                shutil.copytree(prepared, w.local)
            run = w.pull(target, base, {"DELTAWIRE_CRASH_AT": str(at)})
            if run.returncode == 0:
                break
            assert run.returncode == -signal.SIGKILL, run.stderr
            killed += 1
            place = f"{encoding} {start} -> {target}, killed at point {at}"
            said = state(w.local)
            if said is not None:
                assert held(w.local) == w.models[said], f"{place}: claims version {said}, and is not"
            again = w.pull(target, base)
            assert again.returncode == 0, f"{place}: {again.stderr}"
            w.check(target, place)
            assert not (w.local / ".weight_sync/journal").exists(), place
        w.check(target, "unharmed")
        assert killed >= 8, killed
        return killed


def test_kill_at_every_sync_point():
    total = 0
    for encoding in ("xor", "overwrite"):
        total += kill_at_every_point(encoding, False, 0, 1)
        total += kill_at_every_point(encoding, True, 1, 3)
    total += kill_at_every_point("xor", True, None, 2)
    total += kill_at_every_point("xor", True, 3, 1)
    print(f"  killed at {total} points")


def test_kill_twice():
    """The process that finishes what another began is killed as well."""
    with World(3000, "xor") as w:
        assert w.pull(1).returncode == 0
        for _ in range(5 if QUICK else 40):
            version = random.choice([v for v in range(4) if v != state(w.local)])
            for _ in range(3):
                w.pull(version, True, {"DELTAWIRE_CRASH_AT": str(random.randrange(1, 18))})
            assert w.pull(version).returncode == 0
            w.check(version, "killed three times")


def test_kill_a_server():
    rounds, killed = 4 if QUICK else 30, 0
    with World(100_000 if QUICK else 400_000, "xor") as w:
        for _ in range(rounds):
            with Server("--root", w.dir, "--base", w.base) as server:
                version = random.choice([v for v in range(4) if v != state(w.local)])
                answers = []

                def ask(version=version, server=server, answers=answers):
                    try:
                        answers.append(server.pull(w, version))
                    except (OSError, http.client.HTTPException):
                        answers.append((0, {}))

                thread = threading.Thread(target=ask)
                thread.start()
                time.sleep(random.uniform(0, 0.06))
                server.process.kill()
                server.process.wait()
                thread.join()
                killed += answers[0][0] != 200
                said = state(w.local)
                if said is not None:
                    assert held(w.local) == w.models[said], f"killed: claims {said}, and is not"
            with Server("--root", w.dir, "--base", w.base) as server:
                status, answer = server.pull(w, version)
                assert status == 200, answer
                w.check(version, "after a killed server")
    print(f"  {rounds} servers killed, {killed} before they answered")


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        begin = time.time()
        test()
        print(f"{name}: ok, {time.time() - begin:.1f} s", flush=True)
    print(f"{len(tests)} tests")


if __name__ == "__main__":
    main()
