"""vLLM: `vllm serve MODEL --weight-transfer-config '{"backend": "deltawire"}'`.

- `plugin`: called in each process of vLLM (entry point `vllm.general_plugins`)
- `engine`: the weight-transfer engine in each worker; `core`: version labels in the engine core
- `server`: in the API server: follows the chain, and adds routes for operators; `pauses`: who has paused the engine
- `trainer`: the trainer's side, for vLLM's own `send_weights()`
- `adapter_server`, `adapter_worker`: LoRA adapters

Only `plugin` may be imported before vLLM.
"""
