# What gc keeps and why, and when the rest goes: by the clock of the store.
export XDG_CACHE_HOME=$PWD/cache
times() { sed -E 's/[0-9]{4}-[0-9-]+T[0-9:]+Z/<when>/g'; }
deltawire simulate --params 20k --steps 7 -o sim -q
for i in 0 1 2 3 4 5 6 7; do deltawire publish sim/v$i.safetensors store --anchor-every 3 -q; done
deltawire pin store 1
deltawire pin store 7
deltawire gc store --keep 2 --dry-run
deltawire gc store --keep 2

# Objects stay for the grace period. The next call says until when.
deltawire gc store --keep 2 | times
deltawire gc store --keep 2 --json | python3 -c "
import json, os, sys
report = json.load(sys.stdin)
print(report['reasons'])
note, = os.listdir('store/trash')
for waiting in report['waiting']:
    print(waiting['why'], waiting['objects'], waiting['until'] - int(os.stat('store/trash/' + note).st_mtime))"

# It is the time of the note in the store that counts, not what its writer believed.
touch -d '59 minutes ago' store/trash/*.json
deltawire gc store --keep 2 | times | tail -1
touch -d '61 minutes ago' store/trash/*.json
deltawire gc store --keep 2 | times | tail -1
find store/parts store/full -type f -exec touch -d '2 hours ago' {} +
deltawire gc store --keep 2 | tail -1
ls -A store
deltawire fsck store | tail -1
