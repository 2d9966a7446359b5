"""A tiny Qwen3 with a tokenizer of bytes, made here: nothing is downloaded."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def make_model(folder: Path, dtype: str) -> None:
    """Random weights that are exact in bfloat16, stored as `dtype`.

    They are drawn large, with a large last norm and a small head, so that the example is short: it learns at a learning rate at
    which most steps of most weights are rounded away.
    """
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=264,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.model.norm.weight.fill_(16)
        model.lm_head.weight.normal_(std=0.004)
    model.bfloat16().to(getattr(torch, dtype)).save_pretrained(folder)
    vocabulary = {"<s>": 0, "</s>": 1}
    vocabulary |= {letter: number + 2 for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
