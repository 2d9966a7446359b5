# Sizes do not depend on the machine.
deltawire simulate --params 100k -o run -q
deltawire bench run/v0.safetensors run/v1.safetensors --sizes --codec gaps tight slime | sed -n '/^codec/,/^slime/p'

# Nothing changed: there is nothing to divide by.
deltawire bench run/v0.safetensors run/v0.safetensors --sizes --codec gaps tight | sed -n '2,8p' | grep -v '^memory'
deltawire bench run/v0.safetensors run/v0.safetensors --sizes --codec tight --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(report['data']['changed'], report['codecs'][0])"
deltawire bench --codec gzip

# On a GPU copies are of weights that are named.
deltawire bench --device cuda --copies 3
deltawire bench OLD NEW --copies 3
deltawire bench --device cuda --model 8b OLD NEW
deltawire bench --device cuda OLD NEW --copies 0
