"""Which weights vLLM stores differently than the checkpoint: on some CPUs it packs linear layers for its kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import torch
from servers import ENGINES
from trainers import DTYPE

_PROBE = """
import sys, torch
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
load_general_plugins()
if not current_platform.is_cpu():
    print("plain")
    sys.exit()
layer = torch.nn.Linear(128, 128, bias=False, dtype=getattr(torch, sys.argv[1])).requires_grad_(False)
dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
print("packed" if layer.weight.numel() == 0 else "plain")
"""
# A packed module does not record where its weights are, so all of its parent is reloaded with it.
# The head is packed beside its weight, and so are the embeddings, which may also be the head.
_WITH_LINEARS = re.compile(r"\.(self_attn|mlp|embed_tokens)\.|^lm_head\.")


@cache
def are_linears_packed(dtype: torch.dtype = DTYPE) -> bool:
    """Whether vLLM packs linear layers on this machine; checked in a separate process with the servers' plugins."""
    environment = os.environ | {"LD_PRELOAD": str(ENGINES / "vllm" / "libsbgemm.so"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _PROBE, str(dtype).removeprefix("torch.")]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout.split()
    assert said[-1:] in (["packed"], ["plain"]), said
    return said[-1] == "packed"


def reloaded_of(names: Iterable[str]) -> list[str]:
    """The tensors of a model that only vLLM's own loader can write."""
    return sorted(name for name in names if are_linears_packed() and _WITH_LINEARS.search(name))
