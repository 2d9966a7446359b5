# Another model is not published into a run, unless its tensors are meant to change.
export XDG_CACHE_HOME=$PWD/cache
publish() { deltawire publish "$@" --log-level off | grep -vE '^(phases|time) ' | sed -E 's/[0-9a-f]{32}/<run>/'; }
$TESTS/cli/make-checkpoint a.safetensors w:BF16:2,3:3f80,0000,7fc1 gone:I32:2:1 grown:F32:2:40490fdb ids:I64:4:7
$TESTS/cli/make-checkpoint b.safetensors w:BF16:2,3:3f81,8000,7fc2 new:U8:5:aa grown:F32:3:40490fdb ids:I64:4:7
$TESTS/cli/make-checkpoint c.safetensors x.0:BF16:2:3f80 x.1:BF16:2:3f80 x.2:BF16:2:3f80 x.3:BF16:2:3f80
deltawire publish a.safetensors store -q
deltawire publish b.safetensors store
deltawire publish c.safetensors store
deltawire publish c.safetensors store --mode full
ls store/manifests
publish b.safetensors store --schema-change
publish c.safetensors store --schema-change
publish a.safetensors store --schema-change --mode full
deltawire publish b.safetensors store --schema-change --json | grep -oE '"(elements|changed|density|tensors[a-z_]*)":[^,]*'
deltawire log store | sed -E 's/[0-9-]{10}T[0-9:]{8}Z/<created>/'
deltawire show store 1 | grep -E '^(changed|schema|tensors)'
deltawire show store 4 --json | grep -oE '"schema_change":"[^,]*'

# What is done with chains goes on: merged deltas, anchors, late replicas, retention.
deltawire compact store --span 2 -q && deltawire anchor store -q
deltawire pull store late --no-heartbeat -q && deltawire verify b.safetensors late
deltawire pull store older --no-heartbeat --version 2 -q && deltawire verify c.safetensors older
deltawire pull store older --no-heartbeat -q && deltawire verify b.safetensors older
deltawire gc store --keep 1 --grace 0s -q && deltawire fsck store -q
deltawire mirror store copy -q && deltawire pull copy other --no-heartbeat -q && deltawire verify b.safetensors other

# A folder that is watched: the other model ends it.
mkdir saves && cp b.safetensors saves/1.safetensors && cp c.safetensors saves/2.safetensors && touch -d '+1 sec' saves/2.safetensors
deltawire publish --watch saves store2 --settle 0 --once 2>&1 | sed -E 's/, whole.*//; s/: [0-9]+ B in .*//'
deltawire publish --watch saves store2 --settle 0 --once --schema-change | sed -E 's/: [0-9]+ B in [^,]*,/:/'
