"""The trainer's side of vLLM's weight transfer: `send_weights()` publishes a version and updates the server."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from deltawire._internal.identity import Identity
from deltawire._internal.publisher import Publisher
from deltawire._internal.stores import Server, serve
from deltawire.errors import InvalidArgument


@dataclass
class DeltawireTrainerInit(TrainerInitInfo):
    """The chain's store, and the folder of the engine's host for its checkpoint.

    With `serve` ("HOST:PORT", port 0: any) the trainer serves the chain to engines; an empty `store` is then in its memory.
    Beyond loopback this needs a `token`.
    """

    backend: ClassVar[str] = "deltawire"

    store: str
    local: str
    serve: str = ""
    token: str = field(default="", repr=False)
    trust: str | None = None
    verify: str = "all"
    timeout: float = 600.0
    publisher: dict[str, Any] = field(default_factory=dict)  # further options of deltawire.Publisher


class DeltawireTrainer(TrainerWeightTransferEngine[DeltawireTrainerInit]):
    """Publishes the weights of a `WeightSource` on rank 0; other ranks take part in its collectives."""

    init_info_cls = DeltawireTrainerInit

    def __init__(self, init_info: DeltawireTrainerInit, *, client: Any, source: Any) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender)
        self._info = init_info
        self._publisher: Publisher | None = None
        self._server: Server | None = None
        self._store = init_info.store
        if self.is_sender and init_info.serve:
            self._store = self._store or f"memory:{uuid.uuid4().hex}"
            self._server = serve(self._store, init_info.serve, token=init_info.token)

    @classmethod
    def trainer_init(cls, init_info: DeltawireTrainerInit, *, client: Any, source: Any = None) -> Self:
        """Publish, so that the store is not empty, and send the settings to the server."""
        if source is None:
            raise InvalidArgument("deltawire: a WeightSource is required")
        trainer = cls(init_info, client=client, source=source)
        trainer._publish()
        if trainer.is_sender:
            info = {"local": init_info.local, "trust": init_info.trust} | trainer._source()
            client.init_weight_transfer_engine(info | {"verify": init_info.verify, "timeout": init_info.timeout})
        return trainer

    def send_weights(self) -> None:
        """Publish, then let the server go to that version. The server pauses if the caller has not paused it."""
        version = self._publish()
        if not self.is_sender or version is None:
            return
        self.client.start_weight_update()
        self.client.update_weights(version._asdict())
        self.client.finish_weight_update(str(version.version))

    def shutdown(self) -> None:
        """Close publisher and server."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
        if self._server is not None:
            self._server.close()

    def _source(self) -> dict[str, Any]:
        """The store settings of the server."""
        if self._server is None:
            return {"store": self._store}
        return {"store": self._server.url, "token": self._info.token}

    def _publish(self) -> Identity | None:
        weights = {name: tensor.detach() for name, tensor in self.source}  # a collective, if sharded
        if not self.is_sender:
            return None
        if self._publisher is None:
            self._publisher = Publisher(self._store, **self._info.publisher)
        return self._publisher.publish(weights).identity
