"""Quantises a trainer's weights to exactly the bytes of a quantised checkpoint.

`dw.Publisher(..., quantize=SPEC)` publishes them, `python -m deltawire quantize` writes files. Both use this module;
docs/quantised.md lists the formats.

>>> import torch
>>> from deltawire.quantize import quantize
>>> model = {"layers.0.mlp.up_proj.weight": torch.ones(256, 256, dtype=torch.bfloat16), "norm.weight": torch.ones(256)}
>>> for name, tensor in quantize(model, "fp8-block"):
...     print(name, tensor.dtype, list(tensor.shape))
layers.0.mlp.up_proj.weight torch.float8_e4m3fn [256, 256]
layers.0.mlp.up_proj.weight_scale_inv torch.float32 [2, 2]
norm.weight torch.float32 [256]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltawire.errors import missing_extra

try:
    import safetensors as _safetensors  # noqa: F401 - needed by the imports below
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise missing_extra(error, "quantize") from None

from deltawire.quantize.formats import FORMATS
from deltawire.quantize.quantizer import Quantizer, Shard, quantizer_of

__all__ = ["FORMATS", "Quantizer", "quantize", "quantizer_of"]


def quantize(tensors: Mapping[str, Any], spec: Any, *, rounded: str = "BF16") -> Iterator[tuple[str, Any]]:
    """Yield the names and tensors of the quantised checkpoint.

    `spec` is a quantised checkpoint's folder, its `quantization_config`, or one of `FORMATS`. Weights are first rounded to
    `rounded`; "F32" uses float32 masters unchanged.
    """
    shards = (Shard.whole(name, tensor) for name, tensor in tensors.items())
    for coded in quantizer_of(spec, rounded).quantised(shards):
        yield coded.shard.name, coded.shard.tensor
