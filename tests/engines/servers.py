"""Real engines for tests: started, queried, and always stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

ENGINES = Path(os.environ.get("DELTAWIRE_ENGINES", Path.home() / ".cache" / "deltawire-engines"))
PACKAGE = Path(os.environ.get("DELTAWIRE_PACKAGE", Path(__file__).parents[2] / "build" / "python"))
NUM_GPUS = int(os.environ.get("DELTAWIRE_TEST_GPUS", "0"))  # that the installed engine uses; 0: it runs on the CPU
START_SECONDS = 400


def cpu_has_bfloat16() -> bool:
    """CPU kernels of engines use bfloat16 instructions, and die of SIGILL without them."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("Features"):
            return " bf16" in line
    return True


def need(engine: str) -> None:
    """Skip the module if the engine is not installed."""
    if not (ENGINES / engine / "serve").exists():
        pytest.skip(f"{engine} is not installed: make test-engines", allow_module_level=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """A process group that answers HTTP on loopback."""

    def __init__(self, command: list[str], port: int, log: Path, environment: dict[str, str] | None = None) -> None:
        self.port, self.log = port, log
        self.headers: dict[str, str] = {}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DELTAWIRE_")}
        paths = os.pathsep.join(filter(None, [str(PACKAGE), inherited.get("PYTHONPATH")]))
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=inherited | {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"} | (environment or {}),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        try:
            self.wait("/health", START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Signal the whole process group: engines leave workers behind when their parent is killed."""
        try:
            os.killpg(self.process.pid, how)
            self.process.wait(timeout=30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def tail(self, size: int = 6000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    def call(self, method: str, path: str, body: Any = None, timeout: float = 120) -> tuple[int, Any]:
        """Status and answer, parsed if it is JSON; status 0 if there was no answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"} | self.headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())
        except (urllib.error.URLError, OSError):
            return 0, None

    def wait(self, path: str, seconds: float = 90) -> Any:
        """Wait for status 200 from that path; return the answer."""
        end = time.monotonic() + seconds
        while True:
            status, answer = self.call("GET", path, timeout=2)
            if status == 200:
                return answer
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > end:
                raise AssertionError(f"{path}: {status} {answer} after {seconds} s\n{self.tail()}")
            time.sleep(0.1)

    def get(self, path: str) -> Any:
        status, answer = self.call("GET", path)
        assert status == 200, (path, status, answer)
        return answer

    def post(self, path: str, body: Any = None) -> Any:
        status, answer = self.call("POST", path, {} if body is None else body)
        assert status == 200, (path, status, answer)
        return answer

    def status(self) -> dict[str, Any]:
        return dict(self.get("/deltawire/status"))

    def wait_for(self, version: int, seconds: float = 90) -> dict[str, Any]:
        """Wait until it serves that version."""
        self.wait(f"/deltawire/ready?version={version}", seconds)
        return self.status()

    def wait_until(self, said: Callable[[dict[str, Any]], Any], seconds: float = 60) -> dict[str, Any]:
        """Wait until `said` accepts its status."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = self.status()
            if said(status):
                return status
            time.sleep(0.1)
        raise AssertionError(f"{status}\n{self.tail(2000)}")


class VllmServer(Server):
    """`vllm serve`."""

    def __init__(
        self, model: Path, log: Path, *flags: str, deltawire: dict[str, Any] | None = None, tp: int = 1, dp: int = 1, **more: Any
    ) -> None:
        port = free_port()
        self.model = str(model)
        command = [str(ENGINES / "vllm" / "serve"), self.model, "--host", "127.0.0.1", "--port", str(port), *flags]
        if NUM_GPUS == 0:
            command += ["--compilation-config", '{"custom_ops": ["none"]}']
        elif tp * dp > NUM_GPUS:
            pytest.skip(f"needs {tp * dp} GPUs, and there are {NUM_GPUS}")
        if deltawire is not None:
            command += ["--weight-transfer-config", '{"backend": "deltawire"}']
        if deltawire:
            command += ["--additional-config", json.dumps({"deltawire": deltawire})]
        environment = dict(more.pop("environment", {}))
        if tp * dp > 1:
            command += ["-tp", str(tp), "-dp", str(dp)]
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(n % (os.cpu_count() or 1)) for n in range(tp * dp))
        super().__init__(command, port, log, environment)

    def complete(self, prompt: str, tokens: int = 8, **more: Any) -> dict[str, Any]:
        """Greedy tokens with their log-probabilities."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1} | more
        return dict(self.post("/v1/completions", body)["choices"][0])

    def logprobs(self, prompt: str = "hello world", tokens: int = 8) -> list[float]:
        return list(self.complete(prompt, tokens)["logprobs"]["token_logprobs"])

    def answers(self, tokens: int = 16) -> list[dict[str, Any]]:
        """Answers that differ between versions."""
        return [self.complete(prompt, tokens) for prompt in ("hello", "what is", "12345")]


def assert_equal(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Compare the answers of two servers."""
    for own, other in zip(ours, theirs, strict=True):
        assert (own["text"], own["logprobs"]["tokens"]) == (other["text"], other["logprobs"]["tokens"])
        assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)


class SglangServer(Server):
    """`sglang.launch_server`, on the CPU."""

    def __init__(self, model: Path, log: Path, *flags: str, settings: dict[str, str] | None = None) -> None:
        port = free_port()
        super().__init__([str(ENGINES / "sglang" / "serve"), str(model), str(port), *flags], port, log, settings)

    def generate(self, tokens: list[int], count: int = 12, **more: Any) -> dict[str, Any]:
        """Greedy tokens with their logprobs."""
        parameters = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
        body = {"input_ids": tokens, "sampling_params": parameters, "return_logprob": True} | more
        return dict(self.post("/generate", body))


def _parsed(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")
