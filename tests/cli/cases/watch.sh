# For trainers that just save: every checkpoint that is complete, in the order they were written.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 4 --seed 7 -o sim -q
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }
deltawire publish --watch saves store
mkdir saves
deltawire publish --watch saves store --once --settle 0 && ls
cp sim/v0.safetensors saves/step-000.safetensors
deltawire publish --watch saves store --settle 0.2 --interval 0.1 --json --log-format json --log-level info --metrics-port 0 >versions 2>events & publisher=$!
soon '[ -s store/manifests/0000000000.json ]'

# One that is still being written is waited for: half a file, then a folder without its weights, then what is no checkpoint.
head -c 100000 sim/v1.safetensors > saves/step-001.safetensors
mkdir saves/step-002 && echo '{}' > saves/step-002/config.json
echo notes > saves/notes.txt && cp sim/v0.safetensors saves/.hidden.safetensors
for name in step-001 step-002 notes.txt; do soon "grep -q 'watch.skipped.*$name' events"; done
ls store/manifests
cp sim/v1.safetensors saves/step-001.safetensors
soon '[ -s store/manifests/0000000001.json ]'
cp sim/v2.safetensors saves/step-002/model.safetensors
soon '[ -s store/manifests/0000000002.json ]'
cat > metrics.py <<'END'
import json, sys, urllib.request
port = next(e["port"] for e in map(json.loads, open("events")) if e["event"] == "metrics.listening")
text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
for name in sys.argv[1:]:
    print(*[line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name], sep="\n")
END
soon 'python3 metrics.py deltawire_head_version | grep -q 2'
python3 metrics.py deltawire_head_version deltawire_publishes_total

# SIGTERM ends it, without an error.
kill -TERM $publisher; wait $publisher
# What was passed over is told, once.
cat > skipped.py <<'END_OF_SKIPPED'
import collections, json
events = [e for e in map(json.loads, open("events")) if e["event"] == "watch.skipped"]
reasons = {"run past the data", "no .safetensors file", "neither a .safetensors file nor a folder"}
print(*sorted({(e["path"], reason) for e in events for reason in reasons if reason in e["reason"]}), sep="\n")
counts = collections.Counter((e["path"], e["reason"]) for e in events if e["path"].endswith("notes.txt"))
print("notes:", *counts.values())
END_OF_SKIPPED
python3 skipped.py && rm saves/notes.txt
python3 -c "
import json
for line in open('versions'):
    report = json.loads(line)
    print(report['checkpoint'], report['version'], report['kind'], report['changed'])"

# Those that were published are remembered; new ones come in the order of their writing, not of their names.
cp sim/v3.safetensors saves/b.safetensors && touch -d '+1 sec' saves/b.safetensors
cp sim/v4.safetensors saves/a.safetensors && touch -d '+2 sec' saves/a.safetensors
deltawire publish --watch saves store --settle 0 --once | sed -E 's/:.*//'
deltawire publish --watch saves store --settle 0 --once
deltawire pull store replica --no-heartbeat -q && deltawire verify sim/v4.safetensors replica
deltawire publish sim/v0.safetensors store --once

# A port that is taken is told before anything else is done.
python3 -c "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(600)" >port & holder=$!
soon '[ -s port ]'
deltawire publish --watch saves fresh --once --metrics-port $(cat port) 2>&1 | sed -E 's/port [0-9]+/port <port>/'
kill $holder
deltawire publish --watch saves fresh --once --metrics-port 0 --metrics-address 192.0.2.1
ls fresh
echo notes > saves/notes.txt
deltawire publish --watch saves store --once --settle 0 --metrics-port 0 2>&1 | sed -E 's/port [0-9]+/port <port>/; s/^[0-9:]{8} //'
