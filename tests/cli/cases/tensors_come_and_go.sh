# A tensor changes, one is new, one is gone, one has another shape; not only BF16.
$TESTS/cli/make-checkpoint a.safetensors w:BF16:2,3:3f80,0000,7fc1 gone:I32:2:1 grown:F32:2:40490fdb ids:I64:4:7
$TESTS/cli/make-checkpoint b.safetensors w:BF16:2,3:3f81,8000,7fc2 new:U8:5:aa grown:F32:3:40490fdb ids:I64:4:7
deltawire diff a.safetensors b.safetensors -o delta.safetensors --codec gaps
deltawire inspect delta.safetensors
deltawire apply delta.safetensors a.safetensors -o made.safetensors
deltawire verify b.safetensors made.safetensors

# Two checkpoints that have nothing in common.
$TESTS/cli/make-checkpoint c.safetensors other:U8:5:aa
deltawire diff a.safetensors c.safetensors -o other.safetensors | grep -v ^time
