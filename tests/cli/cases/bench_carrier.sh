# Times depend on the machine: the rows do not.
deltawire bench carrier --ranks 2 3 --size 1MiB --repeat 1 --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
for row in report['rows']:
    print(row['ranks'], row['what'], row['seconds'] > 0, row['bytes_per_second_of_a_rank'] > 0)"
deltawire bench carrier --ranks 1
