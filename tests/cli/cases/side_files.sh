# Files beside the weights belong to a version: configuration, tokenizer, whatever they are called.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 2 --seed 7 -o sim -q
mkdir step logs && mv sim/v0.safetensors step/model.safetensors && mv logs step/
echo '{"layers": 2}' > step/config.json; echo '[]' > 'step/chat template é.jinja'; touch step/.lock step/optimizer.pt
deltawire publish step store | grep -E 'note|bytes'
deltawire pull store replica | grep -E 'version|beside'

# A change of them alone is a version.
echo '{"layers": 2, "rope": 1}' > step/config.json
deltawire publish step store | grep -E 'version|changed|bytes' | sed -E 's/[0-9a-f]{32}/<run>/'
deltawire publish step store | sed -E 's/[0-9a-f]{32}/<run>/' | grep nothing
mv sim/v1.safetensors step/model.safetensors && rm 'step/chat template é.jinja' && echo hi > step/README.md
deltawire publish step store -q
deltawire show store 2 | grep -E '^(kind|file)'
deltawire pull store replica | grep -E 'version|beside'
deltawire pull store fresh -q
diff -r -x .deltawire replica fresh && ls fresh
deltawire pull store replica --version 1 -q && cat replica/config.json replica/chat*
deltawire fsck store
find store/files store/full -type f | sed -E 's/[0-9a-f]{64}/<sha>/; s/-[0-9a-f]{12}\//-<attempt>\//' | sort

# Files of others stay; what is in the way of the version's is put aside.
echo mine > replica/README.md; echo mine > replica/notes.txt
deltawire pull store replica --log-level off | grep -E 'version|set aside'
cat replica/README.md replica/notes.txt replica/.deltawire/aside/1/README.md
echo edited > replica/config.json
deltawire pull store replica --no-repair
deltawire pull store replica --log-level off | grep -E 'repaired|set aside|beside'

# What replicas would refuse is not published.
touch step/current
deltawire publish step store
rm step/current && touch step/v0000000001
deltawire publish step store
rm step/v0000000001 && truncate -s 1025M step/vocabulary.txt
deltawire publish step store
rm step/vocabulary.txt && touch step/readme.md
deltawire publish step store
