"""vLLM on a CPU packs linear weights for oneDNN and frees the originals. This keeps them, fused as on a GPU."""


def register() -> None:
    """Called by vLLM in each of its processes."""
    import vllm._custom_ops as ops

    ops._supports_onednn = False
