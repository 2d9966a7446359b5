"""PyTorch: live models that follow a run, proofs, broadcasts and stores of sharded trainers.

`dw.Publisher` and `dw.TensorReplica` accept modules, state dicts and (name, tensor) pairs, also sharded with `fully_shard` or
tensor parallelism (docs/trainers.md):

>>> import torch, deltawire as dw
>>> model = torch.nn.Linear(8, 8)
>>> with dw.Publisher("memory:torch", model, dtype=torch.bfloat16) as publisher:
...     publisher.publish()
PublishReport(number=0, full, ... "seed")
>>> [(tensor.name, tensor.dtype) for tensor in dw.Chain("memory:torch").tensors(0)]
[('bias', 'BF16'), ('weight', 'BF16')]
"""

from deltawire.errors import missing_extra

try:
    import torch as _torch  # noqa: F401 - needed by the imports below
except ImportError as error:
    raise missing_extra(error, "torch") from None

from deltawire.torch.broadcast import Broadcast
from deltawire.torch.layout import layout_of
from deltawire.torch.live import follow
from deltawire.torch.prove import prove
from deltawire.torch.rank_store import RankStore
from deltawire.torch.rendezvous import Rendezvous

__all__ = ["Broadcast", "RankStore", "Rendezvous", "follow", "layout_of", "prove"]
