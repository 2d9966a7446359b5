"""FP8 blocks: the library's kernels on the CPU against torch, and torch on a GPU against reading.

What the library's one pass takes on a GPU, `deltawire bench --device cuda` says (rows "fp8 blocks").

usage: bench/python/fp8_blocks.py [MATRICES]    of 8192 x 8192 BF16 weights on the GPU; 16 unless told
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from deltawire.quantize.kernels import Fp8Blocks
from deltawire.quantize.fp8 import Fp8Block

SCHEME = Fp8Block()


def best_ms(work: Callable[[], Any], repeat: int = 5) -> float:
    """Best of several; of a GPU, until it is done."""
    best = float("inf")
    for _ in range(repeat + 1):  # the first warms up
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, 1e3 * (time.perf_counter() - begin))
    return best


def on_cpu(side: int = 4096) -> None:
    """One matrix, BF16 and F32."""
    for dtype in torch.bfloat16, torch.float32:
        weight = (torch.randn(side, side) * 0.02).to(dtype)
        copy = torch.empty_like(weight)
        out = torch.empty(side, side, dtype=torch.float8_e4m3fn)
        by_torch = best_ms(lambda w=weight: SCHEME.coded(w.bfloat16(), w.abs().amax(), w.shape))
        scales = best_ms(lambda w=weight: Fp8Blocks("w", w, SCHEME, "BF16"))
        blocks = Fp8Blocks("w", weight, SCHEME, "BF16")
        elements = best_ms(lambda b=blocks, o=out: b._core.write_elements(*_writable(o)))
        copying = best_ms(lambda c=copy, w=weight: c.copy_(w))
        reading = best_ms(lambda w=weight: w.view(torch.int64).amax())
        ours = scales + elements
        print(
            f"CPU, {torch.get_num_threads()} threads, {side} x {side} {str(dtype).removeprefix('torch.')}: torch {by_torch:.1f} ms; "
            f"kernels {ours:.1f} ms (scales {scales:.1f}, elements {elements:.1f}), {by_torch / ours:.1f} x faster; "
            f"copying the weights {copying:.1f} ms, reading them (amax) {reading:.1f} ms"
        )


def _writable(tensor: Any) -> Any:
    from deltawire._internal.tensors import writable

    return writable({"elements": tensor})


def on_gpu(count: int) -> None:
    """Quantise, then compare: as torch does it."""
    weights = [torch.randn(8192, 8192, device="cuda").mul_(0.02).bfloat16() for _ in range(count)]
    before = [SCHEME.coded(weight, None, weight.shape)["weight"].tensor.view(torch.uint8) for weight in weights]
    for weight in weights:
        weight.add_(torch.randn_like(weight).mul_(1e-5))

    def quantised(i: int) -> Any:
        return SCHEME.coded(weights[i], None, weights[i].shape)["weight"].tensor.view(torch.uint8)

    def compare() -> None:
        for i in range(count):
            now = quantised(i).flatten()
            now[(now != before[i].flatten()).nonzero()]

    def read() -> None:
        for i in range(count):
            weights[i].view(torch.int64).amax()
            before[i].view(torch.int64).amax()

    quantise, both, reading = best_ms(lambda: [quantised(i) for i in range(count)]), best_ms(compare), best_ms(read)
    print(
        f"GPU, {count * 8192 * 8192 / 1e9:.2f} B bf16 weights, torch {torch.__version__}: quantise {quantise:.2f} ms, quantise and "
        f"compare {both:.2f} ms, {both / reading:.1f} x the time of reading (amax, {reading:.2f} ms)"
    )


if __name__ == "__main__":
    on_cpu()
    if torch.cuda.is_available():
        on_gpu(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
    else:
        print("skipped: no GPU")
