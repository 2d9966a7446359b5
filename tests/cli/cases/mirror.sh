# A chain in a second store, byte for byte.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 6 --seed 7 -o sim -q
for i in 0 1 2 3; do deltawire publish sim/v$i.safetensors source -q; done
deltawire anchor source 2 -q
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
same() { for kind in run.json manifests parts full schemas hops; do diff -r $1/$kind $2/$kind; done; }

# It begins at the newest anchor, or at the oldest version.
deltawire mirror source late
deltawire mirror source all --all
deltawire mirror source all --all
same source all && echo same
deltawire fsck late
deltawire pull late replica -q
deltawire verify sim/v3.safetensors replica
deltawire status source | sed -E 's/[0-9a-f]{32}/<run>/; s/ +/ /g; s/^ [^ ]*:mirror:/ HOST:mirror:/; s/ [0-9]+ s ago/ now/'

# A mirror of a mirror, as JSON.
deltawire mirror all leaf --since 3 --json | python3 -c "
import json, sys
for one in map(json.loads, sys.stdin): print(one['kind'], one['version'], one.get('objects'), one.get('there'), one.get('begins'))"

# Retention of its own.
deltawire mirror source all --keep 1 --grace 0 -q
for i in 4 5; do deltawire publish sim/v$i.safetensors source -q; done
deltawire mirror source all --keep 1 --grace 0
deltawire log all | grep -c delta
deltawire mirror source all --keep 1 --grace 0

# For ever, until it is told to stop: with metrics, and through an outage.
deltawire mirror source live --all --follow --interval 0.1 --json --log-format json --metrics-port 0 >versions 2>events & mirror=$!
soon 'grep -q "\"version\":5" versions'
cat > metrics.py <<'END'
import json, sys, urllib.request
port = next(e["port"] for e in map(json.loads, open("events")) if e["event"] == "metrics.listening")
text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
for name in sys.argv[1:]:
    print(*[line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name], sep="\n")
END
soon 'python3 metrics.py deltawire_mirrored_total | grep anchor >seen'
python3 metrics.py deltawire_head_version deltawire_version deltawire_lag_versions deltawire_mirrored_total
mv source away; soon 'grep -q mirror.failed events'; mv away source
deltawire publish sim/v6.safetensors source -q
soon 'grep -q "\"version\":6" versions'
kill -TERM $mirror; wait $mirror
same source live && echo same

# Damage in the mirror is found and mended.
part=$(find live/parts -type f | sort | tail -1); truncate -s -1 $part
deltawire mirror source live --verify
deltawire fsck live
# Damage in the source is named, and does not travel.
part=$(find source/parts -type f | sort | tail -1); truncate -s -1 $part
deltawire mirror source fresh --all 2>&1 | tail -2 | sed -E 's/-[0-9a-f]{12}/-<attempt>/'
ls fresh/manifests | wc -l

# What is refused, before anything is written.
deltawire publish sim/v0.safetensors other --snapshot elsewhere -q
deltawire mirror source other 2>&1 | sed -E 's/[0-9a-f]{32}/<run>/g'
deltawire mirror source source
deltawire mirror source no --all --since 3
deltawire mirror source no --since 99
deltawire mirror nothing no
deltawire mirror source no --grace 1h
deltawire mirror late source 2>&1 | tail -2
