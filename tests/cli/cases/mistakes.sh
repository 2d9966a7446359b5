# What people mistype, and what they are told.
deltawire simulate --params 10k --steps 2 -o run -q
deltawire simulate --params 10k --shards 2 -o sharded -q
deltawire diff run/v0.safetensors run/v1.safetensors -o parts --codec gaps --part-size 100B -q
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors -q

# Options and verbs.
deltawire dif run/v0.safetensors run/v1.safetensors
deltawire xyzzy
deltawire diff run/v0.safetensors run/v1.safetensors --outptu d.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o d.safetensors --frobnicate=7
deltawire --frobnicate
deltawire verify a b c
deltawire help dif
deltawire verify run/v0.safetensors run/v0.safetensors --threads 0
deltawire verify run/v0.safetensors run/v0.safetensors -j abc
deltawire verify run/v0.safetensors run/v0.safetensors -j 010
deltawire verify run/v0.safetensors run/v0.safetensors -j
deltawire verify a b c --json 2>/dev/null

# Numbers.
for seed in -1 1.5 18446744073709551616 010 0x10 "" ten; do
  deltawire simulate -o x --params 10k --seed "$seed" || echo "[exit $?]"
done
deltawire simulate -o largest --params 10k --seed 18446744073709551615 -q
deltawire bench --quick --seed -1
deltawire bench --params 0
deltawire bench --quick --density 0
for size in big 0 -5 1.2.3 5XB 0x10 nan; do
  deltawire diff run/v0.safetensors run/v1.safetensors -o d --part-size "$size" || echo "[exit $?]"
done
deltawire diff run/v0.safetensors run/v1.safetensors -o d.safetensors --part-size 1MB

# A part of a delta, an index, a delta for a checkpoint.
deltawire apply parts/part-00001.safetensors run/v0.safetensors -o made.safetensors
deltawire inspect parts/part-00001.safetensors | head -2
deltawire apply parts/delta.index.json run/v0.safetensors -o made.safetensors
deltawire inspect parts/delta.index.json
deltawire inspect sharded/v0/model.safetensors.index.json
deltawire verify run/v0.safetensors sharded/v0/model.safetensors.index.json
deltawire verify delta.safetensors run/v1.safetensors
deltawire verify run/v0.safetensors parts
deltawire apply delta.safetensors parts -o made.safetensors
deltawire diff run/v0.safetensors delta.safetensors -o d.safetensors
deltawire bench codecs run/v0.safetensors delta.safetensors
deltawire inspect delta.safetensors --base parts
rm parts/delta.index.json
deltawire inspect parts
deltawire apply parts run/v0.safetensors -o made.safetensors
deltawire apply parts/part-00001.safetensors run/v0.safetensors -o made.safetensors

# Names that could steer a terminal are shown, not obeyed.
cp run/v0.safetensors $'red\e[31m.safetensors'
deltawire inspect $'red\e[31m.safetensors' | head -1
deltawire verify $'red\e[31m.safetensors' $'no\nsuch\tfile\x9b'
deltawire verify $'red\e[31m.safetensors' run/v1.safetensors | head -2

# Nothing came of any of these.
ls
