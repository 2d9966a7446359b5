# The codec that arrives soonest: which one depends on the machine, that it is said does not.
export XDG_CACHE_HOME=$PWD/cache
chosen='s/(tight|gaps|raw)/CODEC/g; s/[0-9][0-9.e+-]*/N/g; s/CODEC N s \([^)]*\)(, CODEC N s \([^)]*\))*/FORECASTS/'
deltawire simulate --params 1M --steps 4 --seed 7 -o sim -q
deltawire publish sim/v0.safetensors store --codec fastest | grep -c '^codec'
deltawire publish sim/v1.safetensors store --codec fastest | grep '^codec' | sed -E "$chosen; s/; stays with.*//"
deltawire publish sim/v2.safetensors store --codec fastest --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(report['codec'] in ('tight', 'gaps', 'raw'), report['codec_reason'].startswith('fastest of '))"
deltawire show store 1 | grep '^chosen' | sed -E "$chosen; s/; stays with.*//"
deltawire log store --json | python3 -c "
import json, sys
for version in json.load(sys.stdin)['versions']:
    print(version['version'], version['codec'] in ('tight', 'gaps', 'raw'), 'codec_reason' in version)"

# Other codecs give no reason.
deltawire publish sim/v3.safetensors store --codec gaps --json | python3 -c "
import json, sys
report = json.load(sys.stdin)
print(report['codec'], repr(report['codec_reason']))"

# Single calls go on from what the last one measured; what cannot be read is measured again.
rates=$(echo cache/deltawire/snapshots/*/rates.json)
python3 -c "import json, sys; print(sorted(json.load(open(sys.argv[1]))))" $rates
echo '{' > $rates
deltawire publish sim/v4.safetensors store --codec fastest | grep -o 'upload 1000 MB/s (assumed of a folder, nothing was uploaded yet)'
deltawire pull store local -q && deltawire verify sim/v4.safetensors local -q && echo same
