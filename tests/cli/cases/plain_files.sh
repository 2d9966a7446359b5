# Whole versions are packed, or plain checkpoints: the same weights either way.
export XDG_CACHE_HOME=$PWD/cache
names() { find "$1/full" -type f | sed -E 's/-[0-9a-f]{12}\//-<attempt>\//' | sort; }
deltawire simulate --params 1M --steps 2 --seed 7 -o sim -q
deltawire publish sim/v0.safetensors packed -q
deltawire publish sim/v0.safetensors plain --plain-files -q
names packed
names plain
cmp plain/full/*/model.safetensors sim/v0.safetensors
for store in packed plain; do deltawire pull $store from-$store -q; done
cmp from-packed/model.safetensors sim/v0.safetensors
cmp from-plain/model.safetensors sim/v0.safetensors

# An anchor is what it is asked to be, whatever the other versions are.
deltawire publish sim/v1.safetensors packed -q
deltawire publish sim/v1.safetensors plain --plain-files -q
deltawire anchor packed --plain-files -q
deltawire anchor plain -q
names packed
names plain
cmp packed/full/0000000001-*/model.safetensors sim/v1.safetensors
deltawire pull plain anew -q
cmp anew/model.safetensors sim/v1.safetensors
deltawire fsck packed
deltawire fsck plain

# A version that is published whole.
deltawire publish sim/v2.safetensors plain --mode full --plain-files -q
cmp plain/full/0000000002-*/model.safetensors sim/v2.safetensors
