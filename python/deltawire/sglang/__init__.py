"""SGLang: a server that follows a chain by itself, or goes to a version when `/update_weights_from_tensor` says so.

See docs/sglang.md. `plugin` is what SGLang calls in its processes, `scheduler` and `server` are the two halves that it hooks in,
and `load` is the custom weight loader.
"""

from deltawire.sglang.loader import load

__all__ = ["load"]
