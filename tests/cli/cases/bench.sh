# Sizes do not depend on the machine.
deltawire simulate --params 100k -o run -q
deltawire bench codecs run/v0.safetensors run/v1.safetensors --sizes --codec gaps tight slime | sed -n '/^  codec/,/^  slime/p'

# Nothing changed: there is nothing to divide by.
deltawire bench codecs run/v0.safetensors run/v0.safetensors --sizes --codec gaps tight | sed -n '2,6p'
deltawire bench codecs run/v0.safetensors run/v0.safetensors --sizes --codec tight --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(report['data']['changed'], report['rows'][0])"
deltawire bench --codec gzip

# Times depend on the machine: the rows do not.
deltawire bench chain --params 100k --repeat 1 --no-s3 --rate 1000 --delay 1 --json | python3 -c "
import json, sys
for row in json.load(sys.stdin)['rows']:
    print(row['over'], row['how'], row['applied_seconds'] > 0, sep=' | ')"

# A case takes the options that it needs, and no others.
deltawire bench run/v0.safetensors run/v1.safetensors
deltawire bench chain --codec tight
deltawire bench versions run/v0.safetensors run/v1.safetensors
deltawire bench cuda --copies 3
deltawire bench cuda --model 8b OLD NEW
deltawire bench cuda OLD NEW --copies 0
