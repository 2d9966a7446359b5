"""Ranks as threads, or as processes that are forked from one that has torch already, as importing it takes seconds."""

import multiprocessing
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from typing import Any

_context = multiprocessing.get_context("forkserver")


def preload(*modules: str) -> None:
    """What ranks import before they are forked; before the first of them."""
    _context.set_forkserver_preload(["deltawire.torch.broadcast", *modules])


preload()


class Rank:
    """The argument of a rank's function: its number, and messages to the others before there is a group."""

    def __init__(self, rank: int, size: int, pipe: Connection) -> None:
        self.rank, self.size, self._pipe = rank, size, pipe

    def told(self, words: Any = None) -> Any:
        """Broadcast from rank 0; all ranks call it."""
        if self.rank == 0:
            self._pipe.send(("told", words))
        return self._pipe.recv()

    def meet(self) -> None:
        """A barrier of all ranks."""
        self._pipe.send(("came", None))
        self._pipe.recv()


def run_ranks(size: int, call: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of `call(rank, *args)`; None for a rank that died. Exceptions are raised here."""
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_run, args=(rank, size, theirs, call, args), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        results, num_came = [_Pending] * size, 0
        while _Pending in results:
            pending = [pipe for pipe, result in zip(pipes, results, strict=True) if result is _Pending]
            heard = multiprocessing.connection.wait(pending, 240)
            assert heard, f"ranks {[pipes.index(pipe) for pipe in pending]} say nothing"
            for ready in heard:
                rank = pipes.index(ready)
                try:
                    kind, words = ready.recv()
                except EOFError:
                    kind, words = "done", None
                if kind == "told":
                    for pipe in pipes:
                        pipe.send(words)
                elif kind == "came":
                    num_came += 1
                    for pipe in pipes if num_came % size == 0 else []:
                        pipe.send(None)
                elif kind == "raised":
                    raise AssertionError(f"rank {rank}:\n{words}")
                else:
                    results[rank] = words
        return results
    finally:
        for process in processes:
            process.kill()
            process.join()


class _Pending:
    pass


def _run(rank: int, size: int, pipe: Connection, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pipe.send(("done", call(Rank(rank, size, pipe), *args)))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


def error_of(call: Callable[[], Any]) -> str:
    """The message of the exception that it raises."""
    import deltawire as dw

    try:
        result = call()
    except dw.Error as error:
        return f"{type(error).__name__}: {error.message}"
    raise AssertionError(f"no failure, but {result}")


def run_script(size: int, script: str | Path, output: Path, *arguments: str | Path) -> tuple[bool, str]:
    """Run a script in ranks with the environment that torchrun gives them; return whether all succeeded, and what they printed.

    It may import modules beside this file.
    """
    try:
        run_ranks(size, _run_script, Path(__file__).parent / script, output, [str(one) for one in arguments])
        failure = None
    except AssertionError as error:
        failure = str(error)
    return failure is None, output.read_text() + (failure or "")


def _run_script(rank: Rank, script: Path, output: Path, arguments: list[str]) -> None:
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import torch

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = rank.told(free.getsockname()[1])
    numbers = {"RANK": rank.rank, "LOCAL_RANK": rank.rank, "WORLD_SIZE": rank.size, "LOCAL_WORLD_SIZE": rank.size}
    os.environ |= {name: str(number) for name, number in numbers.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(Path(__file__).parent))
    runpy.run_path(str(script), run_name="__main__")
    sys.stdout.flush()


@dataclass(frozen=True)
class ThreadRank:
    """One rank."""

    rank: int
    size: int
    given: list[bytes]
    barrier: Barrier

    def all_gather(self, data: bytes) -> list[bytes]:
        self.given[self.rank] = data
        self.barrier.wait(timeout=240)
        every = list(self.given)
        self.barrier.wait(timeout=240)
        return every


def thread_ranks(size: int) -> list[ThreadRank]:
    """A group."""
    given, barrier = [b""] * size, Barrier(size)
    return [ThreadRank(rank, size, given, barrier) for rank in range(size)]
