# A run in slime's files becomes a chain, number by number.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 1M --steps 3 --seed 7 -o sim -q
for i in 0 1 2 3; do deltawire publish sim/v$i.safetensors trainer -q; done
deltawire export slime trainer deltas -q
deltawire inspect deltas
deltawire inspect deltas/weight_v000002 | head -8
deltawire import slime deltas store --base sim/v0.safetensors --to 2
deltawire pull store replica --version 2 -q
deltawire verify replica sim/v2.safetensors
deltawire import slime deltas store --json | python3 -c "import json, sys; v = json.load(sys.stdin); print(v['version'], v['kind'], v['source']['encoding'], v['source']['checksum'])"
deltawire import slime deltas store
diff <(deltawire show trainer 3 --json | python3 -c "import json, sys; print(json.load(sys.stdin)['state'])") <(deltawire show store 3 --json | python3 -c "import json, sys; print(json.load(sys.stdin)['state'])")
deltawire fsck store | tail -1
deltawire show store 3 | grep origin

# Their files by themselves.
deltawire apply deltas/weight_v000001 sim/v0.safetensors -o v1.safetensors
deltawire verify v1.safetensors sim/v1.safetensors
deltawire verify deltas/weight_v000002 sim/v2.safetensors
deltawire verify deltas/weight_v000002 sim/v1.safetensors | head -2
deltawire apply deltas/weight_v000003 sim/v0.safetensors -o v3.safetensors 2>&1 | sed -E 's/[0-9a-f]{32}/<digest>/g'
deltawire apply deltas sim/v0.safetensors -o v3.safetensors

# What does not fit is refused by name, and nothing is committed.
deltawire import slime deltas other --base sim/v2.safetensors 2>&1 | sed -E 's/[0-9a-f]{32}/<digest>/g'
deltawire import slime deltas other
deltawire import slime nothing other --base sim/v0.safetensors
deltawire import slime deltas trainer --base sim/v0.safetensors
cp -r deltas moved
deltawire import slime moved store
deltawire import slime moved store --source-moved
rm -r deltas/weight_v000002
deltawire import slime deltas other --base sim/v0.safetensors
deltawire import slimy deltas other
deltawire import slime deltas other --version 1 --from 1
deltawire import slime deltas other --listen 127.0.0.1:0
deltawire import trl deltas other --follow --listen 127.0.0.1:0
deltawire import slime deltas other --follow --listen 30500
deltawire import slime deltas other --follow --listen 127.0.0.1:0 --engine 127.0.0.1:30000
deltawire import slime deltas other --follow --engine http://127.0.0.1:30000
ls other

# A store that is gone: who names the base begins anew.
rm -r store
deltawire import slime moved store --base sim/v0.safetensors --to 1 -q
deltawire log store --json | python3 -c "import json, sys; print(json.load(sys.stdin)['head'])"

# A live bridge ends when it is told to.
deltawire import slime moved live --base sim/v0.safetensors --follow --interval 0.05 --log-level error >follow.txt & pid=$!
until grep -q 'version 3' follow.txt; do sleep 0.05; done
kill -TERM $pid; wait $pid; echo "exit $?"
cut -c1-60 follow.txt

# Generation 1 marks nothing as complete: who follows waits for the next version, or for DONE.
deltawire export slime-gen1 trainer gen1 -q && rm gen1/*/DONE
deltawire import slime-gen1 gen1 waiting --base sim/v0.safetensors --follow --interval 0.05 2>events >waiting.txt & pid=$!
until grep -q 'version 3' events; do sleep 0.05; done
kill -TERM $pid; wait $pid; echo "exit $?"
cut -c1-60 waiting.txt
sed -E 's/^[^ ]* //' events
deltawire import slime-gen1 gen1 waiting 2>events | cut -c1-60
sed -E 's/^[^ ]* //' events
