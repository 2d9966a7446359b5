# A replica that keeps up by itself, what it says, and how it ends.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 4 --seed 7 -o sim -q
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
at() { deltawire status replica --json 2>/dev/null | grep -q "\"version\":$1,"; }

# Started before there is anything: it waits, says so once, and has nothing to complain about.
deltawire follow store replica --name one --interval 0.2 --json --log-format json --metrics-port 0 >versions 2>events & follower=$!
soon 'grep -q follow.waiting events'
grep -oE '"event":"follow.*' events
deltawire publish sim/v0.safetensors store -q
soon 'at 0'
for i in 1 2; do deltawire publish sim/v$i.safetensors store -q; done
soon 'at 2'

# Metrics, while it runs.
cat > metrics.py <<'END'
import json, sys, urllib.request
port = next(e["port"] for e in map(json.loads, open("events")) if e["event"] == "metrics.listening")
text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
for name in sys.argv[1:]:
    print(*[line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name], sep="\n")
END
soon 'python3 metrics.py deltawire_version | grep -q 2'
python3 metrics.py deltawire_head_version deltawire_version deltawire_lag_versions deltawire_repairs_total
python3 metrics.py deltawire_pulls_total deltawire_failures_total | sed 's/ [0-9]*$/ <n>/'
soon 'deltawire status store | grep -qE "one +2 +0"' # the heartbeat comes after it
deltawire status replica | sed -E 's/[0-9a-f]{32}/<run>/'
deltawire status store | sed -E 's/[0-9a-f]{32}/<run>/'

# It ends when it is told to, without an error. One object for each step that it made, the last one to version 2.
kill -TERM $follower; wait $follower
python3 -c "
import json
steps = [json.loads(line) for line in open('versions')]
print(all(a['version'] == b['from'] for a, b in zip(steps, steps[1:])), steps[0]['from'], steps[-1]['version'])"
deltawire verify sim/v2.safetensors replica

# As far as a version; one look only; one that is there already.
for i in 3 4; do deltawire publish sim/v$i.safetensors store -q; done
deltawire follow store replica --no-heartbeat --until 3 --log-level off
deltawire follow store replica --no-heartbeat --until 3 --log-level off
deltawire follow store replica --no-heartbeat --once --log-level off | head -1
deltawire verify sim/v4.safetensors replica

# Lag is counted from the head.
deltawire publish sim/v0.safetensors store -q
deltawire status store --json | python3 -c "
import json, sys
store = json.load(sys.stdin)['status'][0]
print(store['head'], [(r['name'], r['held']['version'], r['lag']) for r in store['replicas']])"
deltawire status nowhere replica | sed -E 's/[0-9a-f]{32}/<run>/'

# An engine that says no does not end it: it is told again.
deltawire follow store replica --no-heartbeat --interval 0.1 --exec 'test -e allowed' --log-format json >/dev/null 2>events & follower=$!
soon 'grep -q follow.failed events'
deltawire status replica | grep -oE '(version|serving) [0-9a-z ]+'
touch allowed
soon 'deltawire status replica 2>/dev/null | grep -q "serving 5"'
kill -TERM $follower; wait $follower

# What no waiting helps against ends it.
deltawire publish sim/v0.safetensors another -q
deltawire follow another replica --log-level off 2>&1 | sed -E 's/[0-9a-f]{32}/<run>/g'
flock replica/.deltawire/lock deltawire follow store replica --log-level off 2>&1 | sed -E 's/by .*/by <who>/'
deltawire follow store replica --interval 0
deltawire follow store replica --metrics-port 99999
