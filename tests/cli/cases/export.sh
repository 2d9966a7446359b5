# A chain for engines that only know other projects' files.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 1M --steps 3 --seed 7 -o sim -q
for i in 0 1 2; do deltawire publish sim/v$i.safetensors chain -q; done
deltawire export slime chain deltas
deltawire export slime chain deltas
deltawire publish sim/v3.safetensors chain -q
deltawire export slime chain deltas --json | python3 -c "import json, sys; v = json.load(sys.stdin); print(v['version'], v['base'], v['encoding'], v['checksum'], v['note'])"
find deltas -type f | sort
deltawire export slime chain overwrite --encoding overwrite --checksum adler32 --version 2
deltawire export slime chain whole --full --from 2 --quiet
deltawire verify whole/weight_v000003 sim/v3.safetensors
deltawire export slime-gen1 chain gen1 --encoding deltas_zstd

# An engine that cannot be reached: the files are there, and the next call tells it again.
deltawire export slime chain told --notify http://127.0.0.1:1 --notify-checkpoint /nvme/ckpt --notify-retries 0 --log-level off 2>&1 | cut -d: -f1-6
deltawire export slime chain told

# What a dialect cannot express is refused before anything is written.
deltawire export slime-gen1 chain no --full
deltawire export slime chain no --encoding zip
deltawire export slime chain no --checksum md5
deltawire export slime missing no
deltawire export slime chain no --from 9
deltawire export slime chain no --notify http://127.0.0.1:1
deltawire export slime chain no --notify sglang=http://127.0.0.1:1 --full
deltawire export slime chain s3://bucket/no --notify http://127.0.0.1:1 --notify-checkpoint /nvme/ckpt
deltawire export trl chain no --notify http://127.0.0.1:1 --notify-checkpoint /nvme/ckpt
find no -name 'weight_v*' 2>/dev/null
deltawire export slime chain gen1 2>&1 | sed -E 's/[0-9a-f]{32}/<run>/g'

# Both ways at once: a live chain, their files, a chain again.
deltawire export slime chain live --follow --interval 0.05 --log-level error >export.txt & out=$!
deltawire import slime live copy --base sim/v0.safetensors --follow --interval 0.05 --log-level error >import.txt & in=$!
until grep -q 'version 3' import.txt; do sleep 0.05; done
deltawire simulate --params 1M --steps 4 --seed 7 -o more -q
deltawire publish more/v4.safetensors chain -q
until grep -q 'version 4' import.txt; do sleep 0.05; done
kill -TERM $out; wait $out; echo "exit $?"
kill -TERM $in; wait $in; echo "exit $?"
deltawire pull copy replica -q
deltawire verify replica more/v4.safetensors
