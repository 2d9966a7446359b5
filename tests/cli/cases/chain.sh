# What is in a chain, and what it would cost to follow it.
export XDG_CACHE_HOME=$PWD/cache
ids='s/-[0-9a-f]{12}\//-<attempt>\//g; s/[0-9a-f]{64}/<sha>/g; s/[0-9a-f]{32}/<id>/g; s/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z/<when>/g; s/[a-z0-9.-]+:[0-9]+,/<who>,/'
deltawire simulate --params 200k --steps 6 --seed 7 -o sim -q
mkdir empty
deltawire log empty
deltawire status empty
for i in 0 1 2 3 4 5; do deltawire publish sim/v$i.safetensors store -q; done
deltawire log store | sed -E "$ids"
deltawire log store -n 2 --json | python3 -c "import json, sys; print([v['version'] for v in json.load(sys.stdin)['versions']])"
deltawire show store 3 | sed -E "$ids"
deltawire show store 3 --tensors | sed -E "$ids" | tail -3
deltawire show store 9
deltawire plan store
deltawire compact store --span 2,4
deltawire compact store --span 2,4
deltawire plan store
deltawire plan store --from 1 --to 4
deltawire plan store --from 4 --to 2
deltawire plan store --from 5
deltawire plan store --from 9
deltawire anchor store 4
deltawire anchor store 4
deltawire plan store | tail -1
deltawire fsck store

# Retention: what is pinned stays, and what leads to it.
deltawire pin store 1
deltawire pin store 9
deltawire unpin store 2
deltawire gc store --keep 1 --dry-run
deltawire gc store --keep 1
deltawire fsck store --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print({key: report[key] for key in ('sound', 'versions', 'orphans', 'waiting', 'warnings')})"
deltawire gc store --keep 1 --grace 0s
deltawire log store | sed -E "$ids"
deltawire pull store replica --no-heartbeat -q && deltawire verify sim/v5.safetensors replica
deltawire pull store old --no-heartbeat --version 1 -q && deltawire verify sim/v1.safetensors old
deltawire pull store older --no-heartbeat --version 2
deltawire unpin store 1
deltawire gc store --keep 1 --grace 0s
deltawire gc store --keep 1 --grace 0s
deltawire gc store --keep 0
deltawire gc store --keep 1 --grace soon
deltawire fsck store

# A replica from before starts again from the anchor by itself.
deltawire publish sim/v6.safetensors store -q
deltawire pull store old --no-heartbeat | head -2
deltawire verify sim/v6.safetensors old

# A damaged record does not hide the others.
sed -i s/auto/gaps/ store/manifests/0000000005.json
deltawire log store | sed -E "$ids"
