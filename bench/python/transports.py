"""How fast versions travel on this host, between processes.

    transports.py notice      from a commit until all readers have been told, over HTTP
    transports.py object      one object to all readers at once: by sendfile, over HTTP, by NIXL (UCX_TLS=tcp for sockets)
    transports.py versions    from publish() until all replicas have verified: folder, HTTP, process group; and all weights by gloo

What is compared takes turns, so that other work on the machine affects all of it. Times are of the host's clock.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import deltawire as dw
from deltawire._internal.stores import store_handle

SPAWN = multiprocessing.get_context("spawn")
OBJECT = "parts/object"


@contextmanager
def processes(number: int, work: Callable[..., None], *arguments: Any) -> Iterator[list[Connection]]:
    """Pipes to processes that run `work(rank, *arguments, pipe)`; ranks begin at 1."""
    started, pipes = [], []
    for rank in range(1, number + 1):
        here, there = SPAWN.Pipe()
        started.append(SPAWN.Process(target=work, args=(rank, *arguments, there), daemon=True))
        started[-1].start()
        pipes.append(here)
    try:
        yield pipes
    finally:
        for process in started:
            process.kill()


def show(what: str, seconds: list[float], more: str = "") -> None:
    times = sorted(1e3 * second for second in seconds)
    print(f"{what:12} median {statistics.median(times):7.1f} ms, {times[0]:.1f} to {times[-1]:.1f}{more}", flush=True)


def wait_for_news(_: int, url: str, pipe: Connection) -> None:
    connection, news = http.client.HTTPConnection(url.removeprefix("http://")), "0"
    while True:
        pipe.send(time.time())
        connection.request("GET", f"/news?after={news}&wait=60")
        news = connection.getresponse().read().decode().split('"')[3]


def notice(options: argparse.Namespace) -> None:
    weights = {"w": np.zeros(1 << 16, np.uint16)}
    publisher, late = dw.Publisher("memory:notice", weights), []
    with dw.serve("memory:notice") as server, processes(options.readers, wait_for_news, server.url) as pipes:
        for version in range(options.rounds + 1):
            publisher.publish()
            committed = time.time()
            told = [pipe.recv() for pipe in pipes]
            if version:
                late.append(max(0.0, max(told) - committed))
            weights["w"][version] += 1
            for pipe in pipes:  # what was told before this commit
                while pipe.poll(0.2):
                    pipe.recv()
    show("notice", late)


def read_object(_: int, url: str, port: int, size_bytes: int, pipe: Connection) -> None:
    out, plain = np.zeros(size_bytes, np.uint8), store_handle(dw.open_store(url))

    def by_sendfile() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            view, at = memoryview(out), 0
            while at < size_bytes:
                at += connection.recv_into(view[at:])

    def by_nixl() -> None:
        reader._seen.clear()
        at = 0
        for piece in reader.pieces(plain, OBJECT, size_bytes):
            out[at : at + len(piece)] = piece
            at += len(piece)

    ways = {"sendfile": by_sendfile, "HTTP": lambda: plain.read_into(OBJECT, out)}
    try:
        from deltawire.nixl import NixlStore

        store = NixlStore(url)
        reader: Any = store._reader
        ways["NIXL"] = by_nixl
    except dw.errors.Error:
        pass
    pipe.send(list(ways))
    while True:
        ways[pipe.recv()]()
        pipe.send(time.time())


def send_files(listener: socket.socket, file: int, size_bytes: int) -> None:
    def send(connection: socket.socket) -> None:
        at = 0
        while at < size_bytes:
            at += os.sendfile(connection.fileno(), file, at, size_bytes - at)
        connection.close()

    while True:
        threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()


def serve_object(_: int, size_bytes: int, folder: str, pipe: Connection) -> None:
    data = np.random.default_rng(0).bytes(size_bytes)
    (path := Path(folder, "object")).write_bytes(data)
    dw.open_store("memory:object").put(OBJECT, data)
    listener, file = socket.create_server(("127.0.0.1", 0)), os.open(path, os.O_RDONLY)
    threading.Thread(target=send_files, args=(listener, file, size_bytes), daemon=True).start()
    try:
        server = dw.serve("memory:object", nixl_bytes=size_bytes)
    except dw.errors.Error:
        server = dw.serve("memory:object")
    pipe.send((server.url, listener.getsockname()[1]))
    pipe.recv()


def read_at_once(options: argparse.Namespace) -> None:
    size_bytes = int(options.megabytes * 1e6)
    with shared_folder() as folder, processes(1, serve_object, size_bytes, str(folder)) as [server]:
        url, port = server.recv()
        with processes(options.readers, read_object, url, port, size_bytes) as readers:
            ways = [reader.recv() for reader in readers][0]
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(options.rounds + 1):
                for way, taken in times.items():
                    begin = time.time()
                    for reader in readers:
                        reader.send(way)
                    taken.append(max(reader.recv() for reader in readers) - begin)
    for way, taken in times.items():
        speed = options.readers * size_bytes / statistics.median(taken[1:]) / 1e9
        show(way, taken[1:], f", {speed:.2f} GB/s to {options.readers} readers; the first {1e3 * taken[0]:.0f} ms")


@contextmanager
def shared_folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="deltawire-bench.", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def weights_of(mebibytes: int) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    number = max(1, mebibytes >> 4)
    return {f"layer.{i}": torch.randn((2048, 4096), generator=generator).mul_(0.02).bfloat16() for i in range(number)}


def step(weights: dict[str, Any], density: float, seed: int) -> None:
    """The smallest weights change most often, as with Adam."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for tensor in weights.values():
        likely = 1 / tensor.float().abs().clamp_(min=1e-3)
        likely *= density / likely.mean()
        tensor.view(torch.int16).bitwise_xor_(torch.rand(tensor.shape, generator=generator) < likely)


def place(port: int, rank: int, size: int) -> Any:
    from deltawire.torch import Rendezvous

    return Rendezvous(master_address="127.0.0.1", master_port=port, world_size=size, rank=rank)


def join_gloo(port: int, rank: int, size: int) -> Any:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    return dist


def broadcast_all(dist: Any, weights: dict[str, Any]) -> None:
    import torch

    for tensor in weights.values():
        dist.broadcast(tensor.view(torch.uint8), 0)


def follow(rank: int, way: str, where: Any, size: int, mebibytes: int, pipe: Connection) -> None:
    import torch
    from deltawire.torch import Broadcast

    torch.set_num_threads(1)
    mine = {name: torch.zeros_like(tensor) for name, tensor in weights_of(mebibytes).items()}
    if way == "all weights":
        dist = join_gloo(where, rank, size)
        while True:
            broadcast_all(dist, mine)
            pipe.send(time.time())
    store, broadcast = where, None
    if way == "group":
        broadcast = Broadcast(place(where[1], rank, size), where[0])
        store = broadcast.store
    for _ in dw.TensorReplica(store, mine).follow(interval=30):
        pipe.send(time.time())


def versions(options: argparse.Namespace) -> None:
    import torch
    from deltawire.torch import Broadcast

    torch.set_num_threads(1)
    weights, size = weights_of(options.mebibytes), options.readers + 1
    for way in ("folder", "HTTP", "group", "all weights"):
        with shared_folder() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            port, store, server, broadcast = free.getsockname()[1], str(folder), None, None
            free.close()
            where: Any = store
            if way == "HTTP":
                store = "memory:versions"
                server = dw.serve(store)
                where = server.url
            elif way != "folder":
                where = (store, port) if way == "group" else port
            with processes(options.readers, follow, way, where, size, options.mebibytes) as pipes:
                if way == "all weights":
                    dist = join_gloo(port, 0, size)
                    send = lambda: broadcast_all(dist, weights)  # noqa: E731
                else:
                    if way == "group":
                        broadcast = Broadcast(place(port, 0, size), store)
                        broadcast.wait()
                        store = broadcast.store
                    send = dw.Publisher(store, weights, anchors=dw.Anchors(every=0, by_bytes=False), codec=options.codec).publish
                sent, held = [], []
                for version in range(options.rounds + 1):
                    begin = time.time()
                    send()
                    sent.append(time.time() - begin)
                    held.append(max(pipe.recv() for pipe in pipes) - begin)
                    step(weights, options.density, version)
            for end in (broadcast, server):
                if end is not None:
                    end.close()
        show(way, held[1:], f"; publish() {1e3 * statistics.median(sent[1:]):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"notice": notice, "object": read_at_once, "versions": versions}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--readers", type=int, default=0, help="4; versions: 2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=float, default=80, help="of the object")
    parser.add_argument("--mebibytes", type=int, default=512, help="of the model")
    parser.add_argument("--density", type=float, default=0.012)
    parser.add_argument("--codec", default="auto", help="of versions")
    options = parser.parse_args()
    options.readers = options.readers or (2 if options.part == "versions" else 4)
    parts[options.part](options)


if __name__ == "__main__":
    main()
