# Three ways to ask.
deltawire help | head -3
deltawire help verify
diff <(deltawire help diff) <(deltawire diff --help)
diff <(deltawire help) <(deltawire --help)
deltawire help kernels --json | python3 -c "import json, sys; print(list(json.load(sys.stdin)))"
deltawire help frobnicate
