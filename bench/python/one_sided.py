"""One object out of another process's memory: by NIXL, and over loopback HTTP. `UCX_TLS=tcp` for sockets.

PYTHONPATH=build/python build/venv/bin/python bench/python/one_sided.py [MEGABYTES]
"""

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import deltawire as dw
from deltawire._internal.stores import store_handle
from deltawire.nixl import NixlStore

READS = 7


def serve(size_bytes: int) -> None:
    dw.open_store("memory:bench").put("parts/object", np.random.default_rng(0).bytes(size_bytes))
    with dw.serve("memory:bench", nixl_bytes=size_bytes) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def measure(size_bytes: int, url: str) -> None:
    store, out = NixlStore(url), np.zeros(size_bytes, np.uint8)
    reader, plain = store._reader, store_handle(dw.open_store(url))
    assert reader is not None

    def by_nixl() -> None:
        reader._seen.clear()
        at = 0
        for piece in reader.pieces(plain, "parts/object", size_bytes):
            out[at : at + len(piece)] = piece
            at += len(piece)
        assert at == size_bytes

    def by_http() -> None:
        plain.read_into("parts/object", out)

    def best(read: Callable[[], None]) -> str:
        times = []
        for _ in range(READS):
            begin = time.perf_counter()
            read()
            times.append(time.perf_counter() - begin)
        later = sorted(times[1:])
        return f"first {1e3 * times[0]:6.1f} ms, then {1e3 * later[0]:6.1f} to {1e3 * later[-1]:6.1f} ms, {size_bytes / later[0] / 1e9:.2f} GB/s"

    print(f"NIXL  {best(by_nixl)}\nHTTP  {best(by_http)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    else:
        size_bytes = int(float(sys.argv[1] if sys.argv[1:] else "80") * 1e6)
        command = [sys.executable, __file__, "serve", str(size_bytes)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            measure(size_bytes, server.stdout.readline().strip())
