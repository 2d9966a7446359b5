# What people do to a replica's folder: it is noticed, and put right.
export XDG_CACHE_HOME=$PWD/cache
names='s/[0-9a-f]{32}/<hex>/g; s/, [0-9]+ s ago//; s/^[0-9:]{8} //'
pull() { deltawire pull store "$@" --no-heartbeat --log-level off 2>&1 | sed -E "$names" | grep -vE '^(fetched|patched|time)'; }
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
edit() { printf '\1' | dd of=$1 bs=1 seek=5000 conv=notrunc status=none; }
deltawire simulate --params 30k --steps 3 --seed 7 -o sim -q
for i in 0 1; do deltawire publish sim/v$i.safetensors store -q; done

# Somebody writes to the files while an engine loads them: that is no version, and is never recorded as one.
pull replica --version 0
pull replica --exec 'printf "\1" | dd of=$DELTAWIRE_PATH/model.safetensors bs=1 seek=5000 conv=notrunc status=none'
deltawire status replica | sed -E "$names"
pull replica
deltawire verify sim/v1.safetensors replica

# state.json is gone: the files say which version they are. If they are none, they are left alone.
rm replica/.deltawire/state.json
deltawire status replica
pull replica
rm replica/.deltawire/state.json && edit replica/model.safetensors && cp replica/model.safetensors edited
pull replica
pull replica --no-repair
cmp edited replica/model.safetensors
mv replica/model.safetensors . && pull replica
deltawire verify sim/v1.safetensors replica

# A first pull that never came to its end.
mkdir -p early/.deltawire && touch early/.deltawire/lock
deltawire status early && deltawire status early --json
pull early

# Copy-on-write: the link is gone, points elsewhere, is none.
for i in 0 1; do pull cow --copy-on-write --version $i >/dev/null; done
rm cow/current && pull cow --copy-on-write --no-repair
pull cow --copy-on-write
ln -sfn v0000000000 cow/current && pull cow --copy-on-write
readlink cow/current
pull cow --copy-on-write
rm cow/current && mkdir cow/current && pull cow --copy-on-write
rmdir cow/current && deltawire publish sim/v2.safetensors store -q && pull cow --copy-on-write
readlink cow/current

# The folder is removed under `follow`: it is made anew, and locked anew.
deltawire follow store replica --no-heartbeat --interval 0.1 --log-format json >/dev/null 2>events & follower=$!
soon 'deltawire status replica 2>/dev/null | grep -q "version 2"'
mv replica gone
soon 'deltawire status replica 2>/dev/null | grep -q "version 2"'
grep -c replica.folder_replaced events
deltawire pull store replica --no-heartbeat 2>&1 | sed -E 's/by .*/by <who>/'
# So is the store: it says so, and goes on when it is back.
mv store away && soon 'grep -q "holds no run any more" events'
mv away store && deltawire publish sim/v3.safetensors store -q
soon 'deltawire status replica 2>/dev/null | grep -q "version 3"'
kill -TERM $follower; wait $follower
deltawire verify sim/v3.safetensors replica
