"""Keeps inference replicas bit-identical to a trainer by shipping only the weights that changed.

A trainer publishes, replicas follow; a store (a folder, a bucket) is all they share:

>>> import numpy as np, deltawire as dw
>>> weights = {"w": np.zeros(1000, np.float32)}
>>> publisher = dw.Publisher("memory:example", weights)
>>> publisher.publish()
Version(number=0, full, 3.70 kB, "seed")
>>> weights["w"][7] = 1.5
>>> publisher.publish()
Version(number=1, 1 of 1,000 changed (0.100 %), 296 B)

>>> mine = {"w": np.empty(1000, np.float32)}
>>> replica = dw.TensorReplica("memory:example", mine)
>>> replica.pull().version
1
>>> mine["w"][7]
np.float32(1.5)

numpy is enough; torch tensors are taken wherever arrays are. `deltawire.torch` and others adapt whole models.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from deltawire._core import version as _version
from deltawire.bridge import Exported, Exporter, Foreign, Imported, Importer, dialects, export_dialect, import_dialect
from deltawire.chain import Chain, Manifest, SideFile, TensorSpec
from deltawire.checkpoints import apply_delta, diff_checkpoints, verify
from deltawire.delta import Delta, Entry, diff, load
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
    MissingExtra,
    NotFound,
    OutOfMemory,
    Unavailable,
    Unsupported,
)
from deltawire.events import listen as _listen
from deltawire.exchange import Exchange
from deltawire.identity import Identity
from deltawire.maintenance import (
    Anchored,
    Checked,
    Collected,
    Compacted,
    Hop,
    Kept,
    MergedDelta,
    Part,
    Plan,
    ReplicaStatus,
    Waiting,
)
from deltawire.mirroring import Mirror, Mirrored, Repaired, mirror
from deltawire.options import Accept, Anchors, CopyOnWrite, Cuda, Hook, Keys, Limits, Select
from deltawire.proof import Proof
from deltawire.publisher import Publisher
from deltawire.ranks import Group
from deltawire.replica import Replica, read_replica_state
from deltawire.reports import (
    Applied,
    Diffed,
    Difference,
    Phase,
    Pull,
    ReplicaState,
    SnapshotMemory,
    Verified,
    Version,
)
from deltawire.stores import ObjectInfo, Store, open_store
from deltawire.tensor_replica import TensorReplica
from deltawire.tensors import Tensor

if TYPE_CHECKING:
    from deltawire import carriers as carriers
    from deltawire import shards as shards
    from deltawire import ship as ship
    from deltawire import torch as torch

__version__ = _version()

_listen()


def __getattr__(name: str) -> _Any:
    """`dw.torch` and others are there when they are asked for; torch is not imported before."""
    if name in ("carriers", "shards", "ship", "torch"):
        return _import_module(f"deltawire.{name}")
    raise AttributeError(f"module 'deltawire' has no attribute {name!r}")


__all__ = [
    "Accept",
    "Anchored",
    "Anchors",
    "Applied",
    "BaseMismatch",
    "Cancelled",
    "Chain",
    "Checked",
    "Collected",
    "Compacted",
    "Conflict",
    "CopyOnWrite",
    "Corruption",
    "Cuda",
    "Delta",
    "DeviceError",
    "Diffed",
    "Difference",
    "Entry",
    "Error",
    "Exchange",
    "Exported",
    "Exporter",
    "Foreign",
    "Group",
    "Hook",
    "Hop",
    "Identity",
    "Imported",
    "Importer",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Kept",
    "Keys",
    "Limits",
    "Manifest",
    "MergedDelta",
    "Mirror",
    "Mirrored",
    "MissingExtra",
    "NotFound",
    "ObjectInfo",
    "OutOfMemory",
    "Part",
    "Phase",
    "Plan",
    "Proof",
    "Publisher",
    "Pull",
    "Repaired",
    "Replica",
    "ReplicaState",
    "ReplicaStatus",
    "Select",
    "SideFile",
    "SnapshotMemory",
    "Store",
    "Tensor",
    "TensorReplica",
    "TensorSpec",
    "Unavailable",
    "Unsupported",
    "Verified",
    "Version",
    "Waiting",
    "__version__",
    "apply_delta",
    "dialects",
    "diff",
    "diff_checkpoints",
    "export_dialect",
    "import_dialect",
    "load",
    "mirror",
    "open_store",
    "read_replica_state",
    "verify",
]
