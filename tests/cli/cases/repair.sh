# What is wrong with local files is found before any of them changes, named, and mended unless that is refused.
export XDG_CACHE_HOME=$PWD/cache
names='s/-[0-9a-f]{12}\//-<attempt>\//g; s/[0-9a-f]{64}/<sha>/g; s/[0-9a-f]{32}/<digest>/g; s/^[0-9:]{8} //'
pull() { deltawire pull store replica --no-heartbeat --log-level off "$@" 2>&1 | sed -E "$names"; }
deltawire simulate --params 200k --steps 3 --seed 7 -o sim -q
for i in 0 1; do deltawire publish sim/v$i.safetensors store -q; done
pull --quiet
deltawire publish sim/v2.safetensors store -q

# A weight was edited.
printf '\1' | dd of=replica/model.safetensors bs=1 seek=5000 conv=notrunc status=none
cp replica/model.safetensors before
pull --no-repair
cmp replica/model.safetensors before && cat replica/.deltawire/state.json | grep -o '"version": *[0-9]*'
pull
deltawire verify sim/v2.safetensors replica

# The file is gone, cut short, another model's. `--verify` looks even when there is nothing to fetch.
rm replica/model.safetensors && pull --no-repair
pull | grep repaired
truncate -s 1000 replica/model.safetensors && pull --no-repair
pull | grep repaired
deltawire simulate --params 30k --steps 1 --seed 1 -o small -q
cp small/v0.safetensors replica/model.safetensors && pull --no-repair
pull | grep repaired
touch -d 2001-01-01 replica/model.safetensors && pull --verify --no-repair
deltawire verify sim/v2.safetensors replica

# A part in the store was tampered with, cut short, removed: named, and nothing local changes.
deltawire publish sim/v3.safetensors store -q
part=$(echo store/parts/0000000003-*/part-00000.safetensors) && cp $part good
printf '\377' | dd of=$part bs=1 seek=900 conv=notrunc status=none && pull
truncate -s 100 $part && pull
rm $part && pull
deltawire verify sim/v2.safetensors replica
cp good $part && pull | head -1

# With an anchor it is gone around; the publisher still has the weights to make one.
deltawire publish sim/v2.safetensors store --anchor-every 1 -q
part=$(echo store/parts/0000000004-*/part-00000.safetensors) && truncate -s 100 $part
pull --no-repair
pull
deltawire verify sim/v2.safetensors replica

# Two at once: the second is told who is first.
flock replica/.deltawire/lock deltawire pull store replica 2>&1 | sed -E 's/by .*/by <who>/'
