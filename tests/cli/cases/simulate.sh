# The same seed gives the same bits, on every machine and with any number of threads.
deltawire simulate --params 1M --steps 2 -o run
sha256sum run/*
deltawire simulate --params 1M --steps 2 -o again --threads 3 -q
diff -r run again
deltawire simulate --params 1M --steps 2 --seed 2 -o other -q
cmp run/v0.safetensors other/v0.safetensors

# Masters: the trainer's own F32. All weights move at every step; rounded to BF16, as many change as in `run`.
deltawire simulate --params 1M --steps 2 --masters -o masters
sha256sum masters/*

# Shards: the same tensors in several files with an index.
deltawire simulate --params 1M --steps 1 --shards 3 -o sharded
find sharded -type f | sort
deltawire verify run/v1.safetensors sharded/v1

# What it writes is within a per cent or two of what was asked.
for params in 10k 300k 3M 10M; do
  deltawire simulate --params $params --steps 0 -o size -q --force
  echo "$params: $(deltawire inspect size/v0.safetensors | grep ^tensors)"
done

# The law: changes halve with each exponent, 88 to 91 % of them are one ULP.
deltawire simulate --params 8M -o law --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(list(report))
print(report['params'], report['steps'], report['density'], report['paths'])"
deltawire diff law/v0.safetensors law/v1.safetensors -o law.safetensors -q
deltawire inspect law.safetensors --base law/v0.safetensors --json | python3 -c "
import json, sys
movement = json.load(sys.stdin)['movement'][0]
one = movement['steps']['1'] + movement['steps']['-1']
print(f'{one / movement[\"changed\"]:.1%} are one ULP')
for row in movement['exponents']:
    if isinstance(row['exponent'], int) and -17 < row['exponent'] < -4: print(row['exponent'], f'{row[\"p_changed\"]:.4f}')"

# Nothing is overwritten unasked.
deltawire simulate --params 10k -o run
deltawire simulate --params 10k --shards 2 -o sharded
deltawire simulate --params 10k --shards 2 -o sharded --force
find sharded -type f | sort

# Arguments that cannot be.
deltawire simulate
deltawire simulate -o x --params 999
deltawire simulate -o x --params many
deltawire simulate -o x --density 0
deltawire simulate -o x --density 0.6
deltawire simulate -o x --steps -1
deltawire simulate -o x --steps 501
deltawire simulate -o x --shards 0
deltawire simulate -o x --params 1000 --shards 99
touch file
deltawire simulate -o file
find . -name x -o -name '*.tmp'
