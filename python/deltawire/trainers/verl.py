"""verl: a checkpoint engine. The trainer publishes versions to a store, and rollout hosts pull the changes.

    actor_rollout_ref.rollout.checkpoint_engine:
      backend: deltawire
      custom_backend_module: deltawire.trainers.verl
      engine_kwargs:
        deltawire: {store: "s3://bucket/run-7", local: /nvme/replica, dtype: bfloat16}

See docs/verl.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from deltawire._internal.chain import Chain
from deltawire._internal.identity import Identity
from deltawire._internal.options import Accept, Keys
from deltawire._internal.publisher import Publisher
from deltawire._internal.replica import Replica
from deltawire._internal.stores import Server, Store, open_store, serve
from deltawire.errors import BaseMismatch, Conflict, InvalidArgument, NotFound, Unavailable, missing_extra
from deltawire.live import Proof
from deltawire.reports import PublishReport

try:
    import torch
    from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
except ImportError as error:
    raise missing_extra(error, "verl") from None

from deltawire.engines.checkpoint import LocalCheckpoint
from deltawire.engines.host import local_identity
from deltawire.engines.settings import token_of

log = logging.getLogger("deltawire")

T = TypeVar("T")
Yields = Literal["all", "changed"]

_LOOK_SECONDS = 0.02, 0.5  # between queries of the store: first, and maximum


@CheckpointEngineRegistry.register("deltawire")
class DeltawireCheckpointEngine(CheckpointEngine):
    """Each sync is a version of a chain, which rollout workers pull, verify and load into their engine.

    Trainer and rollout share only the store, without a process group. With `serve`, actor rank 0 serves the store to the
    rollout hosts. Actor rank 0 publishes; the other ranks only take part in gathering its weights. All workers of a host share
    one local checkpoint, so each host fetches a version once.
    """

    wire_format = "named_tensors"

    def __init__(
        self,
        bucket_size: int = 0,
        is_master: bool = False,
        *,
        local: str,
        store: str = "",
        serve: str = "",
        token: str = "",
        token_file: str = "",
        yields: Yields = "all",
        dtype: str | None = None,
        timeout: float = 600.0,
        trust: str | None = None,
        publisher: Mapping[str, Any] | None = None,
    ) -> None:
        """Keyword arguments come from `engine_kwargs.deltawire`.

        `store`: the chain. `local`: a folder on each rollout host for its checkpoint. `serve` ("HOST:PORT", port 0: any): rank 0
        serves the chain over HTTP; without a `store` the chain is in its memory. Beyond loopback this needs a `token`, or a
        `token_file` on all hosts.

        `yields="changed"`: the engine gets only the tensors that changed since the last version; the first time all. `dtype`:
        published dtype of floating-point weights, such as "bfloat16" for float32 masters. `timeout`: seconds to wait. `trust`:
        file of public keys, on the rollout side. `publisher`: further options of `Publisher`. `bucket_size` is not used.
        """
        if yields not in get_args(Yields):
            raise InvalidArgument(f"deltawire: yields={yields!r}: must be one of {', '.join(get_args(Yields))}")
        if not local or not (store or serve):
            raise InvalidArgument("deltawire: engine_kwargs.deltawire needs `local`, and `store` or `serve`")
        if not timeout > 0:
            raise InvalidArgument(f"deltawire: timeout={timeout}: must be more than 0 seconds")
        self.is_master = is_master
        self._address, self._token = serve, token_of(token, token_file)
        self._server: Server | None = None
        self._url = ""  # of rank 0's server
        own = store or f"memory:{uuid.uuid4().hex}"
        self._store: Store | None = open_store(own) if is_master or not serve else None
        self._local, self._yields, self._timeout = Path(local), yields, timeout
        self._accept = Accept(trust=trust)
        self._options = {"dtype": dtype, **(publisher or {})}
        self._publisher: Publisher | None = None
        self._sync = ""
        self._held: Identity | None = None  # the last version that the engine got completely
        self._damaged = False  # the local checkpoint failed verification: the next pull verifies and repairs it

    # ---- verl calls: prepare, build_topology, init_process_group, send and receive concurrently, finalize

    def prepare(self) -> dict[str, Any]:
        """On rank 0 of the trainer: a name for this sync, and the URL of its server."""
        if not self.is_master:
            return {}
        if self._address and self._server is None:
            self._server = serve(self._the_store, self._address, token=self._token)
        return {"sync": uuid.uuid4().hex, "url": self._server.url if self._server else ""}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Pass the name of the sync and the URL to all workers."""
        if "sync" not in metadata[0]:
            raise InvalidArgument("deltawire: the first worker of the actor group is not rank 0, verl's master")
        said = {name: metadata[0][name] for name in ("sync", "url")}
        actors, rollout = (
            {name: [value] * size for name, value in said.items()} for size in (actor_wg_world_size, rollout_world_size)
        )
        return actors, rollout

    def init_process_group(self, sync: str, url: str = "") -> None:
        """Remember the name of the sync and the URL; there is no process group."""
        self._sync = sync
        if url != self._url and not self.is_master:  # the first sync, or a restarted trainer
            self._store = open_store(url, token=self._token)
        self._url = url

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Publish a version, and note its identity in the store. Every rank calls it; rank 0 first copies weights to the host.

        Returns metrics for verl. If publishing fails, the receivers raise the error too.
        """
        if not self.is_master:
            for _ in weights:  # gathering each tensor is a collective
                pass
            return {}
        try:
            tensors = [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in weights]
            version = await asyncio.to_thread(self._publish, tensors)
        except BaseException as error:
            self._say({"error": str(error) or type(error).__name__})
            raise
        self._say(version.identity._asdict())
        log.info("deltawire: step %s is %r", global_steps, version)
        return {
            "checkpoint_engine/changed_ratio": 1.0 if version.full and version.committed else version.density,
            "checkpoint_engine/payload_mbytes": version.bytes / 1e6,
            "checkpoint_engine/version": version.number,
        }

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Yield names and tensors of the version being sent, all or the changed ones.

        `BaseMismatch` after the last one if a tensor does not match the digests of the version; the next sync then repairs the
        folder and yields all tensors. A folder of another run is refused at the start.
        """
        held, self._held = self._held, None
        store = self._the_store
        version = await self._word(store)
        await self._pull(store, version)
        chain = Chain(store, keys=Keys(trust=self._accept.trust))
        changed = None if held is None or self._yields == "all" else _changed(chain, held, version)
        proof, device = Proof(), _device()
        for name, tensor in LocalCheckpoint(self._local).items():
            proof.add({name: tensor})
            if changed is None or name in changed:
                yield name, tensor.to(device)
        try:
            proof.check(chain, version.version)
        except BaseMismatch:
            self._damaged = True
            raise
        self._held = version
        log.info("deltawire: step %s is %s", global_steps, version)

    def finalize(self) -> None:
        """Remove the note of the sync; all workers are done."""
        if self.is_master and self._sync and self._store is not None:
            self._store.remove(_note_name(self._sync))
        self._sync = ""

    # ---- implementation

    @property
    def _the_store(self) -> Store:
        if self._store is None:
            raise InvalidArgument("deltawire: call init_process_group() first; it sets the URL of the chain")
        return self._store

    def _publish(self, tensors: list[tuple[str, torch.Tensor]]) -> PublishReport:
        if self._publisher is None:
            self._publisher = Publisher(self._the_store, **self._options)
        return self._publisher.publish(tensors)

    def _say(self, word: dict[str, Any]) -> None:
        self._the_store.put(_note_name(self._sync), json.dumps(word).encode())

    async def _word(self, store: Store) -> Identity:
        """Wait for the trainer's note: the version of this sync."""

        def look() -> dict[str, Any] | None:
            try:
                said: dict[str, Any] = json.loads(store.get(_note_name(self._sync)))
            except NotFound:
                return None
            return said

        said = await _until(look, self._timeout, f"{store.url}: the trainer did not publish a version for this sync")
        if "error" in said:
            raise Unavailable(f"{store.url}: the trainer failed to publish: {said['error']}")
        return Identity(str(said["run"]), int(said["version"]), str(said["manifest"]))

    async def _pull(self, store: Store, version: Identity) -> None:
        """Pull the version into the host's checkpoint, or wait until another worker of this host has."""
        accept = Accept(trust=self._accept.trust, run=version.run)

        def pull() -> bool | None:
            if not self._damaged and local_identity(self._local) == version:
                return True
            try:
                with Replica(store, self._local, accept=accept, verify_all=self._damaged) as replica:
                    replica.pull(version.version)
            except Conflict:  # another worker of this host holds the lock
                return None
            self._damaged = False
            return local_identity(self._local) == version or None

        await _until(pull, self._timeout, f"{self._local}: another process holds the folder and did not pull {version}")


async def _until(look: Callable[[], T | None], timeout: float, why: str) -> T:
    """Poll `look` until it returns a value; `Unavailable` after `timeout` seconds. Blocks no thread between polls."""
    end = time.monotonic() + timeout
    pause, longest = _LOOK_SECONDS
    while (found := await asyncio.to_thread(look)) is None:
        if time.monotonic() >= end:
            raise Unavailable(f"{why} within {timeout:g} s")
        await asyncio.sleep(pause)
        pause = min(longest, 1.5 * pause)
    return found


def _changed(chain: Chain, held: Identity, version: Identity) -> set[str] | None:
    """Tensors that differ between two versions; None: unknown."""
    if held.run != version.run or held.version > version.version:
        return None
    names: set[str] = set()
    for number in range(held.version + 1, version.version + 1):
        if chain[number].full:
            return None
        names.update(chain.changes(number))
    return names


def _device() -> torch.device:
    """The device where verl's adapters expect tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _note_name(sync: str) -> str:
    return f"verl/{sync}.json"
