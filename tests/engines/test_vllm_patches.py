"""`deltawire.engines.vllm.patches` with vLLM's own classes and loader, on a small model on the CPU; no server."""

from __future__ import annotations

import pytest
import torch

import deltawire as dw

loading = pytest.importorskip("vllm.model_executor.model_loader.checkpoint_weight_patch")

from deltawire.engines.vllm.patches import apply_patches_, checkpoint_patches, sparse_patches  # noqa: E402


class Fused(torch.nn.Module):
    """Keeps its weights as vLLM's models do: q and k of the checkpoint are rows of one parameter."""

    def __init__(self, checkpoint: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.qk = torch.nn.Parameter(torch.cat([checkpoint["q"], checkpoint["k"]]), requires_grad=False)
        self.norm = torch.nn.Parameter(checkpoint["norm"].clone(), requires_grad=False)

    def load_weights(self, weights):
        for name, tensor in weights:
            target = {"q": self.qk[:4], "k": self.qk[4:], "norm": self.norm}[name]
            target.copy_(tensor)
        return {name for name, _ in weights}

    def checkpoint(self) -> dict[str, torch.Tensor]:
        return {"q": self.qk[:4], "k": self.qk[4:], "norm": self.norm}


def states(dtype: torch.dtype) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    old = {name: torch.randn(4, 8, generator=generator).to(dtype) for name in ("q", "k")}
    old["norm"] = torch.zeros(8, dtype=dtype)
    new = {name: tensor.clone() for name, tensor in old.items()}
    new["q"][1, 3] = 7
    new["k"][0, :3] = float("inf")
    new["norm"][2] = -0.0  # another bit, the same number
    return old, new


def assert_same_bits(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    for name, tensor in theirs.items():
        assert torch.equal(ours[name].contiguous().view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dense", [False, True])
def test_their_loader_ends_with_the_new_state_exactly(dtype, dense):
    old, new = states(dtype)
    model, patches = Fused(old), checkpoint_patches(old, new, dense=dense)
    assert all(type(patch) is loading.CheckpointWeightPatch for patch in patches)
    assert loading.load_checkpoint_weight_patches(model, patches) == {"q", "k", "norm"}
    assert_same_bits(model.checkpoint(), new)
    apply_patches_(old, patches)
    assert_same_bits(old, new)


def test_their_loader_refuses_nan_and_so_do_we_before_with_the_name():
    old, new = states(torch.bfloat16)
    new["k"][3, 7] = float("nan")
    with pytest.raises(dw.Unsupported, match='tensor "k": element 31 becomes NaN'):
        checkpoint_patches(old, new)
    patch = loading.CheckpointWeightPatch("k", (4, 8), torch.bfloat16, new["k"].reshape(-1)[31:], torch.tensor([31]))
    with pytest.raises(ValueError, match="NaN"):
        loading.load_checkpoint_weight_patches(Fused(old), [patch])
    model = Fused(old)
    loading.load_checkpoint_weight_patches(model, checkpoint_patches(old, new, dense=True))
    assert_same_bits(model.checkpoint(), new)


def test_patches_of_the_sparse_backend():
    from vllm.distributed.weight_transfer.sparse_nccl_engine import SparseWeightPatch

    old, new = states(torch.bfloat16)
    patches = sparse_patches(old, new)
    assert all(type(patch) is SparseWeightPatch and patch.indices.dtype == torch.int32 for patch in patches)
    assert [(patch.name, patch.full_shape) for patch in patches] == [("k", (4, 8)), ("norm", (8,)), ("q", (4, 8))]
    apply_patches_(old, patches)
    assert_same_bits(old, new)
