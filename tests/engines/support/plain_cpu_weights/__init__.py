"""vLLM on a CPU packs linear weights for oneDNN and frees the originals. Here they stay, fused as a GPU worker has them."""


def register() -> None:
    """Called by vLLM in each of its processes."""
    import vllm._custom_ops as ops

    ops._supports_onednn = False
