deltawire simulate --params 10k --steps 2 -o run -q
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors --codec gaps -q

# The wrong base: found before a byte is written.
deltawire apply delta.safetensors run/v2.safetensors -o made.safetensors
deltawire apply delta.safetensors run/v1.safetensors -o made.safetensors --json 2>/dev/null

# A base that differs only in a tensor that the delta leaves alone.
$TESTS/cli/make-checkpoint a.safetensors w:BF16:4:3f80 n:F32:1:0
$TESTS/cli/make-checkpoint b.safetensors w:BF16:4:3f81 n:F32:1:0
$TESTS/cli/make-checkpoint c.safetensors w:BF16:4:3f80 n:F32:1:80000000
deltawire diff a.safetensors b.safetensors -o small.safetensors -q
deltawire apply small.safetensors c.safetensors -o made.safetensors

# Truncated, at several places.
size=$(stat -c %s delta.safetensors)
for part in 0 4 100 $((size / 2)) $((size - 1)); do
  head -c $part delta.safetensors > cut.safetensors
  deltawire apply cut.safetensors run/v0.safetensors -o made.safetensors || echo "[exit $?]"
done

# One bit flipped in a payload.
cp delta.safetensors flipped.safetensors
printf '\x01' | dd of=flipped.safetensors bs=1 seek=$((size - 10)) conv=notrunc status=none
deltawire apply flipped.safetensors run/v0.safetensors -o made.safetensors

# A checkpoint where a delta should be, and the other way round.
deltawire apply run/v1.safetensors run/v0.safetensors -o made.safetensors
deltawire apply delta.safetensors delta.safetensors -o made.safetensors

# Not there.
deltawire apply missing.safetensors run/v0.safetensors -o made.safetensors
deltawire apply delta.safetensors missing.safetensors -o made.safetensors
mkdir empty
deltawire apply empty run/v0.safetensors -o made.safetensors

# A delta in parts that lost one, or got another's.
deltawire diff run/v0.safetensors run/v1.safetensors -o parts --part-size 100 --codec gaps -q
deltawire diff run/v1.safetensors run/v2.safetensors -o other-parts --part-size 100 --codec gaps -q
mv parts/part-00001.safetensors kept
deltawire apply parts run/v0.safetensors -o made.safetensors
cp other-parts/part-00001.safetensors parts/
deltawire apply parts run/v0.safetensors -o made.safetensors

# A folder that is there already is not touched.
deltawire simulate --params 10k --shards 2 -o sharded -q
mkdir full && touch full/precious
deltawire diff sharded/v0 sharded/v1 -o d.safetensors -q
deltawire apply d.safetensors sharded/v0 -o full
ls full

# No checkpoint came of any of these.
find . -name 'made*' -o -name '*.tmp'
