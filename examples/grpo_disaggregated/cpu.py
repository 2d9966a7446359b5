"""Replacements for the GPU functions of TRL's AsyncGRPOTrainer, for machines without a GPU."""

import types
from itertools import pairwise

import torch
import torch.nn.functional as functional
import trl.experimental.async_grpo.async_grpo_trainer as trainer
import trl.experimental.async_grpo.packing as packing


def attend(query, key, value, query_starts, key_starts, *_longest, softmax_scale=None, window_size=(-1, -1), **_others):
    """Causal attention of concatenated sequences, each on its own, as the GPU kernel computes it."""
    if window_size != (-1, -1):
        raise NotImplementedError("models with sliding windows need the GPU kernel")
    outputs = []
    for (first, last), (begin, end) in zip(pairwise(query_starts.tolist()), pairwise(key_starts.tolist()), strict=True):
        q, k, v = (part.transpose(0, 1) for part in (query[first:last], key[begin:end], value[begin:end]))
        # The last query sees all keys: queries are the end of the sequence of keys.
        seen = torch.ones(last - first, end - begin, dtype=torch.bool).tril(end - begin - (last - first))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=softmax_scale, enable_gqa=True)
        outputs.append(out.transpose(0, 1))
    return torch.cat(outputs)


def stand_in() -> None:
    """Replace the attention kernel, which exists for GPUs only, and the peak rate of a GPU, which is only reported."""
    packing._flash_attn = lambda: types.SimpleNamespace(flash_attn_varlen_func=attend)
    trainer.get_peak_flops_per_device = lambda *_args, **_options: 1e12
