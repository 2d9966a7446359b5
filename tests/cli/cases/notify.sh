# Engines are told in order: pause, files change, reload, resume. The server does what a script says.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 4 --seed 7 -o sim -q
deltawire publish sim/v0.safetensors store -q
ok='[{"status": 200, "body": {"success": true, "results": [null]}}]'
cat > good.json <<END
{"POST /pause_generation": $ok, "POST /update_weights_from_disk": $ok, "POST /flush_cache": $ok,
 "POST /continue_generation": $ok, "GET /model_info": $ok, "POST /pause": $ok, "POST /resume": $ok,
 "POST /collective_rpc": $ok, "POST /reset_prefix_cache": $ok, "POST /reset_encoder_cache": $ok,
 "POST /update_weight_version": $ok}
END
mkfifo stdin && exec 9<>stdin
$TESTS/servers/http_script --script good.json --port-file port <&9 >/dev/null 2>&1 & server=$!
for _ in {1..100}; do [ -s port ] && break; sleep 0.1; done; port=$(cat port)
url=http://127.0.0.1:$port
cat > calls.py <<'END'
import json, sys, urllib.request
for r in json.load(urllib.request.urlopen(sys.argv[1] + "/_requests")):
    print(r["method"], r["path"] + ("?" + r["query"] if r["query"] else ""), r["body"] if r["body"] else "")
END
cat > script.py <<'END'
import sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/_script", open(sys.argv[2], "rb").read(), method="PUT")
urllib.request.urlopen(request).read()
END
script() { python3 script.py $url $1; }
pull() { deltawire pull store replica --no-heartbeat --notify-retries 0 --log-level off "$@" 2>&1 | sed -E "s/:$port/:<port>/; s/^time.*/time/"; }

pull --notify sglang=$url
python3 calls.py $url | sed -E 's/^(.{160}).*/\1…/'
script good.json
deltawire publish sim/v1.safetensors store -q
pull --notify vllm=$url --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(report['version'], report['serving'], {k: v for k, v in report['engines'][0].items() if k != 'reload_seconds'})" | sed "s/:$port/:<port>/"
python3 calls.py $url

# Nothing new and nothing to tell; an engine that has not got the version is told again.
script good.json
pull --notify vllm=$url
python3 calls.py $url

# One that refuses is resumed, and the state says what it serves. The files have moved on.
sed 's|"POST /collective_rpc": \[{"status": 200|"POST /collective_rpc": [{"status": 400|' good.json > refuses.json
script refuses.json
deltawire publish sim/v2.safetensors store -q
pull --notify vllm=$url
python3 calls.py $url | tail -1
deltawire status replica | grep -oE '(version|serving) [0-9a-z ]+'
pull --notify vllm=$url | grep -v error
deltawire status replica | grep -oE '(version|serving) [0-9a-z ]+'
script good.json
pull --notify vllm=$url
deltawire status replica | grep -oE '(version|serving) [0-9a-z ]+'

# One that cannot be paused keeps the files from changing.
sed 's|"POST /pause": \[{"status": 200|"POST /pause": [{"status": 500|' good.json > awake.json
script awake.json
deltawire publish sim/v3.safetensors store -q
pull --notify vllm=$url
deltawire verify sim/v2.safetensors replica
python3 calls.py $url

# A 200 of something else that listens there is no engine's word: nothing changes under it, nothing counts as loaded.
cat > page.json <<'END'
{"POST /pause": [{"body": "<html>please log in</html>"}], "POST /resume": [{"body": "<html>please log in</html>"}]}
END
script page.json
pull --notify vllm=$url
deltawire verify sim/v2.safetensors replica

# A key that the engine repeats is not shown, one that would be two headers is not sent.
cat > echo.json <<'END'
{"POST /pause": [{"status": 400, "body": {"error": "wrong key sk-secret"}}]}
END
script echo.json
DELTAWIRE_ENGINE_API_KEY=sk-secret pull --notify vllm=$url
DELTAWIRE_ENGINE_API_KEY=$'sk-secret\r\nX-Admin: 1' pull --notify vllm=$url

# A command in place of an engine.
script good.json
pull --exec 'echo "$DELTAWIRE_PHASE version $DELTAWIRE_VERSION in $(basename $DELTAWIRE_PATH)"'
deltawire publish sim/v4.safetensors store -q
pull --exec 'exit 3'
pull --exec 'sleep 30' --notify-timeout 0.1 2>&1 | grep -v '^engine'
deltawire verify sim/v4.safetensors replica

# What is no engine.
pull --notify triton=http://127.0.0.1
pull --notify sglang=http://user:secret@127.0.0.1
pull --notify sglang
kill $server; wait $server 2>/dev/null; true
