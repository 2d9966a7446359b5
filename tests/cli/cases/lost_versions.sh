# A store that lost its newest versions: nothing is published upon them, nor others under their numbers.
export XDG_CACHE_HOME=$PWD/cache
names='s/[0-9a-f]{64}/<sha>/g; s/[0-9a-f]{32}/<run>/g; s/-[0-9a-f]{12}/-<attempt>/'
publish() { deltawire publish "$@" --log-level off 2>&1 | grep -vE '^(bytes|full|phases|time) ' | sed -E "$names"; }
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
deltawire simulate --params 30k --steps 6 --seed 7 -o sim -q
for i in 0 1 2 3 4; do deltawire publish sim/v$i.safetensors store -q; done
deltawire pull store replica --no-heartbeat -q
cp -r store whole
rm store/manifests/0000000004.json
publish sim/v5.safetensors store
publish sim/v5.safetensors store --mode full --json
ls store/manifests | tail -1

# A publisher that runs meanwhile says so, and goes on when they are back.
cp -r whole live && mkdir saves
deltawire publish --watch saves live --snapshot live-snapshot --settle 0 --interval 0.1 -q 2>events & watcher=$!
cp sim/v5.safetensors saves/v5.safetensors
soon '[ -s live/manifests/0000000005.json ]'
mkdir away && mv live/manifests/0000000005.json away
cp sim/v6.safetensors saves/v6.safetensors
soon 'grep -q "lost version 5" events'
ls live/manifests | tail -1
mv away/0000000005.json live/manifests
soon '[ -s live/manifests/0000000006.json ]'
kill -TERM $watcher; wait $watcher
deltawire fsck live -q

# Somebody else publishes another version 4.
deltawire publish sim/v2.safetensors store --snapshot other -q
publish sim/v5.safetensors store
rm store/manifests/0000000004.json

# The loss is accepted: a whole version, and the chain is sound again.
publish sim/v5.safetensors store --accept-loss
deltawire log store -n 2 | sed -E 's/[0-9-]{10}T[0-9:]{8}Z/<created>/'
deltawire fsck store | sed -E "$names"
deltawire pull store late --no-heartbeat -q && deltawire verify sim/v5.safetensors late
deltawire pull store replica --no-heartbeat --log-level off 2>&1 | sed -E "$names"
publish sim/v6.safetensors store
deltawire pull store late --no-heartbeat -q && deltawire verify sim/v6.safetensors late

# A copy of the store, or a mirror that is behind, has lost as much.
publish sim/v6.safetensors whole
