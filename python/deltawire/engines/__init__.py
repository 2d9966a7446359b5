"""Live weights inside serving engines: `vllm` and `sglang`, and what the two share.

- `loads`: where an engine's own `load_weights` copies a checkpoint's tensors to, found without writing anything
- `map`: those places as numbers: from elements of tensors to elements of an engine's arrays
- `atomic`: which tensors change together or not at all
- `undo`: what an engine's own loader overwrites, to be put back
- `checkpoint`: the tensors of the host's local checkpoint
- `worker`: one worker of an engine: stages a version while it serves, writes it in a pause, proves it, takes it back
- `proof`: what all workers of an engine hold, against what a version says
- `host`: the host's replica, in a thread of one of its workers
- `group`: the workers of one engine, who go to a version together
- `settings`: what operators say
- `ready`: waits, from outside, until engines serve a version
"""
