deltawire simulate --params 100k --steps 0 -o run -q
deltawire inspect run/v0.safetensors

# Shards.
deltawire simulate --params 100k --steps 0 --shards 2 -o sharded -q
deltawire inspect sharded/v0 --threads 2

# One tensor, all of its elements.
deltawire inspect run/v0.safetensors --tensor model.norm.weight
deltawire inspect run/v0.safetensors --tensor nothing

# Every kind of element; a name that would move the cursor is escaped.
$TESTS/cli/make-checkpoint mixed.safetensors a:F32:2,2:7f800000,00000001,3f800000 b:F8_E4M3:3:7f b5:F8_E5M2:3:7c c:I32:4:5 d:F64:1:3ff0000000000000 e:BF16:0:0 $'\e[2J:U8:1:1'
deltawire inspect mixed.safetensors

# For machines.
deltawire inspect mixed.safetensors --json | python3 -m json.tool --compact
deltawire inspect run/v0.safetensors --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(list(report))
print(report['kind'], report['tensors'], report['elements'], report['bytes'])
print(report['tensor_list'][0])
print(round(sum(one['share'] for one in report['dtypes'][0]['exponents']), 9))"

# More than 20 tensors are cut short, unless --all is given.
deltawire simulate --params 3M --steps 0 -o larger -q
deltawire inspect larger/v0.safetensors | grep -c model.
deltawire inspect larger/v0.safetensors --all | grep -c model.
deltawire inspect larger/v0.safetensors | sed -n '/largest/,/bytes/p; /^Exponents/p'

# Errors.
deltawire inspect missing.safetensors
mkdir empty
deltawire inspect empty
echo 'hello, this is a text file and not a checkpoint' > text.safetensors
deltawire inspect text.safetensors
deltawire inspect run/v0.safetensors --base run/v0.safetensors
deltawire inspect text.safetensors --json 2>/dev/null
