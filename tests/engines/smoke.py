"""Can this engine serve anything on this machine? smoke.py vllm|sglang: exit status 0 if it can. deltawire is not in it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from servers import SglangServer, VllmServer
from trainers import make_model


def main() -> int:
    engine = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        try:
            if engine == "vllm":
                with VllmServer(make_model(Path(folder) / "model"), log) as server:
                    server.logprobs()
            else:
                with SglangServer(make_model(Path(folder) / "model", dtype=torch.bfloat16), log) as server:
                    server.generate([5, 6, 7], 2)
        except AssertionError as error:
            print(f"{engine}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
