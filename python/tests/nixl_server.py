"""A trainer process that serves a store with NIXL and executes each line of its input."""

import sys

import numpy as np

import deltawire as dw
from deltawire._internal.stores import store_handle

store, size_bytes = sys.argv[1], int(sys.argv[2])
weights = {"w": np.random.default_rng(0).standard_normal((1024, 1024), np.float32)}


def publish() -> int:
    """Change a quarter of the weights; the other process changes its own in the same way."""
    weights["w"][::4] += 1
    return publisher.publish().number


def reuse() -> None:
    """Overwrite the memory of earlier objects with a later one."""
    dw.open_store(store).put("parts/later", bytes(size_bytes))
    arena.where(store_handle(store), "parts/later")


if __name__ == "__main__":
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    with dw.serve(store, nixl_bytes=size_bytes) as server:
        arena = server._arena
        print(server.url, flush=True)
        for line in sys.stdin:
            exec(line)
            print("done", flush=True)
