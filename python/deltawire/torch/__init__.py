"""PyTorch: what a model is made of, which of it an optimizer touched, and live models that follow a run.

`dw.Publisher` and `dw.TensorReplica` take modules, state dicts and pairs of names and tensors, shards of `fully_shard` and of
tensor parallelism included; docs/trainers.md shows how. What is here is for more:

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
    import torch as _torch  # noqa: F401 - what is imported below needs it
except ImportError as error:
    raise missing_extra(error, "torch") from None

from deltawire.torch.broadcast import Broadcast
from deltawire.torch.layout import layout_of
from deltawire.torch.live import follow
from deltawire.torch.prove import prove
from deltawire.torch.rank_store import RankStore
from deltawire.torch.rendezvous import Rendezvous

__all__ = ["Broadcast", "RankStore", "Rendezvous", "follow", "layout_of", "prove"]
