"""vLLM: `vllm serve MODEL --weight-transfer-config '{"backend": "deltawire"}'`.

- `plugin`: what vLLM calls in each of its processes (entry point `vllm.general_plugins`)
- `engine`: the weight-transfer engine in each worker
- `server`: in the API server: follows by itself, and answers /deltawire/status, /deltawire/ready and /deltawire/metrics
- `trainer`: the trainer's side, for vLLM's own `send_weights()`
- `patches`: lists of vLLM's own patch objects, from a chain or two states, and back

Nothing here is imported before vLLM is.
"""
