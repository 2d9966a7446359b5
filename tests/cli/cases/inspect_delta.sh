deltawire simulate --params 100k --density 0.02 -o run -q
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors --codec gaps -q
deltawire inspect delta.safetensors

# With the base: how far elements moved, and which. One tensor of it.
deltawire inspect delta.safetensors --base run/v0.safetensors --tensor model.embed_tokens.weight

# In parts.
deltawire diff run/v0.safetensors run/v1.safetensors -o parts --part-size 1k --codec gaps -q
deltawire inspect parts | head -6

# Every codec tells the same story.
for codec in tight gaps adaptive raw; do
  deltawire diff run/v0.safetensors run/v1.safetensors -o $codec.safetensors --codec $codec -q
  deltawire inspect $codec.safetensors --base run/v0.safetensors --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
movement = report['movement'][0]
print(report['codecs'][0]['codec'], report['changed'], movement['changed'], movement['steps']['1'], movement['steps']['-1'])"
done

# All kinds of change: one up, one down, a flip of the sign, a jump; integers have no exponent.
$TESTS/cli/make-checkpoint a.safetensors w:BF16:5:3f80 n:I8:4:10 same:F32:2:0
$TESTS/cli/make-checkpoint b.safetensors w:BF16:5:3f81,3f7f,bf80,3fff,3f80 n:I8:4:11,10,0e,7f same:F32:2:0
deltawire diff a.safetensors b.safetensors -o small.safetensors --codec gaps -q
deltawire inspect small.safetensors --base a.safetensors
deltawire inspect small.safetensors --base a.safetensors --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(list(report))
for movement in report['movement']: print({key: value for key, value in movement.items() if key != 'steps'})"

# Nothing changed.
deltawire diff a.safetensors a.safetensors -o nothing.safetensors -q
deltawire inspect nothing.safetensors

# Errors.
deltawire inspect delta.safetensors --base run/v1.safetensors
deltawire inspect delta.safetensors --base missing.safetensors
deltawire inspect delta.safetensors --tensor model.norm.weight
head -c 1000 delta.safetensors > cut.safetensors
deltawire inspect cut.safetensors
rm parts/part-00001.safetensors
deltawire inspect parts
