# From nothing to a proven replica: two checkpoints, a delta, the second one made again.
deltawire simulate --params 1M -o run
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors --codec gaps
deltawire apply delta.safetensors run/v0.safetensors -o made.safetensors
deltawire verify run/v1.safetensors made.safetensors
cmp run/v1.safetensors made.safetensors

# The same with shards, in parts, with the codec chosen for each tensor.
deltawire simulate --params 1M --shards 2 -o sharded -q
echo '{}' > sharded/v0/config.json
deltawire diff sharded/v0 sharded/v1 -o parts --part-size 4kB -q
ls parts | head -2
deltawire apply parts sharded/v0 -o made -q
ls made
deltawire verify made run/v1.safetensors

# Every codec gives the same bits.
for codec in tight gaps adaptive raw; do
  deltawire diff run/v0.safetensors run/v1.safetensors -o $codec.safetensors --codec $codec -q
  deltawire apply $codec.safetensors run/v0.safetensors -o $codec.made.safetensors -q
  cmp run/v1.safetensors $codec.made.safetensors && echo "$codec: same"
done

# So does any number of threads, down to the delta's own bytes.
deltawire diff run/v0.safetensors run/v1.safetensors -o one.safetensors --threads 1 -q
deltawire diff run/v0.safetensors run/v1.safetensors -o three.safetensors --threads 3 -q
cmp one.safetensors three.safetensors

# No change at all.
deltawire diff run/v0.safetensors run/v0.safetensors -o nothing.safetensors
deltawire apply nothing.safetensors run/v0.safetensors -o same.safetensors
cmp run/v0.safetensors same.safetensors

# Nothing is left beside the results.
find . -name '*.tmp'
