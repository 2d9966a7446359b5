"""Live weights inside serving engines: `vllm` and `sglang`, and their common code.

- `loads`: records where an engine's `load_weights` copies checkpoint tensors, without writing
- `map`: maps elements of checkpoint tensors to elements of the engine's arrays
- `atomic`: groups of tensors that must change together
- `undo`: restores what an engine's loader has overwritten
- `copies`: copies of weights outside parameters and buffers
- `checkpoint`: reads the host's local checkpoint
- `worker`: a worker of an engine: stages a version, writes it in a pause, verifies it, or reverts it
- `member`: a worker process: `worker`, its host and its staging thread
- `proof`: compares the weights of all workers with a version
- `host`: fetches versions for all workers of a host, in a background process
- `workers`: files in which workers report their state
- `group`: agreement between the workers of an engine
- `follower`, `routes`: in the server: updates the engine, and answers operators
- `settings`: options of operators
- `ready`: waits until servers serve a version
"""
