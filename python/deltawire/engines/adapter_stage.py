"""An adapter's versions on their way to an engine: each in a folder of its own, which nobody changes any more."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from deltawire.chain import Chain
from deltawire.errors import BaseMismatch, Corruption, InvalidArgument, IoError
from deltawire.identity import Identity
from deltawire.options import Keys
from deltawire.proof import Proof
from deltawire.stores import StoreLike

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_DTYPES = ("F32", "F16", "BF16")


class Stage:
    """Where one server keeps the versions that it serves, or served a moment ago: requests that run may need them again.

    The replica's own folders go when newer ones come. What a server that was killed has left is removed by the next one.
    """

    def __init__(self, local: str | os.PathLike[str]) -> None:
        root = Path(local, ".deltawire", "adapters")
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.folder, unfinished = root / name, root / f".{name}"  # another server sweeps only what has its name
        unfinished.mkdir()
        self._lock = _locked(unfinished)
        unfinished.rename(self.folder)

    def take(self, source: Path, name: str) -> Path:
        """A copy of an adapter, checked as far as files can say; `name` is new with each version."""
        target, unfinished = self.folder / name, self.folder / f"{name}.new"
        if target.exists():
            return target
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            if not (source / CONFIG).is_file():
                raise InvalidArgument(f"{source}: has no {CONFIG}: the chain is not one of an adapter, as PEFT saves it")
            shutil.copyfile(source / CONFIG, unfinished / CONFIG)
            shutil.copyfile(_weights_of(source), unfinished / WEIGHTS)
            check_adapter(unfinished, source)
            unfinished.rename(target)
        except OSError as error:
            raise IoError(f"{source}: {error}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return target

    def drop(self, folder: Path) -> None:
        """Nobody needs it any more."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def check_adapter(folder: Path, source: Path | None = None) -> dict[str, Any]:
    """The configuration of an adapter whose files go together: pairs of matrices, of the rank that it says.

    `source`: where it was copied from. Errors name that, as the copy goes.
    """
    source = source or folder
    config = _config_of(folder, source)
    pairs: dict[str, dict[str, list[int]]] = {}
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                module, half = half_of(name)
                if half is not None:
                    found = file.get_slice(name)
                    if found.get_dtype() not in _DTYPES:
                        raise InvalidArgument(f"{name}: is {found.get_dtype()}, and engines load LoRA in {', '.join(_DTYPES)}")
                    pairs.setdefault(module, {})[half] = list(found.get_shape())
    except (SafetensorError, OSError) as error:
        raise Corruption(f"{source / WEIGHTS}: {error}") from error
    if not pairs:
        raise InvalidArgument(f"{source / WEIGHTS}: has no tensor of LoRA: its names are not those that PEFT saves")
    for module, halves in pairs.items():
        _check_pair(module, halves, config)
    return config


def half_of(name: str) -> tuple[str, str | None]:
    """The module that a tensor of an adapter is for, and which half it is: A or B; None: neither."""
    for half in "AB":
        module, found, rest = name.rpartition(f".lora_{half}.")
        if found and rest == "weight":
            return module, half
    return name, None


def prove_adapter(folder: Path, store: StoreLike, version: Identity, trust: str | None) -> int:
    """Its tensors must be the version's, by digest. Gives their number."""
    tensors = load_file(folder / WEIGHTS)
    chain = Chain(store, keys=Keys(trust=trust) if trust else None)
    if (there := chain[version.version].identity) != version:
        raise BaseMismatch(f"{version} is served, and the store has {there} under that number")
    Proof(tensors).check(chain, version.version)
    return len(tensors)


def _weights_of(folder: Path) -> Path:
    """A replica keeps the name that its file had first: a chain that began with a model has another than PEFT's."""
    found = sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        raise InvalidArgument(f"{folder}: has {len(found)} files of weights, and an adapter has one: {WEIGHTS}")
    return found[0]


def _config_of(folder: Path, source: Path) -> dict[str, Any]:
    path = source / CONFIG
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Corruption(f"{path}: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type", "LORA") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
        raise InvalidArgument(f"{path}: peft_type is {kind}; engines load LORA")
    rank = config.get("r")
    if not isinstance(rank, int) or rank < 1:
        raise InvalidArgument(f"{path}: r is {rank!r}, and must be a rank")
    return config


def _check_pair(module: str, halves: dict[str, list[int]], config: dict[str, Any]) -> None:
    if len(halves) < 2:
        missing = "B" if "A" in halves else "A"
        raise InvalidArgument(f"{module}: has no lora_{missing}")
    a, b = halves["A"], halves["B"]
    if len(a) < 2 or len(b) < 2 or a[0] != b[1]:
        raise InvalidArgument(f"{module}: lora_A is {a} and lora_B {b}: their ranks differ")
    if not config.get("rank_pattern") and a[0] != config["r"] and ".experts" not in module:
        raise InvalidArgument(f"{module}: has rank {a[0]}, and {CONFIG} says r = {config['r']}")


def _locked(folder: Path) -> IO[bytes]:
    """Held for as long as the process lives."""
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock


def _sweep(root: Path) -> None:
    for folder in root.iterdir():
        with suppress(OSError):
            if not folder.name.startswith(".") and (folder / "lock").exists():
                _locked(folder).close()
                shutil.rmtree(folder, ignore_errors=True)
