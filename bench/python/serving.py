#!/usr/bin/env python3
"""A vLLM server that follows a trainer: how long a version takes from publish() to tokens, and what the server loses by it.

    serving.py [--mode eager|graphs] [--layers N] [--scale N] [--versions N] [--seconds N] [--results FILE] [--logs FOLDER]

Makes a model of Qwen3-8B's shape with random weights, publishes it into a store in memory (/dev/shm), and starts a real server
with the deltawire plugin. The trainer is this process, on the same GPU if there is one. While clients generate all the time:

1. versions, one at a time: 1.2 % of all elements one step up, publish(), until the server says that it serves the version;
2. tokens per second while one version comes each second, and while the trainer publishes as often to another store, which nobody
   follows: what following costs, without what a trainer on the same GPU costs. Windows of both in turn.

At the end log-probabilities are compared with those of a fresh server that has loaded the trainer's weights: they must be equal.
Runs with the vLLM of `scripts/gpu unpack` or, with a small model (--layers 2 --scale 32), of `scripts/engines`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("DELTAWIRE_TEST_GPUS", str(torch.cuda.device_count()))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "engines"))

from safetensors.torch import save_file
from servers import NUM_GPUS, VllmServer
from trainers import DTYPE, save_tokenizer
from transformers import Qwen3Config

import deltawire as dw

DEVICE = "cuda" if NUM_GPUS else "cpu"
POLL_SECONDS = 0.002
PATIENCE = 120.0
MODES = {"eager": [], "graphs": ["--no-enforce-eager", "--compilation-config", '{"mode": 0, "cudagraph_mode": "FULL"}']}
PROMPTS = ["hello", "what is", "12345", "once upon a", "def main", "the end", "x = [", "?"]


# ---- the trainer


def config_of(layers: int, scale: int) -> Qwen3Config:
    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        vocab_size=151936 // scale,
        hidden_size=4096 // scale,
        intermediate_size=12288 // scale,
        num_hidden_layers=layers,
        num_attention_heads=max(1, 32 // scale),
        num_key_value_heads=max(1, 8 // scale),
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )


def tensors_of(config: Qwen3Config) -> dict[str, torch.Tensor]:
    """Weights with the exponents of a trained model."""
    torch.manual_seed(1)
    hidden, inner, vocab, head = config.hidden_size, config.intermediate_size, config.vocab_size, config.head_dim
    heads, kv = config.num_attention_heads * head, config.num_key_value_heads * head
    made: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        is_norm = len(shape) == 1
        made[f"{name}.weight"] = (
            torch.ones(shape, device=DEVICE, dtype=DTYPE)
            if is_norm
            else torch.randn(shape, device=DEVICE, dtype=DTYPE).mul_(0.02)
        )

    add("model.embed_tokens", vocab, hidden)
    for layer in range(config.num_hidden_layers):
        base = f"model.layers.{layer}"
        add(f"{base}.input_layernorm", hidden)
        add(f"{base}.self_attn.q_proj", heads, hidden)
        add(f"{base}.self_attn.k_proj", kv, hidden)
        add(f"{base}.self_attn.v_proj", kv, hidden)
        add(f"{base}.self_attn.o_proj", hidden, heads)
        add(f"{base}.self_attn.q_norm", head)
        add(f"{base}.self_attn.k_norm", head)
        add(f"{base}.post_attention_layernorm", hidden)
        add(f"{base}.mlp.gate_proj", inner, hidden)
        add(f"{base}.mlp.up_proj", inner, hidden)
        add(f"{base}.mlp.down_proj", hidden, inner)
    add("model.norm", hidden)
    add("lm_head", vocab, hidden)
    return made


class Trainer:
    """Its weights, its chain, and what is written beside the weights."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.share, self.folder, self.store = options.changed, folder, str(folder / "store")
        config = config_of(options.layers, options.scale)
        self.tensors = tensors_of(config)
        self.num_elements = sum(tensor.numel() for tensor in self.tensors.values())
        self.num_bytes = sum(tensor.nbytes for tensor in self.tensors.values())
        config.save_pretrained(folder / "files")
        save_tokenizer(folder / "files")
        self.publisher = dw.Publisher(self.store, self.tensors, anchors=dw.Anchors(by_bytes=False))
        self.version = self.publisher.publish(extra_files=sorted((folder / "files").iterdir())).number

    def change(self) -> None:
        """What a step does to the bits of weights."""
        for tensor in self.tensors.values():
            mask = torch.rand(tensor.shape, device=DEVICE) < self.share
            tensor.view(torch.int16).add_(mask)
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    def publish(self) -> dw.PublishReport:
        report = self.publisher.publish()
        self.version = report.number
        return report

    def step(self) -> None:
        self.change()
        self.publish()

    def save(self, folder: Path) -> Path:
        """The trainer's own checkpoint: nothing of it has been through a chain."""
        shutil.copytree(self.folder / "files", folder)
        names = list(self.tensors)
        for first in range(0, len(names), 50):  # a file at a time in host memory
            part = {name: self.tensors[name].cpu() for name in names[first : first + 50]}
            save_file(part, folder / f"model-{first:05}.safetensors", {"format": "pt"})
        return folder


# ---- processes beside it: what they do must not wait for the trainer's Python


class Helper:
    """A function in a process of its own that answers what it is sent. To be made before CUDA is used: it is forked."""

    def __init__(self, function: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=function, args=(theirs,), daemon=True)
        self._process.start()

    def send(self, message: Any) -> None:
        self.pipe.send(message)

    def answer(self, seconds: float) -> Any:
        if not self.pipe.poll(seconds):
            raise RuntimeError(f"a process of the bench did not answer in {seconds} s")
        return self.pipe.recv()

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


def watch(pipe: Connection) -> None:
    """Gets a port and LOCAL. For each version's number: when it was served and, if asked, LOCAL held it; None: not in time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    port, local = pipe.recv()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def is_served(number: int) -> bool:
        try:
            connection.request("GET", f"/deltawire/ready?version={number}")
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            connection.close()
            return False

    def is_held(number: int) -> bool:
        try:
            state = dw.read_replica_state(local)
        except dw.Error:
            return False
        return state.version >= number and state.patching_to is None

    def when(is_so: Callable[[int], bool], number: int) -> float | None:
        end = time.monotonic() + PATIENCE
        while not is_so(number):
            if time.monotonic() > end:
                return None
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    with ThreadPoolExecutor(2) as pool:
        while True:
            number, with_local = pipe.recv()
            looks = [pool.submit(when, is_so, number) for is_so in (is_served, is_held)[: 1 + with_local]]
            pipe.send([look.result() for look in looks])


class Clients:
    """Generate until they are stopped."""

    def __init__(self, server: VllmServer, count: int, tokens: int) -> None:
        self._server, self._stop = server, threading.Event()
        self._body = {"model": server.model, "max_tokens": tokens, "temperature": 1.0, "ignore_eos": True}
        self._threads = [threading.Thread(target=self._generate, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _generate(self, number: int) -> None:
        while not self._stop.is_set():
            self._server.call("POST", "/v1/completions", self._body | {"prompt": f"client {number}"})

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


# ---- what is measured


class Results:
    """JSON lines, as they come, and a table of all values."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._values = file, dict[str, list[float]]()
        if file is not None:
            file.write_text("")

    def add(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what} | values)
        if self._file is None or len(line) < 500:
            print(line, flush=True)
        if self._file is not None:
            with self._file.open("a") as out:
                out.write(line + "\n")

    def time(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def table(self) -> None:
        rows = {name: (statistics.median(values), min(values), max(values)) for name, values in self._values.items()}
        self.add("times", median_best_worst_ms=rows)
        print(f"{'milliseconds':52} {'median':>10} {'best':>10} {'worst':>10}")
        for name, (middle, best, worst) in rows.items():
            print(f"{name:52} {middle:10.2f} {best:10.2f} {worst:10.2f}", flush=True)


def numbers_in(words: Any, name: str, began: tuple[float, float]) -> Iterator[tuple[str, float]]:
    """Milliseconds of all seconds in a status. `began`: the clocks at the call of publish(); times of day count from there."""
    if isinstance(words, dict):
        for key, value in words.items():
            yield from numbers_in(value, f"{name}.{key}", began)
    elif isinstance(words, list):
        for place, value in enumerate(words):
            own = value.get("name", place) if isinstance(value, dict) else place
            yield from numbers_in(value, f"{name}.{own}", began)
    elif isinstance(words, float):
        clock = next((clock for clock in began if clock - 1 < words < clock + PATIENCE), 0.0)
        yield name, 1e3 * (words - clock)


def measure_versions(trainer: Trainer, server: VllmServer, watcher: Helper, count: int, results: Results) -> None:
    for left in reversed(range(count)):  # LOCAL follows seconds behind: it is waited for at the end
        trainer.change()
        watcher.send((trainer.version + 1, left == 0))
        time.sleep(0.05)
        began = time.monotonic(), time.time()
        report = trainer.publish()
        ended = time.monotonic()
        served, *held = watcher.answer(2 * PATIENCE)
        if served is None:
            raise RuntimeError(f"version {report.number} is not served: {server.status()}\n{server.tail()}")
        status = server.status()
        times = {"publish()": ended - began[0]}
        times |= {f"publish(): {phase.name}": phase.end - phase.begin for phase in report.phases}
        times |= {"served, after the call of publish()": served - began[0], "served, after publish() returned": served - ended}
        times |= {"LOCAL holds it, after the call of publish()": one - began[0] for one in held if one is not None}
        times |= {"pause, as the server's follower measures it": status["pause_seconds"]}
        own = {name: 1e3 * seconds for name, seconds in times.items()}
        for number, worker in enumerate(status["workers"]):
            for part in ("last_pause", "timeline"):
                own |= dict(numbers_in(worker.get(part), f"worker {number}: {part}", began))
        own |= dict(numbers_in(status.get("timeline"), "timeline", began))
        for name, value in own.items():
            results.time(name, value)
        results.add(
            "version",
            number=report.number,
            changed=report.num_changed,
            bytes=report.bytes,
            full=report.full,
            phases=[(phase.name, phase.begin, phase.end) for phase in report.phases],
            ms=own,
            pauses=[worker.get("last_pause") for worker in status["workers"]],
            timelines=[worker.get("timeline") for worker in status["workers"]],
            problems=status["problems"],
            error=status["error"],
        )


def tokens_of(server: VllmServer) -> float:
    """That the server has generated so far."""
    lines = str(server.get("/metrics")).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def measure_rate(
    name: str, server: VllmServer, seconds: float, results: Results, step: Callable[[], None]
) -> float:
    """Tokens per second; `step` once a second, or as often as it can be done."""
    before, began, steps, first = server.status(), time.monotonic(), 0, tokens_of(server)
    while time.monotonic() < began + seconds:
        step()
        steps += 1
        time.sleep(max(0.0, began + steps - time.monotonic()))
    took, tokens, after = time.monotonic() - began, tokens_of(server) - first, server.status()
    results.add(
        "rate",
        name=name,
        tokens_per_second=round(tokens / took, 1),
        seconds=round(took, 2),
        steps=steps,
        updates=after["updates"] - before["updates"],
        paused_ms=round(1e3 * (after["pause_seconds_total"] - before["pause_seconds_total"]), 2),
        failures=after["failures"] - before["failures"],
    )
    return tokens / took


def measure_following(trainer: Trainer, server: VllmServer, options: argparse.Namespace, results: Results) -> None:
    other = dw.Publisher(str(trainer.folder / "other"), trainer.tensors, anchors=dw.Anchors(by_bytes=False))
    rates: dict[str, list[float]] = {"nobody follows": [], "the server follows": []}
    for _ in range(options.windows):
        for (name, own), publish in zip(rates.items(), (other.publish, trainer.publish), strict=True):
            trainer.change()
            publish()  # all that changed in the window of the other
            server.wait_for(trainer.version, PATIENCE)
            own.append(measure_rate(name, server, options.seconds, results, lambda: (trainer.change(), publish())))
    without, following = (statistics.median(own) for own in rates.values())
    results.add("following", tokens_per_second=rates, ratio_of_medians=round(following / without, 4))
    del other
    shutil.rmtree(trainer.folder / "other")


def answers_of(server: VllmServer) -> list[tuple[list[int], list[float]]]:
    """Tokens and their log-probabilities, one prompt at a time."""
    choices = [server.complete(prompt, 32, ignore_eos=True, return_token_ids=True) for prompt in PROMPTS]
    return [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]


def compare(ours: Any, theirs: Any, results: Results) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    wrong = sum(own[0] != other[0] for own, other in pairs)
    most = max(abs(a - b) for own, other in pairs for a, b in zip(own[1], other[1], strict=True))
    is_equal = bool(ours == theirs)
    results.add("compared", prompts=len(pairs), equal=is_equal, prompts_with_other_tokens=wrong, largest_difference=most)
    print(f"log-probabilities {'equal' if is_equal else 'DIFFER FROM'} those of a fresh server")
    return is_equal


def run(options: argparse.Namespace, folder: Path, results: Results) -> bool:
    began, watcher = time.monotonic(), Helper(watch)

    def done(what: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s, {shutil.disk_usage(folder).free / 1e9:5.1f} GB left] {what}", flush=True)

    trainer = Trainer(options, folder)
    results.add(
        "setup",
        mode=options.mode,
        device=torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
        torch=torch.__version__,
        elements=trainer.num_elements,
        bytes=trainer.num_bytes,
        layers=options.layers,
        scale=options.scale,
        clients=options.clients,
        changed=options.changed,
    )
    done(f"version 0 is published: {trainer.num_elements / 1e9:.3f} B weights")
    local = folder / "local"
    with dw.Replica(trainer.store, local) as replica:
        replica.pull()
    done("LOCAL is pulled")
    flags = [*MODES[options.mode], "--max-model-len", "1024", "--max-num-seqs", "32", "--disable-uvicorn-access-log"]
    flags += ["--gpu-memory-utilization", "0.35"] if DEVICE == "cuda" else []
    settings = {"store": trainer.store, "local": str(local), "interval": 1}
    with VllmServer(local, options.logs / "server.log", *flags, deltawire=settings) as server:
        done("the server answers")
        server.wait_for(trainer.version, 180)
        done(f"version {trainer.version} is served")
        clients = Clients(server, options.clients, options.tokens)
        watcher.send((server.port, str(local)))
        try:
            time.sleep(options.warm)
            trainer.step()
            server.wait_for(trainer.version, PATIENCE)
            measure_versions(trainer, server, watcher, options.versions, results)
            done(f"{options.versions} versions")
            measure_following(trainer, server, options, results)
            done("tokens per second")
        finally:
            watcher.stop()
            clients.stop()
        status = server.wait_for(trainer.version, PATIENCE)
        results.add("status", status=status)
        code, proven = server.call("POST", "/deltawire/prove")
        results.add("proven", code=code, answer=proven)
        ours = answers_of(server)
    done("the server is stopped")
    results.table()
    if options.no_fresh:
        return code == 200
    shutil.rmtree(local)
    checkpoint = trainer.save(folder / "fresh")
    done("the trainer's weights are saved")
    with VllmServer(checkpoint, options.logs / "fresh.log", *flags) as fresh:
        theirs = answers_of(fresh)
    done("a fresh server has answered")
    return compare(ours, theirs, results) and code == 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="eager", help="without CUDA graphs, or with full ones")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--scale", type=int, default=1, help="divides every width: for a try on a small machine")
    parser.add_argument("--changed", type=float, default=0.012, help="share of elements that a version changes")
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400, help="of each request")
    parser.add_argument("--seconds", type=float, default=10, help="of each window")
    parser.add_argument("--windows", type=int, default=4, help="for each of the two rates of tokens")
    parser.add_argument("--warm", type=float, default=3, help="seconds before the first measurement")
    parser.add_argument("--no-fresh", action="store_true", help="do not compare with a fresh server")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where store, LOCAL and checkpoint go for the time")
    parser.add_argument("--logs", type=Path, help="a folder for the servers' logs")
    parser.add_argument("--results", type=Path, help="a file for JSON lines")
    options = parser.parse_args()
    if options.mode == "graphs" and DEVICE == "cpu":
        parser.error("--mode graphs: there is no GPU")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    if DEVICE == "cpu":
        torch.set_num_threads(1)  # the server takes the others
    folder = Path(tempfile.mkdtemp(prefix="deltawire-serving-", dir=options.folder))
    options.logs = options.logs or folder
    options.logs.mkdir(parents=True, exist_ok=True)
    try:
        return 0 if run(options, folder, Results(options.results)) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
