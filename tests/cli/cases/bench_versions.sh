# Requests do not depend on the machine, nor grow with the chain.
deltawire bench versions --versions 10 1000 --tensors 1000 --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
for row in report['rows']:
    print(f\"{row['versions']:5}  {row['what']:24} {row['requests']:3} requests, {row['hops']:2} hops, {row['planned_bytes']} bytes\")
print(report['records']['manifest_bytes'] // 1000, 'bytes of manifest per tensor;', 'at most', report['goals']['most_requests'], 'requests')"
deltawire bench versions --versions 0
