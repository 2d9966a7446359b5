# On a terminal, work that takes longer than a second shows how far it is: share, bytes, rate, time left.
export XDG_CACHE_HOME=$PWD/cache TERM=xterm
deltawire simulate --params 10M --steps 1 -o sim -q
bars() { script -qec "$1" /dev/null | tr '\r' '\n' | grep -aoE '(publish|pull) \[.*left'; }
first() { bars "$1" | sed -nE '1{s/\[[# ]*\]/[###]/; s/ +[0-9]+ %/ N %/; s/[0-9.]+ [kM]?B of/N of/; p}'; }
first 'deltawire publish sim/v0.safetensors store --rate-limit 10MB'
first 'deltawire pull store replica --rate-limit 10MB'
bars 'deltawire pull store quiet --rate-limit 10MB --quiet' | wc -l
