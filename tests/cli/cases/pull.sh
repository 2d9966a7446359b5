# From a store to a folder, and on from there.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 3 --seed 7 -o sim -q
deltawire pull store replica
deltawire publish sim/v0.safetensors store -q
deltawire pull store replica --name one
deltawire pull store replica --name one
for i in 1 2 3; do deltawire publish sim/v$i.safetensors store -q; done
deltawire pull store replica --name one --version 1
deltawire pull store replica --name one
deltawire verify sim/v3.safetensors replica
ls -A replica replica/.deltawire

# Back to an older version: from the seed again.
deltawire pull store replica --name one --version 2 | grep version
deltawire verify sim/v2.safetensors replica
deltawire pull store replica --name one --version 0003 --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print({key: report[key] for key in ('version', 'from', 'changed', 'repaired', 'hops', 'changed_elements')})"

# A version that is not there; a number that is none.
deltawire pull store replica --version 9
deltawire pull store replica --version -1
deltawire pull store replica --version 3.5

# Copy-on-write: a folder per version, and a link.
for i in 0 1 2 3; do deltawire pull store cow --copy-on-write --keep-versions 1 --name two --version $i -q; done
ls cow && readlink cow/current
deltawire verify sim/v3.safetensors cow/current

# Not the place for a replica.
mkdir other && echo notes > other/notes.txt
deltawire pull store other
deltawire pull store sim/v0.safetensors
deltawire pull store cow
deltawire pull store replica --copy-on-write
deltawire publish sim/v1.safetensors another -q
deltawire pull another replica 2>&1 | sed -E 's/[0-9a-f]{32}/<run>/g'

# A name is what its replica chose: it does not steer the terminal that shows it.
deltawire pull store named --name "$(printf 'rollout\033[2J\n-3')" -q
deltawire status store | grep rollout | awk '{print $1}'
