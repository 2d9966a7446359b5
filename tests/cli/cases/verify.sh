$TESTS/cli/make-checkpoint a.safetensors w:BF16:2,3:3f80 only_here:U8:1:0 zero:F32:1:00000000 kind:U8:2:0 form:U8:4:0
$TESTS/cli/make-checkpoint b.safetensors w:BF16:2,3:3f80,3f80,3f80,3f81,3f80 zero:F32:1:80000000 kind:I8:2:0 form:U8:2,2:0

# Identical: 0. Different: 1, with the first difference of each tensor; -0 is not 0.
deltawire verify a.safetensors a.safetensors
deltawire verify a.safetensors b.safetensors
deltawire verify a.safetensors b.safetensors --quiet
deltawire verify a.safetensors b.safetensors --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(list(report))
print(report['identical'], report['tensors'], report['different'])
for difference in report['differences']: print(difference)"

# NaNs with different payloads differ, a NaN equals itself.
$TESTS/cli/make-checkpoint nan1.safetensors w:F32:1:7fc00001
$TESTS/cli/make-checkpoint nan2.safetensors w:F32:1:7fc00002
deltawire verify nan1.safetensors nan2.safetensors
deltawire verify nan1.safetensors nan1.safetensors

# How tensors are cut into files does not matter.
deltawire simulate --params 10k --steps 0 -o one -q
deltawire simulate --params 10k --steps 0 --shards 3 -o three -q
deltawire verify one/v0.safetensors three/v0

# Many differences are cut short.
deltawire simulate --params 3M --steps 0 --seed 2 -o other -q
deltawire simulate --params 3M --steps 0 --seed 3 -o another -q
deltawire verify other/v0.safetensors another/v0.safetensors | cut -c 1-60 | tail -4

# Errors are not differences.
deltawire verify a.safetensors missing.safetensors
head -c 100 a.safetensors > cut.safetensors
deltawire verify a.safetensors cut.safetensors
rm three/v0/model-00002-of-00003.safetensors
deltawire verify three/v0 one/v0.safetensors
