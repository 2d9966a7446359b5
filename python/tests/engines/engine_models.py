"""A model as engines keep it: fused projections, slices of a tensor-parallel rank, stacks of experts, padded vocabulary."""

import torch
from torch import nn

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCAB, EXPERTS = 32, 4, 2, 8, 48, 50, 3
PADDED = 64


def checkpoint(seed: int = 0, *, tied: bool = False, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Tensors as Hugging Face names them."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    tensors = {"model.embed_tokens.weight": some(VOCAB, HIDDEN), "model.norm.weight": some(HIDDEN)}
    for layer in range(2):
        base = f"model.layers.{layer}"
        tensors |= {
            f"{base}.input_layernorm.weight": some(HIDDEN),
            f"{base}.self_attn.q_proj.weight": some(HEADS * HEAD, HIDDEN),
            f"{base}.self_attn.k_proj.weight": some(KV_HEADS * HEAD, HIDDEN),
            f"{base}.self_attn.v_proj.weight": some(KV_HEADS * HEAD, HIDDEN),
            f"{base}.self_attn.o_proj.weight": some(HIDDEN, HEADS * HEAD),
        }
        for expert in range(EXPERTS):
            tensors |= {
                f"{base}.mlp.experts.{expert}.gate_proj.weight": some(INNER, HIDDEN),
                f"{base}.mlp.experts.{expert}.up_proj.weight": some(INNER, HIDDEN),
                f"{base}.mlp.experts.{expert}.down_proj.weight": some(HIDDEN, INNER),
            }
    if not tied:
        tensors["lm_head.weight"] = some(VOCAB, HIDDEN)
    return tensors


class Layer(nn.Module):
    """One layer of one rank."""

    def __init__(self, rank: int, world: int, dtype: torch.dtype, transposed: bool) -> None:
        super().__init__()
        self.rank, self.world, self.transposed = rank, world, transposed
        kv = max(1, KV_HEADS // world)
        self.kv_heads = kv
        self.norm = nn.Parameter(torch.zeros(HIDDEN, dtype=dtype))
        self.qkv = nn.Parameter(torch.zeros((HEADS // world + 2 * kv) * HEAD, HIDDEN, dtype=dtype))
        shape = (HEADS * HEAD // world, HIDDEN)
        self.o = nn.Parameter(torch.zeros(shape if transposed else shape[::-1], dtype=dtype))
        self.w13 = nn.Parameter(torch.zeros(EXPERTS, 2 * INNER // world, HIDDEN, dtype=dtype))
        self.w2 = nn.Parameter(torch.zeros(EXPERTS, HIDDEN, INNER // world, dtype=dtype))

    def load(self, name: str, tensor: torch.Tensor) -> None:
        """Copy slices of the tensor to slices of fused parameters, like an engine's loader."""
        rank, world = self.rank, self.world
        if name == "input_layernorm.weight":
            self.norm.data.copy_(tensor)
        elif name.startswith("self_attn.o_proj"):
            part = tensor.narrow(1, rank * HEADS * HEAD // world, HEADS * HEAD // world)
            self.o.data.copy_(part.t() if self.transposed else part)
        elif name.startswith("self_attn"):
            which, heads = {"q": (0, HEADS // world), "k": (1, self.kv_heads), "v": (2, self.kv_heads)}[name[len("self_attn.")]]
            begin = [0, HEADS // world, HEADS // world + self.kv_heads][which] * HEAD
            first = rank * heads if which == 0 else rank * KV_HEADS // world  # replicated where there are fewer than ranks
            self.qkv.data.narrow(0, begin, heads * HEAD).copy_(tensor.narrow(0, first * HEAD, heads * HEAD))
        else:
            _, _, number, kind, _ = name.split(".")
            size = INNER // world
            expert = int(number)
            if kind == "down_proj":
                self.w2.data[expert].copy_(tensor.narrow(1, rank * size, size))
            else:
                begin = 0 if kind == "gate_proj" else size
                self.w13.data[expert].narrow(0, begin, size).copy_(tensor.narrow(0, rank * size, size))


class Engine(nn.Module):
    """The weights of one rank of an engine."""

    def __init__(
        self, rank: int = 0, world: int = 1, *, tied: bool = False, transposed: bool = False, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__()
        self.rank, self.world, self.tied = rank, world, tied
        self.embed = nn.Parameter(torch.zeros(PADDED // world, HIDDEN, dtype=dtype))
        self.head = self.embed if tied else nn.Parameter(torch.zeros(PADDED // world, HIDDEN, dtype=dtype))
        self.norm = nn.Parameter(torch.zeros(HIDDEN, dtype=dtype))
        self.layers = nn.ModuleList(Layer(rank, world, dtype, transposed) for _ in range(2))

    def _load_vocabulary(self, parameter: nn.Parameter, tensor: torch.Tensor) -> None:
        rows = PADDED // self.world
        first = self.rank * rows
        there = max(0, min(VOCAB - first, rows))
        parameter.data[:there].copy_(tensor[first : first + there])
        parameter.data[there:].fill_(0)

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            if name == "model.embed_tokens.weight":
                self._load_vocabulary(self.embed, tensor)
            elif name == "lm_head.weight":
                self._load_vocabulary(self.head, tensor)
            elif name == "model.norm.weight":
                self.norm.data.copy_(tensor)
            else:
                _, _, layer, rest = name.split(".", 3)
                self.layers[int(layer)].load(rest, tensor)


def changed(tensors: dict[str, torch.Tensor], seed: int, share: float = 0.02) -> dict[str, torch.Tensor]:
    """A step of training: some weights of some tensors have other bits."""
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for name, tensor in tensors.items():
        mask = torch.rand(tensor.shape, generator=generator) < share
        bits = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)
        result[name] = torch.where(mask, bits ^ 1, bits).view(tensor.dtype)
    return result
