# A delta carries tensors only. What else differs is said, and stays with the base.
python3 - <<'END'
import json, struct
for name, step, value in (("a", "1", 1), ("b", "2", 2)):
    header = {"__metadata__": {"format": "pt", "step": step}, "w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes([value] * 4))
END
deltawire diff a.safetensors b.safetensors -o delta.safetensors
deltawire diff a.safetensors b.safetensors -o delta.safetensors --json | python3 -c "
import json, sys
print(json.load(sys.stdin)['metadata_changed'])"
deltawire apply delta.safetensors a.safetensors -o made.safetensors -q
deltawire inspect made.safetensors | grep ^metadata
deltawire verify b.safetensors made.safetensors

# Files beside the weights come from the base, folders do not; links that lead nowhere do no harm.
deltawire simulate --params 10k --shards 2 -o run -q
echo old > run/v0/config.json
echo new > run/v1/config.json
mkdir run/v0/onnx && touch run/v0/onnx/model
ln -s nowhere run/v0/zzz
deltawire diff run/v0 run/v1 -o parts -q
deltawire apply parts run/v0 -o made -q
cat made/config.json
ls made
deltawire verify made run/v1
