"""Full weights from a trainer to an engine of another process on the same GPU: by CUDA IPC, no byte through the host.

The trainer's process shares its tensors and tells the engine's where they are; that one copies them inside the GPU, and proves
by digest that it holds what the trainer did:

    with dw.torch.share(model) as shared:          # the trainer
        queue.put(shared.handles())                # once for each engine process: pickled, some hundred bytes a tensor
        wait_for_acknowledgement()                 # tensors stay as they are until then

    dw.torch.take(queue.get(), engine_parameters)  # the engine; acknowledges when this has returned

Who unpickles handles runs what their sender wrote: take them from processes of your own only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from deltawire import _core
from deltawire._internal.options import Select
from deltawire._internal.reader import Choice
from deltawire._internal.steps import Closing
from deltawire._internal.tensors import Source
from deltawire.errors import BaseMismatch, InvalidArgument, Unavailable, Unsupported
from deltawire.live import Proof
from deltawire.torch.gpu import count_write
from deltawire.torch.shards import is_sharded
from deltawire.torch.state import chosen_tensors

NO_DELTA = (
    "a colocated delta: trainer and engine are on one GPU, where a full copy runs at the speed of its memory; finding, coding "
    "and applying changes reads as much, and needs a third copy of the weights there. Share them in full, or publish to a store"
)

_DEVICE = 6  # of the arguments of torch's rebuild_cuda_tensor: the GPU's number, in the sender's process


@dataclass(frozen=True)
class Handles:
    """Where the tensors of another process are, and what they hold. Pickles."""

    gpu: str
    """Its UUID: numbers differ between processes."""
    places: tuple[tuple[str, Any], ...]
    """Names, and what torch opens a tensor by."""
    digests: Mapping[str, str]
    """sum128 of each."""


class Shared(Closing):
    """Tensors that other processes may take, kept alive until `close`. Nobody may write to them before."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], gpu: str, digests: Mapping[str, str]) -> None:
        """Use `share`."""
        self._tensors = tensors
        self._gpu = gpu
        self._digests = digests

    def handles(self) -> Handles:
        """For one other process. Each needs its own: torch counts who has opened a tensor."""
        from torch.multiprocessing.reductions import reduce_tensor

        if not self._tensors:
            raise InvalidArgument("these tensors are shared no more: close() was called")
        places = tuple((name, reduce_tensor(tensor)[1]) for name, tensor in self._tensors.items())
        return Handles(self._gpu, places, self._digests)

    def close(self) -> None:
        """All that took them have said so: lets go of the tensors."""
        self._tensors = {}
        if torch.cuda.is_available():
            torch.cuda.ipc_collect()


def share(tensors: Source | torch.nn.Module, *, mode: Literal["full", "delta"] = "full", select: Select | None = None) -> Shared:
    """Give processes on the same GPU a way to tensors of this one: a module, a dict or pairs, all on one GPU.

    Waits until what this stream has been given is done, and adds up the tensors, so that those who take them can prove what
    they got. `InvalidArgument` names a tensor that is not on a GPU; `Unsupported` refuses shards, and a delta, with the reason.
    """
    if mode != "full":
        raise Unsupported(NO_DELTA)
    held = _on_one_gpu(chosen_tensors(tensors, Choice(select or Select())))
    device = next(iter(held.values())).device
    torch.cuda.current_stream(device).synchronize()
    return Shared(held, _uuid(device), _digests(held))


def take(handles: Handles, into: Source | torch.nn.Module, *, select: Select | None = None) -> int:
    """Copy all tensors of another process into those of the same names, inside the GPU; returns the number of bytes.

    Everything is checked before the first write: names, shapes, dtypes, and that all is on the GPU that the others are on.
    Afterwards the copies are proven: `BaseMismatch` names tensors that are not what the sender had, because it wrote to them
    meanwhile. They hold anything then; take them again. `Unavailable`: the sender's memory cannot be opened; it has gone.
    """
    targets = _on_one_gpu(chosen_tensors(into, Choice(select or Select())))
    device = next(iter(targets.values())).device
    if _uuid(device) != handles.gpu:
        raise Unsupported(
            f"the tensors are on GPU {handles.gpu} and are to go to GPU {_uuid(device)}: CUDA IPC is for one GPU; use a carrier"
        )
    _compare(dict(handles.places), targets)
    num_bytes = 0
    with torch.no_grad():
        for name, place in handles.places:  # one at a time: a tensor is let go of when it is copied
            source = _opened(name, place, device)
            targets[name].copy_(source)
            num_bytes += source.nbytes
            del source
    torch.cuda.current_stream(device).synchronize()
    count_write(targets.values())
    found = _digests(targets)
    _refuse([name for name in targets if found[name] != handles.digests[name]], "changed while they were taken", BaseMismatch)
    return num_bytes


def _on_one_gpu(pairs: Iterable[tuple[str, Any]]) -> dict[str, torch.Tensor]:
    held: dict[str, torch.Tensor] = {}
    for name, value in pairs:
        if is_sharded(value):
            raise Unsupported(f'tensor "{name}" is a shard: colocated processes share whole tensors, or the local part of each')
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            where = value.device if isinstance(value, torch.Tensor) else "the host"
            raise InvalidArgument(f'tensor "{name}" is on {where}: CUDA IPC is for tensors on a GPU; publish to a store instead')
        first = next(iter(held.values()), value)
        if value.device != first.device:
            raise InvalidArgument(f'tensor "{name}" is on {value.device}, others on {first.device}: share those of one GPU')
        held[name] = value.detach()
    return held


def _uuid(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)


def _digests(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, str]:
    """On the GPU where the library has CUDA; else tensor by tensor on the host."""
    proof = Proof()
    if _core.has_cuda() and all(tensor.is_contiguous() for tensor in tensors.values()):
        proof.add(tensors)
    else:
        for name, tensor in tensors.items():
            proof.add({name: tensor.contiguous() if _core.has_cuda() else tensor.cpu()})
    return proof.digests


def _compare(places: Mapping[str, Any], targets: Mapping[str, torch.Tensor]) -> None:
    _refuse([name for name in targets if name not in places], "are not among those that are shared")
    _refuse([name for name in places if name not in targets], "are shared, and have no place to go to")
    for name, target in targets.items():
        shape, dtype = tuple(places[name][1]), places[name][5]
        if shape != tuple(target.shape) or dtype != target.dtype:
            raise InvalidArgument(
                f'tensor "{name}": shared as {dtype} {list(shape)}, is to go to {target.dtype} {list(target.shape)}'
            )


def _refuse(names: list[str], why: str, error: type[Exception] = InvalidArgument) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise error("tensors " + ", ".join(f'"{name}"' for name in names[:3]) + f"{more} {why}")


def _opened(name: str, place: Any, device: torch.device) -> torch.Tensor:
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    here = (*place[:_DEVICE], device.index, *place[_DEVICE + 1 :])
    try:
        opened: torch.Tensor = rebuild_cuda_tensor(*here)
    except RuntimeError as error:  # the driver's words
        raise Unavailable(f'tensor "{name}": the memory of the other process cannot be opened: {error}') from error
    return opened.detach()
