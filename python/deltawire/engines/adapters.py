"""Follows a chain of LoRA adapters: requests for one name use the newest version (docs/lora.md)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from deltawire._internal.chain import Chain
from deltawire._internal.identity import ANY, Identity, Wanted, as_dict
from deltawire._internal.options import CopyOnWrite, Keys
from deltawire._internal.stores import StoreLike
from deltawire.engines.follower import Follower
from deltawire.engines.host import Host, local_identity
from deltawire.engines.settings import Settings
from deltawire.engines.workers import WorkerFile
from deltawire.errors import BaseMismatch, Corruption, Error, InvalidArgument, IoError, Unavailable
from deltawire.live import Proof

log = logging.getLogger("deltawire")

_GRACE_SECONDS = 60.0
"""How long a replaced version stays loaded, for requests that have not reached the engine yet."""
_SWEEP_SECONDS = 5.0


@dataclass
class Loaded:
    """A version that the engine's workers have loaded."""

    version: Identity
    folder: Path
    label: str
    """The engine's name for it: `NAME@VERSION`."""
    handle: Any
    """The engine's handle."""
    replaced: float = 0.0  # time.monotonic()


class AdapterCalls(Protocol):
    """Calls of an engine about adapters."""

    async def load(self, label: str, folder: Path) -> Any:
        """Load on all workers, or on none and raise; other versions are not affected. Returns a handle."""

    async def unload(self, handle: Any) -> None:
        """Unload on all workers."""

    def serve(self, name: str, handle: Any) -> None:
        """Use this version for new requests for `name`."""

    def is_served(self, name: str, handle: Any) -> bool:
        """Whether new requests use it; another caller may have removed it."""

    def running(self) -> dict[str, int]:
        """The number of running requests by label."""


class AdapterFollower(Follower):
    """Loads each version in addition to the served one, and switches the name when all workers have it."""

    def __init__(self, settings: Settings, engine: AdapterCalls, *, alive: Callable[[], bool] = lambda: True) -> None:
        super().__init__(settings, engine, alive=alive)  # type: ignore[arg-type]  # adapters need no pause
        self._adapters = engine
        self._served: Loaded | None = None
        self._leaving: list[Loaded] = []  # replaced, but still loaded
        self._staged: Identity | None = None
        self._suspect: str | None = None  # the message of a failed proof
        self._swept = 0.0
        self._stage = Stage(settings.local)
        self._host = Host(settings, copy_on_write=CopyOnWrite(keep=2))
        self._file: WorkerFile | None = None

    async def update(self, wanted: Wanted = ANY) -> Identity:
        """Go to the local version: stage, verify, load on all workers, switch. One call at a time."""
        async with self.busy:
            held = await self.held()
            if held is None:
                raise Unavailable(self._host.error or f"{self.settings.local}: holds no version yet")
            if not wanted.is_met_by(held):
                raise Unavailable(f"{self.settings.local}: holds {held}, but {wanted} was requested")
            if self._is_current(held) and not self._suspect:
                return held
            self.seen.state = "updating"
            began = time.perf_counter()
            try:
                loaded = await self._load(held)
                try:
                    self._adapters.serve(self.settings.adapter, loaded.handle)
                except Exception:
                    self._leave(loaded)
                    await self._unload(loaded)
                    raise
            finally:
                self.seen.state = "starting" if self.seen.served is None else "serving"
            if self._served is not None:
                self._leave(self._served)
            self._served, suspect, self._suspect = loaded, self._suspect, None
            self._serve(held)
            await self._look_at_workers()
            self.seen.updates += 1
            self.seen.heals += suspect is not None
            self._say_served(held)
            log.info("deltawire: %s is served, loaded in %.1f ms", loaded.label, 1e3 * (time.perf_counter() - began))
            return held

    async def prove(self, mode: str) -> dict[str, Any]:
        """Compare the loaded files with the version."""
        async with self.busy:
            served = self._served
            if served is None:
                raise RuntimeError("no version is served yet")
            settings, wrong, count = self.settings, [], 0
            try:
                store = settings.open_store()
                count = await asyncio.to_thread(prove_adapter, served.folder, store, served.version, settings.trust)
            except (BaseMismatch, Corruption) as error:
                wrong.append(str(error))
                self._suspect = str(error)
                await self._look_at_workers()
            return served.version._asdict() | {"mode": mode, "num_tensors": count, "wrong": wrong, "unproven": []}

    def _say_served(self, served: Identity) -> None:
        """Report the served version for the heartbeat of this host."""
        try:
            name = f"adapter-{socket.gethostname()}-{os.getpid()}-{id(self)}"
            self._file = self._file or WorkerFile(self.settings.local, name)
            self._file.note(served=served)
        except (Error, OSError) as error:
            log.warning("deltawire: %s: %s", self.settings.local, error)

    def close(self) -> None:
        """Release the folders."""
        if self._file is not None:
            self._file.close()
        self._host.close()
        self._stage.close()

    async def _attach(self) -> None:
        await self.update()
        await self.check()

    async def _is_behind(self) -> bool:
        await self._sweep()
        self.seen.held = await self.held()
        return self.seen.held is not None and not self._is_current(self.seen.held)

    def _is_current(self, version: Identity) -> bool:
        last = self._served
        return last is not None and last.version == version and self._adapters.is_served(self.settings.adapter, last.handle)

    async def _load(self, version: Identity) -> Loaded:
        label = f"{self.settings.adapter}@{version.version}"
        folder = await asyncio.to_thread(self._take, version)
        self._staged = version
        try:
            return Loaded(version, folder, label, await self._adapters.load(label, folder))
        except Exception:
            await asyncio.to_thread(self._drop, folder)
            raise

    def _take(self, version: Identity) -> Path:
        source = Path(self.settings.local, f"v{version.version:010d}")
        if not source.is_dir():
            raise Unavailable(self._host.error or f"{source}: no longer exists; there may be a newer version")
        again = f"-{self.seen.heals + 1}" if self._suspect else ""  # a fresh copy of the same version
        folder = self._stage.take(source, f"{version.run[:8]}-v{version.version}{again}")
        try:
            base, wanted = check_adapter(folder).get("base_model_name_or_path"), self.settings.base_model
            if wanted and base != wanted:
                raise InvalidArgument(f"{version} is an adapter for {base}, but this server accepts adapters for {wanted}")
            if self.settings.verify != "off" or self._suspect:
                prove_adapter(folder, self.settings.open_store(), version, self.settings.trust)
        except Exception:
            self._drop(folder)
            raise
        return folder

    def _drop(self, folder: Path) -> None:
        """Remove a folder, unless a loaded version uses it."""
        if all(folder != known.folder for known in self._known):
            self._stage.drop(folder)

    async def _sweep(self) -> None:
        """Unload replaced versions without running requests."""
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS or not self._leaving:
            return
        self._swept = now
        running = self._adapters.running()
        for old in list(self._leaving):
            if now - old.replaced >= _GRACE_SECONDS and not running.get(old.label):
                await self._unload(old)

    @property
    def _known(self) -> list[Loaded]:
        """All loaded versions, the served one last."""
        return self._leaving if self._served is None else [*self._leaving, self._served]

    def _leave(self, old: Loaded) -> None:
        old.replaced = time.monotonic()
        self._leaving.append(old)

    async def _unload(self, old: Loaded) -> None:
        """Unload a version; on failure it is retried later."""
        try:
            await self._adapters.unload(old.handle)
        except Exception as error:
            log.warning("deltawire: cannot unload %s yet: %s", old.label, error)
            return
        self._leaving.remove(old)
        await asyncio.to_thread(self._drop, old.folder)

    async def _held(self) -> Identity | None:
        return await asyncio.to_thread(local_identity, self.settings.local)

    async def _statuses(self) -> list[dict[str, Any]]:
        running = self._adapters.running()
        return [
            {
                "served": as_dict(None if self._served is None else self._served.version),
                "staged": as_dict(self._staged),
                "suspect": self._suspect,
                "host_error": self._host.error,
                "is_blocked": self._host.is_blocked,
                "loaded": {loaded.label: running.get(loaded.label, 0) for loaded in self._known},
            }
        ]


WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_DTYPES = ("F32", "F16", "BF16")


class Stage:
    """A server's copies of versions that running requests may need, since the replica removes its folders.

    Folders of killed servers are removed by the next server.
    """

    def __init__(self, local: str | os.PathLike[str]) -> None:
        root = Path(local, ".deltawire", "adapters")
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.folder, unfinished = root / name, root / f".{name}"  # other servers do not sweep a name with a dot
        unfinished.mkdir()
        self._lock = _locked(unfinished)
        unfinished.rename(self.folder)

    def take(self, source: Path, name: str) -> Path:
        """Copy and check an adapter; `name` is unique per version."""
        target, unfinished = self.folder / name, self.folder / f"{name}.new"
        if target.exists():
            return target
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            if not (source / CONFIG).is_file():
                raise InvalidArgument(f"{source}: no {CONFIG}; the chain does not contain an adapter saved by PEFT")
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
        """Remove a copy."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def check_adapter(folder: Path, source: Path | None = None) -> dict[str, Any]:
    """Check that weights and configuration match; returns the configuration. Errors name `source`, the original folder."""
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
                        raise InvalidArgument(f"{name}: is {found.get_dtype()}; engines load LoRA in {', '.join(_DTYPES)}")
                    pairs.setdefault(module, {})[half] = list(found.get_shape())
    except (SafetensorError, OSError) as error:
        raise Corruption(f"{source / WEIGHTS}: {error}") from error
    if not pairs:
        raise InvalidArgument(f"{source / WEIGHTS}: no LoRA tensors with the names of PEFT")
    for module, halves in pairs.items():
        _check_pair(module, halves, config)
    return config


def half_of(name: str) -> tuple[str, str | None]:
    """The module of an adapter's tensor, and which half it is: "A", "B" or None."""
    for half in "AB":
        module, found, rest = name.rpartition(f".lora_{half}.")
        if found and rest == "weight":
            return module, half
    return name, None


def prove_adapter(folder: Path, store: StoreLike, version: Identity, trust: str | None) -> int:
    """Compare an adapter's tensors with the version by digest; returns their number."""
    tensors = load_file(folder / WEIGHTS)
    chain = Chain(store, keys=Keys(trust=trust) if trust else None)
    if (there := chain[version.version].identity) != version:
        raise BaseMismatch(f"{version} is served, but the store has {there}")
    Proof(tensors).check(chain, version.version)
    return len(tensors)


def _weights_of(folder: Path) -> Path:
    """The file may have another name than PEFT's: a replica keeps the name of the first version."""
    found = sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        raise InvalidArgument(f"{folder}: {len(found)} files of weights; an adapter has one: {WEIGHTS}")
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
        raise InvalidArgument(f"{path}: r={rank!r}: must be a positive integer")
    return config


def _check_pair(module: str, halves: dict[str, list[int]], config: dict[str, Any]) -> None:
    if len(halves) < 2:
        missing = "B" if "A" in halves else "A"
        raise InvalidArgument(f"{module}: has no lora_{missing}")
    a, b = halves["A"], halves["B"]
    if len(a) < 2 or len(b) < 2 or a[0] != b[1]:
        raise InvalidArgument(f"{module}: the ranks of lora_A {a} and lora_B {b} differ")
    if not config.get("rank_pattern") and a[0] != config["r"] and ".experts" not in module:
        raise InvalidArgument(f"{module}: has rank {a[0]}, but r={config['r']} in {CONFIG}")


def _locked(folder: Path) -> IO[bytes]:
    """Lock a folder until the process ends."""
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
