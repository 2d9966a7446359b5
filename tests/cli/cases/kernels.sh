# The list depends on the machine; the reference is on every one.
deltawire kernels | grep -v cuda: | grep -cE '^\* '
deltawire kernels | grep -oE 'scalar$'
DELTAWIRE_KERNELS=scalar deltawire kernels | grep '^\*'
DELTAWIRE_KERNELS=scalar deltawire kernels --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(list(report), 'scalar' in report['available'], report['chosen'])"

# One that is not there is named, by every verb that would have used it.
DELTAWIRE_KERNELS=foo deltawire kernels 2>/dev/null | grep -oE '. scalar$'
DELTAWIRE_KERNELS=foo deltawire kernels --json 2>/dev/null | grep -oE 'DELTAWIRE_KERNELS=foo names none'
DELTAWIRE_KERNELS=foo deltawire kernels 2>&1 >/dev/null | sed -E 's/here: .*/here: .../'
DELTAWIRE_KERNELS=foo deltawire verify a b
DELTAWIRE_KERNELS=foo deltawire --version

# Every one of them writes the delta that the reference writes, and reads it.
deltawire simulate --params 300k -o run -q
DELTAWIRE_KERNELS=scalar deltawire diff run/v0.safetensors run/v1.safetensors -o reference.safetensors -q
for name in $(deltawire kernels | grep -v cuda: | tr -d '* '); do
  DELTAWIRE_KERNELS=$name deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors -q
  cmp delta.safetensors reference.safetensors
  DELTAWIRE_KERNELS=$name deltawire apply delta.safetensors run/v0.safetensors -o made.safetensors -q
  cmp made.safetensors run/v1.safetensors
done
