# Whoever can write to the store, or restores it from an older copy, takes no replica back.
export XDG_CACHE_HOME=$PWD/cache
names='s/[0-9a-f]{64}/<sha>/g; s/[0-9a-f]{32}/<run>/g; s/^[0-9:]{8} //'
pull() { deltawire pull "$@" --no-heartbeat --log-level off 2>&1 | sed -E "$names"; }
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
deltawire simulate --params 30k --steps 6 --seed 7 -o sim -q
deltawire keygen -o trainer -q
for i in 0 1 2 3 4 5; do deltawire publish sim/v$i.safetensors store --sign-key trainer -q; done
pull store replica --trust trainer.pub | head -1
cp -r store whole

# The newest manifests are removed.
rm store/manifests/000000000[345].json
pull store replica --trust trainer.pub
deltawire verify sim/v5.safetensors replica
pull store replica --trust trainer.pub --json
# With `--until` it waits for what is wanted, and for nothing else.
deltawire follow store replica --no-heartbeat --until 2 --log-level off
# Named by its number, an older version is gone to.
cp -r replica other && pull store other --trust trainer.pub --version 2 | head -1

# `follow` says so, counts it, leaves the engine alone, and goes on when they are back.
deltawire follow store replica --no-heartbeat --interval 0.1 --exec 'echo $DELTAWIRE_VERSION >>loaded' --log-format json >/dev/null 2>events & follower=$!
soon 'grep -q "has lost versions 3 to 5" events'
cat loaded
cp whole/manifests/* store/manifests/
soon 'test -e loaded'
deltawire publish sim/v6.safetensors store --sign-key trainer -q
soon 'grep -q 6 loaded'
kill -TERM $follower; wait $follower
deltawire verify sim/v6.safetensors replica
deltawire follow store replica --no-heartbeat --until 1 --log-level off
deltawire status replica --json | grep -o '"version":[0-9]*' | head -n 1

# The store is gone, as if it were not mounted.
mv store away
pull store replica
mkdir store && pull store replica
rmdir store && mv away store

# Another history: version 3 is published once more, with other weights, and so on. Signed or not.
rm store/manifests/000000000[3456].json && rm -r cache
for i in 0 1 2 0 1; do deltawire publish sim/v$i.safetensors store --sign-key trainer -q; done
pull store replica --trust trainer.pub
deltawire verify sim/v6.safetensors replica
pull store replica --trust trainer.pub --version 7 | grep -E 'version|repaired'
deltawire verify sim/v1.safetensors replica

# A new replica has nothing to compare with, but what it is told.
run=$(deltawire log store --json | grep -oE '"run":"[0-9a-f]{32}"' | head -1 | cut -d'"' -f4)
deltawire publish sim/v0.safetensors old --sign-key trainer -q
pull old fresh --trust trainer.pub --run $run
pull store fresh --trust trainer.pub --run $run --at-least 8
pull store fresh --trust trainer.pub --run $run --at-least 7 | head -1
pull store fresh --run trainer
