"""verl: a checkpoint engine whose wire is a store. The trainer publishes versions, rollout hosts pull what changed.

    actor_rollout_ref.rollout.checkpoint_engine:
      backend: deltawire
      custom_backend_module: deltawire.trainers.verl
      engine_kwargs:
        deltawire: {store: "s3://bucket/run-7", local: /nvme/replica, dtype: bfloat16}

docs/verl.md has the whole way, from the install to a served version.
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
from deltawire.engines.settings import secret_of

log = logging.getLogger("deltawire")

T = TypeVar("T")
Yields = Literal["all", "changed"]

_LOOK_SECONDS = 0.02, 0.5  # between looks into the store, first and at most


@CheckpointEngineRegistry.register("deltawire")
class DeltawireCheckpointEngine(CheckpointEngine):
    """Each sync is a version of a chain, which rollout workers pull, prove and hand to their engine.

    Trainer and rollout share the store alone: no process group is made. With `serve`, actor rank 0 serves the store to the
    rollout hosts, each of which fetches a version once. Actor rank 0 publishes; the other ranks take part in what its weights
    need. All workers of a host share one local checkpoint.
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
        secret: str = "",
        secret_file: str = "",
        yields: Yields = "all",
        dtype: str | None = None,
        timeout: float = 600.0,
        trust: str | None = None,
        publisher: Mapping[str, Any] | None = None,
    ) -> None:
        """What verl hands over first; then `engine_kwargs.deltawire`.

        `store` is where the chain is, `local` a folder on each rollout host for its checkpoint. With `serve` ("HOST:PORT",
        port 0: any) rank 0 serves the chain over HTTP from there, and `store` may be left out: the chain is in its memory
        then. Elsewhere than on loopback that needs a `secret`, or a `secret_file` that all hosts have. With
        `yields="changed"` an engine gets the tensors that changed since the version before, for engines that load some
        tensors as well as all; the first time it gets all. `dtype` is what floating point weights are published as: "bfloat16"
        for masters in float32. Nothing waits longer than `timeout` seconds. `trust` is a file of public keys, of the rollout
        side; `publisher` has further options of `deltawire.Publisher`. Nothing is cut into buckets here: `bucket_size` is
        taken and not used.
        """
        if yields not in get_args(Yields):
            raise InvalidArgument(f"deltawire: yields={yields!r}: must be one of {', '.join(get_args(Yields))}")
        if not local or not (store or serve):
            raise InvalidArgument("deltawire: engine_kwargs.deltawire needs `local`, and `store` or `serve`")
        if not timeout > 0:
            raise InvalidArgument(f"deltawire: timeout is {timeout}, and must be seconds, more than 0")
        self.is_master = is_master
        self._address, self._secret = serve, secret_of(secret, secret_file)
        self._server: Server | None = None
        self._url = ""  # that rank 0 serves
        own = store or f"memory:{uuid.uuid4().hex}"
        self._store: Store | None = open_store(own) if is_master or not serve else None
        self._local, self._yields, self._timeout = Path(local), yields, timeout
        self._accept = Accept(trust=trust)
        self._options = {"dtype": dtype, **(publisher or {})}
        self._publisher: Publisher | None = None
        self._sync = ""
        self._held: Identity | None = None  # what this worker's engine was given, whole
        self._damaged = False  # the local checkpoint is not what it says: it is proven before it is read again

    # ---- verl's order: prepare, build_topology, init_process_group, send and receive at once, finalize

    def prepare(self) -> dict[str, Any]:
        """A name for this sync, and where versions are sent from, by rank 0 of the trainer."""
        if not self.is_master:
            return {}
        if self._address and self._server is None:
            self._server = serve(self._the_store, self._address, token=self._secret)
        return {"sync": uuid.uuid4().hex, "url": self._server.url if self._server else ""}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Everyone learns the name of the sync, and where the chain is served."""
        if "sync" not in metadata[0]:
            raise InvalidArgument("deltawire: the first worker of the actor group is not rank 0, verl's master")
        said = {name: metadata[0][name] for name in ("sync", "url")}
        actors, rollout = (
            {name: [value] * size for name, value in said.items()} for size in (actor_wg_world_size, rollout_world_size)
        )
        return actors, rollout

    def init_process_group(self, sync: str, url: str = "") -> None:
        """There is no group of verl's: remember the sync's name, and where rank 0 serves."""
        self._sync = sync
        if url != self._url and not self.is_master:  # the first sync, or a trainer that began anew
            self._store = open_store(url, secret=self._secret)
        self._url = url

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Publish a version, and say which in the store. Every rank takes part; what rank 0 publishes is on the host before.

        Returns verl's metrics of the sync. What fails here is raised by the receivers too.
        """
        if not self.is_master:
            for _ in weights:  # a collective, each of them
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
        """Names and tensors of the version that is sent now, all or those that changed, proven by the chain's digests.

        `BaseMismatch` after the last of them if one is not what the trainer published; the next sync then repairs the folder
        and gives all of them. A folder of another run is refused before the first.
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
        """The sync is over everywhere: what was said of it goes."""
        if self.is_master and self._sync and self._store is not None:
            self._store.remove(_note_name(self._sync))
        self._sync = ""

    # ---- what they are made of

    @property
    def _the_store(self) -> Store:
        if self._store is None:
            raise InvalidArgument("deltawire: call init_process_group() first: it says where the chain is served")
        return self._store

    def _publish(self, tensors: list[tuple[str, torch.Tensor]]) -> PublishReport:
        if self._publisher is None:
            self._publisher = Publisher(self._the_store, **self._options)
        return self._publisher.publish(tensors)

    def _say(self, word: dict[str, Any]) -> None:
        self._the_store.put(_note_name(self._sync), json.dumps(word).encode())

    async def _word(self, store: Store) -> Identity:
        """What the trainer said of this sync: which version it is."""

        def look() -> dict[str, Any] | None:
            try:
                said: dict[str, Any] = json.loads(store.get(_note_name(self._sync)))
            except NotFound:
                return None
            return said

        said = await _until(look, self._timeout, f"{store.url}: the trainer published no version of this sync")
        if "error" in said:
            raise Unavailable(f"{store.url}: the trainer did not publish: {said['error']}")
        return Identity(str(said["run"]), int(said["version"]), str(said["manifest"]))

    async def _pull(self, store: Store, version: Identity) -> None:
        """Bring the host's checkpoint there, or wait until another worker of this host has."""
        accept = Accept(trust=self._accept.trust, run=version.run)

        def pull() -> bool | None:
            if not self._damaged and local_identity(self._local) == version:
                return True
            try:
                with Replica(store, self._local, accept=accept, verify_all=self._damaged) as replica:
                    replica.pull(version.version)
            except Conflict:  # the folder's lock: another worker of this host is at it
                return None
            self._damaged = False
            return local_identity(self._local) == version or None

        await _until(pull, self._timeout, f"{self._local}: {version} did not come; another process holds the folder")


async def _until(look: Callable[[], T | None], timeout: float, why: str) -> T:
    """What `look` gives, as soon as it does. `Unavailable` after so many seconds. No thread waits meanwhile."""
    end = time.monotonic() + timeout
    pause, longest = _LOOK_SECONDS
    while (found := await asyncio.to_thread(look)) is None:
        if time.monotonic() >= end:
            raise Unavailable(f"{why} in {timeout:g} s")
        await asyncio.sleep(pause)
        pause = min(longest, 1.5 * pause)
    return found


def _changed(chain: Chain, held: Identity, version: Identity) -> set[str] | None:
    """Tensors that differ between two versions; None: any may."""
    if held.run != version.run or held.version > version.version:
        return None
    names: set[str] = set()
    for number in range(held.version + 1, version.version + 1):
        if chain[number].full:
            return None
        names.update(chain.changes(number))
    return names


def _device() -> torch.device:
    """Where verl's adapters want tensors: they hand a GPU's memory on to their engine."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _note_name(sync: str) -> str:
    return f"verl/{sync}.json"
