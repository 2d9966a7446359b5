# Versions straight from a publisher to replicas.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 3 --seed 7 -o sim -q
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
here() { sed -E "s/:$port\b/:PORT/g; s/[0-9a-f]{32}/<run>/g"; }
echo "between us" > secret
echo "others" > other

# Two replicas wait for a publisher, which waits for them; then versions as they are saved.
mkdir saved
for name in a b; do
  deltawire follow ship://127.0.0.1:$port $name --secret-file secret --json >$name.json 2>$name.log & replicas+=" $!"
done
deltawire publish --watch saved store --ship 127.0.0.1:$port --ship-secret-file secret --ship-wait 2 --json >published 2>trainer.log &
publisher=$!
for i in 0 1 2 3; do
  cp sim/v$i.safetensors saved/v$i.tmp && mv saved/v$i.tmp saved/v$i.safetensors
  soon "grep -q '\"version\":$i,' published"
  soon "grep -q '\"version\":$i,' a.json && grep -q '\"version\":$i,' b.json"
done
kill -TERM $replicas; wait $replicas
deltawire verify sim/v3.safetensors a
deltawire verify sim/v3.safetensors b
python3 -c "
import json
for one in map(json.loads, open('published')): print(one['version'], one['kind'], one.get('warnings', []))
for one in map(json.loads, open('a.json')): print('a', one['version'], one['from'], one['hops'], one['repaired'])"

# Whatever reads a chain reads the publisher's.
deltawire log ship://127.0.0.1:$port --secret-file secret | wc -l
deltawire pull ship://127.0.0.1:$port late --secret-file secret -q && deltawire verify sim/v3.safetensors late

# Mistakes.
deltawire pull ship://127.0.0.1:$port no 2>&1 | here
deltawire pull ship://127.0.0.1:$port no --secret-file other 2>&1 | here
deltawire pull ship://127.0.0.1:$port no --secret-file nowhere 2>&1 | here
deltawire publish sim/v1.safetensors ship://127.0.0.1:$port --secret-file secret 2>&1 | here
deltawire publish sim/v1.safetensors ship://127.0.0.1:$port --secret-file secret --single-writer 2>&1 | here
deltawire mirror store ship://127.0.0.1:$port --dest-secret-file secret 2>&1 | here
deltawire publish sim/v1.safetensors store --ship 0.0.0.0:0 2>&1 | here

# Nobody is there any more; a store behind answers.
kill -TERM $publisher; wait $publisher
deltawire pull ship://127.0.0.1:$port behind --secret-file secret --behind store -q 2>away && deltawire verify sim/v3.safetensors behind
grep -c "publisher away" away
