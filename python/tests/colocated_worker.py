"""An engine's process beside a trainer's: takes the handles in a file, prints what came of it. See test_colocated.py."""

import pickle
import sys

import torch

import deltawire as dw
from deltawire.torch.colocated import _digests


def main() -> None:
    path, way = sys.argv[1:]
    with open(path, "rb") as file:
        handles = pickle.load(file)
    into = {name: torch.zeros(tuple(place[1]), dtype=place[5], device="cuda") for name, place in handles.places}
    if way == "other-shape":
        name = next(iter(into))
        into[name] = into[name].flatten()[:1].clone()
    elif way == "other-names":
        into["another"] = torch.zeros(1, device="cuda")
    before = torch.cuda.memory_allocated()
    try:
        num_bytes = dw.torch.take(handles, into)
    except dw.Error as error:
        untouched = all(not tensor.any() for tensor in into.values())
        print(f"{type(error).__name__}: {error.message} (untouched: {untouched})")
        return
    print(f"took {num_bytes} bytes, {torch.cuda.max_memory_allocated() - before} more at most")
    for name, digest in _digests(into).items():
        print(name, digest)


main()
