"""Keeps inference replicas bit-identical to a trainer by shipping only the weights that changed.

A trainer publishes, replicas follow; a store (a folder, a bucket) is all they share:

>>> import numpy as np, deltawire as dw
>>> weights = {"w": np.zeros(1000, np.float32)}
>>> publisher = dw.Publisher("memory:example", weights)
>>> publisher.publish()
PublishReport(number=0, full, 3.70 kB, "seed")
>>> weights["w"][7] = 1.5
>>> publisher.publish()
PublishReport(number=1, 1 of 1,000 changed (0.100 %), 296 B)

>>> mine = {"w": np.empty(1000, np.float32)}
>>> replica = dw.TensorReplica("memory:example", mine)
>>> replica.pull().version
1
>>> mine["w"][7]
np.float32(1.5)

numpy is enough; torch tensors are taken wherever arrays are. More is in modules:

- `reports`: what calls return; `errors`: all exceptions
- `maintenance`: mirrors; `nixl`: one-sided reads; `dialects`: other projects' files
- `live`: for processes that hold live weights: `Exchange`, `Proof`
- `torch`, `quantize`, `trainers` (`hf`, `trl`, `verl`, `peft`), `engines` (`vllm`, `sglang`)
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from deltawire import errors as errors
from deltawire import reports as reports
from deltawire._core import version as _version
from deltawire._internal.chain import Chain
from deltawire._internal.delta import Delta, apply_delta, diff, diff_checkpoints, verify
from deltawire._internal.identity import Identity
from deltawire._internal.options import Accept, Anchors, CopyOnWrite, Cuda, Hook, Keys, Limits, PublishOptions, Select
from deltawire._internal.output import listen as _listen
from deltawire._internal.publisher import Publisher
from deltawire._internal.ranks import Group
from deltawire._internal.replica import Replica, TensorReplica, read_replica_state
from deltawire._internal.stores import ObjectInfo, Store, open_store, serve
from deltawire._internal.tensors import Tensor
from deltawire.errors import (
    BaseMismatch,
    Cancelled,
    Conflict,
    Corruption,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    IoError,
    NotFound,
    OutOfMemory,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from deltawire import dialects as dialects
    from deltawire import live as live
    from deltawire import maintenance as maintenance
    from deltawire import nixl as nixl
    from deltawire import torch as torch

__version__ = _version()

_listen()


def __getattr__(name: str) -> _Any:
    """Import `dw.torch` and others on first use, so that torch is not always imported."""
    if name in ("dialects", "live", "maintenance", "nixl", "torch"):
        return _import_module(f"deltawire.{name}")
    raise AttributeError(f"module 'deltawire' has no attribute {name!r}")


__all__ = [
    "Accept",
    "Anchors",
    "BaseMismatch",
    "Cancelled",
    "Chain",
    "Conflict",
    "CopyOnWrite",
    "Corruption",
    "Cuda",
    "Delta",
    "DeviceError",
    "Error",
    "Group",
    "Hook",
    "Identity",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Keys",
    "Limits",
    "NotFound",
    "ObjectInfo",
    "OutOfMemory",
    "PublishOptions",
    "Publisher",
    "Replica",
    "Select",
    "Store",
    "Tensor",
    "TensorReplica",
    "Unavailable",
    "Unsupported",
    "__version__",
    "apply_delta",
    "diff",
    "diff_checkpoints",
    "open_store",
    "read_replica_state",
    "serve",
    "verify",
]
