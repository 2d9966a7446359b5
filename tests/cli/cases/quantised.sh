# A quantised run, which the Python package published: the C++ program shows its settings, and why a version is whole.
cp -r $TESTS/golden/v1/quantised store
deltawire show store 1 | grep -v created
deltawire show store 2 --tensors | grep -v created
deltawire show store 1 --json | python3 -c "
import json, sys
print(json.loads(json.load(sys.stdin)['quantization'])['groups'])"
deltawire log store | cut -c1-9,32-
# Who only reads needs to know nothing of it.
deltawire pull store replica --name r -q
deltawire fsck store | tail -n 1
# Other tools may not go on with it by mistake.
deltawire publish replica store --snapshot snapshot
