# Who sends what to whom, from a trainer's layout to an engine's.
$TESTS/cli/make-checkpoint model.safetensors model.embed_tokens.weight:BF16:37,16:0 model.layers.0.self_attn.q_proj.weight:BF16:32,16:0 model.layers.0.self_attn.k_proj.weight:BF16:8,16:0 model.layers.0.self_attn.o_proj.weight:BF16:16,32:0 model.layers.0.input_layernorm.weight:F32:16:0
deltawire plan-shards tp=2 tp=2 --model model.safetensors
deltawire plan-shards fsdp=3 tp=2 --model model.safetensors --density 0.012
deltawire plan-shards tp=1 tp=4,kv_heads=2 --model model.safetensors --json

# Layouts in files: boxes by rank.
echo '{"format":"shard-layout/1","tensors":[["w","BF16",[4,8]]],"ranks":[[[0,"0,0+2,8"]],[[0,"2,0+2,8"]]]}' > rows.json
echo '{"format":"shard-layout/1","tensors":[["w","BF16",[4,8]]],"ranks":[[[0,"-"]],[[0,"-"]]]}' > whole.json
deltawire plan-shards rows.json whole.json
deltawire plan-shards whole.json rows.json -q

# What stands in the way has a name.
echo '{"format":"shard-layout/1","tensors":[["w","F16",[4,8]]],"ranks":[[[0,"-"]]]}' > other.json
deltawire plan-shards other.json whole.json
deltawire plan-shards rows.json tp=2 --model model.safetensors

# Mistakes.
deltawire plan-shards tp=2 tp=4
deltawire plan-shards nowhere.json whole.json
deltawire plan-shards tp=2 xp=4 --model model.safetensors
deltawire plan-shards tp=3 tp=2 --model model.safetensors
deltawire plan-shards rows.json whole.json --density 2
echo '{"format":"shard-layout/1","tensors":[["w","BF16",[4,8]]],"ranks":[[[0,"0,0+5,8"]]]}' > bad.json
deltawire plan-shards bad.json whole.json
