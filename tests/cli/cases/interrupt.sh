# SIGTERM and Ctrl-C end hooks and calls of engines at once. Nothing is half done, and the engine goes on.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 10k --steps 2 --seed 7 -o sim -q
deltawire publish sim/v0.safetensors store -q
ended() { ! grep -qs "^State:.[^Z]" /proc/$1/status; }
soon() { for _ in {1..1200}; do eval "$1" 2>/dev/null && return; sleep 0.1; done; echo "never: $1"; return 1; }

# A hook: its whole process group is ended, and nothing is committed.
deltawire publish sim/v1.safetensors store -q --hook-before-commit 'sleep 600 & echo $! >child; wait' 2>said & publisher=$!
soon 'test -s child'
kill -TERM $publisher; wait $publisher
cat said
soon 'ended $(cat child)'
deltawire log store --json | grep -o '"version":[0-9]*'

# Where whoever started it ignores SIGCHLD, as some containers do, a hook that says no is heard.
ignoring() { python3 -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
ignoring deltawire publish sim/v1.safetensors store -q --hook-before-commit 'exit 3'
deltawire publish sim/v1.safetensors store -q

# An engine that never answers: it is resumed, and which version it serves is not known.
ok='[{"body": {"success": true, "status": "ok"}}]'
echo "{\"POST /pause\": $ok, \"POST /collective_rpc\": [{\"do\": \"hang\"}], \"POST /resume\": $ok}" >hangs.json
mkfifo stdin && exec 9<>stdin
$TESTS/servers/http_script --script hangs.json --port-file port <&9 >/dev/null 2>&1 & server=$!
soon 'test -s port'; url=http://127.0.0.1:$(cat port)
calls() { python3 -c "import json, sys, urllib.request
for r in json.load(urllib.request.urlopen('$url/_requests')): print(r['method'], r['path'])"; }
called() { [[ $(calls) == *$1* ]]; }  # and not `grep -q`, which leaves before the last line is written
deltawire pull store replica --no-heartbeat --log-level off --notify vllm=$url >said 2>&1 & puller=$!
soon 'called collective_rpc'
kill -INT $puller; wait $puller
grep -v ^time said | sed "s|$url|<url>|"
calls
deltawire status replica --json | grep -oE '"(version|serving)":[0-9a-z]+'

# For `follow` this is the usual end.
deltawire follow store replica --no-heartbeat --log-level off --notify vllm=$url >/dev/null & follower=$!
soon 'test $(calls | grep -c collective_rpc) = 2'
kill -TERM $follower; wait $follower
calls | tail -1

# A command: ended with what it has started.
deltawire pull store replica --no-heartbeat -q --log-level off --exec 'sleep 600 & echo $! >exec-child; wait' 2>said & puller=$!
soon 'test -s exec-child'
kill -TERM $puller; wait $puller
cat said
soon 'ended $(cat exec-child)'
kill $server; wait $server 2>/dev/null; true

# A store that is down: nobody waits for its next answer.
echo '{"GET /bucket/run/run.json": [{"status": 503}], "GET /bucket/hangs/run.json": [{"do": "hang"}]}' >down.json
$TESTS/servers/http_script --script down.json --port-file s3-port <&9 >/dev/null 2>&1 & server=$!
soon 'test -s s3-port'; url=http://127.0.0.1:$(cat s3-port)
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=s
for run in run hangs; do
  deltawire log s3://bucket/$run --endpoint $url --retries 1000 2>said & reader=$!
  soon "called $run"
  kill -TERM $reader; wait $reader; echo $?
  sed "s| *(tried.*||" said
done
kill $server; wait $server 2>/dev/null; true
