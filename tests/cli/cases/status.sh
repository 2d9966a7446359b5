# What status says of replicas that are gone, ahead, of another run or of another history; and forget.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 20k --steps 4 -o sim -q
deltawire publish sim/v0.safetensors store -q && deltawire publish sim/v1.safetensors store -q
runs() { sed -E -e 's/run [0-9a-f]{32}/run <run>/' -e 's/run [0-9a-f]{8}/run <other>/'; }
pull() { deltawire pull "$1" "local-$2" --name "$2" --version "$3" -q; }
copy() { cp $1/replicas/* store/replicas; touch -d tomorrow store/replicas/*; } # however long this test takes, they are alive

# One that is current, one that is behind.
pull store current 1
pull store behind 0
touch -d tomorrow store/replicas/*
deltawire status store | runs

# A copy of the store that went on by itself: versions that the store never had, or other ones of the same number.
cp -r store fork && rm -r fork/replicas
for n in 3 4; do XDG_CACHE_HOME=$PWD/other-host deltawire publish sim/v$n.safetensors fork -q; done
pull fork ahead 3 && pull fork history 2
copy fork
deltawire status store | runs
deltawire publish sim/v2.safetensors store -q
deltawire status store | runs

# Another run. What holds it is told by the exit status, as long as it is alive.
deltawire publish sim/v2.safetensors elsewhere -q
pull elsewhere other-run 0
copy elsewhere && rm store/replicas/history.json
deltawire status store | runs
deltawire status store --json | python3 -c "
import json, sys
for r in json.load(sys.stdin)['status'][0]['replicas']:
    print(r['name'], r['held']['version'], r['standing'], r['lag'], r['gone'], r['interval_seconds'])"

# Gone: by the age of its heartbeat in the store, whatever its own clock said.
touch -d '1 hour ago' store/replicas/other-run.json
touch -d '3 days ago' store/replicas/ahead.json
deltawire status store | runs

# Forget those; not the ones that are alive.
deltawire forget store ahead
deltawire forget store other-run --json
deltawire forget store nobody
deltawire forget store current 2>&1 | sed -E 's/[0-9]+ s ago/N s ago/'
deltawire forget store current --force
deltawire status store | runs

# Names and contents that somebody made up.
deltawire pull store local-evil --name $'\e[31mevil\nname' -q
deltawire pull store local-long --name "$(head -c 300 /dev/zero | tr '\0' x)" -q
echo '{"garbage": "' > store/replicas/torn.json
touch -d tomorrow store/replicas/*
deltawire status store | runs
touch -d '1 hour ago' store/replicas/*
deltawire forget store '\x1b[31mevil\x0aname'
deltawire forget store replicas/torn.json
deltawire status store | runs

# Again and again; not a terminal: plain text. A reader that goes away ends it, and so does Ctrl-C.
deltawire status store --watch --interval 0.1 | head -7 | runs | sed -E 's/^[0-9-]+T[0-9:]+Z/<when>/' | cut -c-40 | sed 's/ *$//'
deltawire status store --watch --interval 0.1 --json > looks & watcher=$!
until [[ $(wc -l < looks) -ge 3 ]]; do sleep 0.1; done
kill -INT $watcher; wait $watcher
python3 -c "
import json
print({(look['status'][0]['head'], len(look['status'][0]['replicas'])) for look in map(json.loads, open('looks'))})"
deltawire status nowhere --watch

# An outage, or a store that goes away, is shown, and passes.
deltawire status store --watch --interval 0.1 > looks & watcher=$!
until grep -q head looks; do sleep 0.1; done
mv store away; until grep -q error looks; do sleep 0.1; done
mv away store; n=$(grep -c head looks); until [[ $(grep -c head looks) -gt $n ]]; do sleep 0.1; done
kill -TERM $watcher; wait $watcher
grep error looks | sort -u
