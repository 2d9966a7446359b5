#!/usr/bin/env python3
"""Publish and pull from Python with weights on a GPU, through a store in memory: where the time of a step goes, and of the seed.

    gpu.py [--tensors N] [--side N] [--rounds N] [--codec NAME] [--quantize FORMAT] [--exchange SHARE]

Weights are N tensors of side x side bf16 that torch holds. Each round adds noise to all of them, which changes about 1.2 % of their
bits, publishes, pulls into another set of tensors on the same GPU, and compares both bit for bit. The best and the median round count.
With --quantize the publisher quantises, and the other tensors are those of a quantised checkpoint.
Then a share of the elements of all tensors, each cut in three, is exchanged with staged values and back: what an engine's worker does in its
pause. The same in host memory, of every tenth array, is compared with numpy's `array[offsets] = values`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

import deltawire as dw
from deltawire.quantize import quantize


def step(tensors: dict[str, torch.Tensor], noise: float) -> None:
    """What an optimizer does at the learning rates of RL, as far as bits can tell."""
    for tensor in tensors.values():
        wide = tensor.float()
        wide += torch.empty_like(wide).uniform_(-noise, noise)
        tensor.copy_(wide)


def changed_share(before: torch.Tensor, after: torch.Tensor) -> float:
    return (before.view(torch.int16) != after.view(torch.int16)).float().mean().item()


def served(trainer: dict[str, torch.Tensor], quantised: str | None) -> Iterator[tuple[str, torch.Tensor]]:
    """What engines hold of the trainer's tensors."""
    return iter(trainer.items()) if quantised is None else quantize(trainer, quantised)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def timed(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return result, (time.perf_counter() - begin) * 1e3


def row(name: str, times: list[float]) -> dict[str, object]:
    return {"what": name, "best_ms": round(min(times), 2), "median_ms": round(statistics.median(times), 2)}


def swaps(exchange: dw.live.Exchange, rounds: int) -> list[float]:
    return [timed(exchange.swap)[1] for _ in range(2 * rounds)]  # an even number: all is as it was


def exchanged(engine: dict[str, torch.Tensor], share: float, rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """What it takes to exchange a share of all elements, and what the lists take of memory."""
    arrays = [part for tensor in engine.values() for part in tensor.flatten().tensor_split(3)]
    lists = []
    for array in arrays:
        offsets = torch.nonzero(torch.rand(array.numel(), device="cuda") < share).flatten().to(torch.int32)
        values = torch.randint(-(1 << 15), 1 << 15, (len(offsets),), dtype=torch.int16, device="cuda").view(torch.bfloat16)
        lists.append((array, offsets.cpu().numpy().view(np.uint32), values.cpu()))
    before = [array.clone() for array in arrays]
    staged, stage_ms = timed(lambda: dw.live.Exchange(lists))
    staged.swap()
    for array, offsets, values in lists:
        at = torch.from_numpy(offsets.view(np.int32)).cuda().long()
        assert torch.equal(array[at].cpu().view(torch.int16), values.view(torch.int16))
    staged.swap()
    assert all(torch.equal(array.view(torch.int16), old.view(torch.int16)) for array, old in zip(arrays, before, strict=True))
    del before
    times = {"Exchange, staged": [stage_ms], "Exchange.swap()": swaps(staged, rounds)}
    sizes = {"elements": staged.num_changed, "device_bytes": staged.device_bytes, "host_bytes": staged.host_bytes}
    del staged
    times["swap(), lists pinned"] = swaps(dw.live.Exchange(lists, device_bytes=0), rounds)
    host = [
        (array.cpu().view(torch.int16).numpy(), offsets, values.view(torch.int16).numpy())
        for array, offsets, values in lists[::10]
    ]
    sizes["elements_host"] = sum(len(offsets) for _, offsets, _ in host)
    times["swap(), 1/10 on the host"] = swaps(dw.live.Exchange(host), rounds)
    times["one thread"] = swaps(dw.live.Exchange(host, threads=1), rounds)
    indices = [(array, offsets.astype(np.int64), values) for array, offsets, values in host]

    def numpy_scatter() -> None:
        for array, offsets, values in indices:
            array[offsets] = values

    times["numpy's scatter of it"] = [timed(numpy_scatter)[1] for _ in range(rounds)]
    return times, sizes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=120)
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--noise", type=float, default=1e-6)
    parser.add_argument("--codec", default="auto")
    parser.add_argument("--quantize", metavar="FORMAT", help="quantise first; then no exchange")
    parser.add_argument("--exchange", type=float, default=0.012, help="share of elements to exchange; 0: none")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 0
    torch.manual_seed(1)
    shape = (options.side, options.side)
    trainer = {f"w{i:04}.weight": torch.randn(shape, device="cuda").mul_(0.02).bfloat16() for i in range(options.tensors)}
    engine = {name: torch.zeros_like(tensor) for name, tensor in served(trainer, options.quantize)}
    store = "memory:bench"
    publisher = dw.Publisher(
        store,
        trainer,
        codec=options.codec,
        quantize=options.quantize,
        anchors=dw.Anchors(by_bytes=False),
    )
    seed, seed_ms = timed(publisher.publish)
    replica = dw.TensorReplica(store, engine)
    whole_ms = timed(replica.pull)[1]
    publish, pull, prepare, pause, size, share = [], [], [], [], 0, 0.0
    for number in range(options.rounds):
        before = trainer["w0000.weight"].clone()
        step(trainer, options.noise)
        share = changed_share(before, trainer["w0000.weight"])
        done, took = timed(publisher.publish)
        size = done.bytes
        publish.append(took)
        if number % 2 == 0:
            pull.append(timed(replica.pull)[1])
        else:
            prepare.append(timed(replica.prepare)[1])
            pause.append(timed(replica.commit)[1])
        if not all(same(tensor, engine[name]) for name, tensor in served(trainer, options.quantize)):
            print("the replica differs from the trainer", file=sys.stderr)
            return 1
    rows = [row("publish() of all, a seed", [seed_ms]), row("pull() of all", [whole_ms])]
    rows += [row("publish()", publish), row("pull()", pull), row("prepare()", prepare), row("commit(), the pause", pause)]
    sizes: dict[str, int] = {}
    if options.exchange != 0 and options.quantize is None:
        times, sizes = exchanged(engine, options.exchange, options.rounds)
        rows += [row(name, own) for name, own in times.items()]
    elements = options.tensors * options.side * options.side
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {elements / 1e9:.2f} B bf16 weights, {share:.2%} changed, {size / 1e6:.1f} MB, "
        f"{options.quantize or 'not quantised'}, {options.codec}; the seed {seed.bytes / 1e9:.2f} GB"
    )
    for one in rows:
        print(f"  {one['what']:<24} best {one['best_ms']:8.2f} ms   median {one['median_ms']:8.2f} ms")
    if sizes:
        print("  lists of Exchange:", ", ".join(f"{name} {value:,}" for name, value in sizes.items()))
    return 0


sys.exit(main())
