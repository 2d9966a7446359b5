"""The trainer's side of vLLM's weight transfer: `send_weights()` publishes a version, and tells the server which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from deltawire._internal.identity import Identity
from deltawire._internal.publisher import Publisher
from deltawire.engines.transport import serve
from deltawire.errors import InvalidArgument
from deltawire.ship import Shipper


@dataclass
class DeltawireTrainerInit(TrainerInitInfo):
    """Where the chain is, and where the engine's host keeps its copy of the checkpoint.

    With another `transport` than "store" versions go straight to the engines' hosts, which join at `master_address`. `store` is
    the trainer's own then; empty: its memory.
    """

    backend: ClassVar[str] = "deltawire"

    store: str
    local: str
    transport: str = "store"
    master_address: str = "127.0.0.1"
    master_port: int = 0  # any
    secret: str = field(default="", repr=False)
    trust: str | None = None
    verify: str = "all"
    timeout: float = 600.0
    publisher: dict[str, Any] = field(default_factory=dict)  # further options of deltawire.Publisher


class DeltawireTrainer(TrainerWeightTransferEngine[DeltawireTrainerInit]):
    """Publishes what a `WeightSource` gives. Rank 0 alone does: other ranks take part in the source's collectives."""

    init_info_cls = DeltawireTrainerInit

    def __init__(self, init_info: DeltawireTrainerInit, *, client: Any, source: Any) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender)
        self._info = init_info
        self._publisher: Publisher | None = None
        self._shipper: Shipper | None = None
        if self.is_sender and init_info.transport != "store":
            self._shipper = serve(
                init_info.transport,
                init_info.store,
                address=init_info.master_address,
                port=init_info.master_port,
                secret=init_info.secret,
            )

    @classmethod
    def trainer_init(cls, init_info: DeltawireTrainerInit, *, client: Any, source: Any = None) -> Self:
        """Publish the seed if the store is empty, and name the chain to the server."""
        if source is None:
            raise InvalidArgument("deltawire: a WeightSource is needed")
        trainer = cls(init_info, client=client, source=source)
        trainer._publish()
        if trainer.is_sender:
            info = {"local": init_info.local, "trust": init_info.trust} | trainer._source()
            client.init_weight_transfer_engine(info | {"verify": init_info.verify, "timeout": init_info.timeout})
        return trainer

    def send_weights(self) -> None:
        """Publish what changed; then the server goes to that version. It pauses for it, where the caller has not paused it."""
        version = self._publish()
        if not self.is_sender or version is None:
            return
        self.client.start_weight_update()
        self.client.update_weights(version._asdict())
        self.client.finish_weight_update(str(version.version))

    def shutdown(self) -> None:
        """Let go of the snapshot, and of those who joined."""
        publisher, self._publisher = self._publisher, None  # who holds its store holds the port
        shipper, self._shipper = self._shipper, None
        if publisher is not None:
            publisher.close()
        if shipper is not None:
            shipper.close()

    def _source(self) -> dict[str, Any]:
        """Where the server finds versions."""
        if self._shipper is None:
            return {"store": self._info.store}
        address, _, port = self._shipper.address.rpartition(":")
        return {
            "transport": self._info.transport,
            "master_address": address,
            "master_port": int(port),
            "secret": self._info.secret,
        }

    def _publish(self) -> Identity | None:
        weights = {name: tensor.detach() for name, tensor in self.source}  # a collective, where there are shards
        if not self.is_sender:
            return None
        if self._publisher is None:
            self._publisher = Publisher(self._shipper.store if self._shipper else self._info.store, **self._info.publisher)
        return self._publisher.publish(weights).identity
