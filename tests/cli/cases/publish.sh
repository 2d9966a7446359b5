# A chain in a folder: the seed whole, then what changed, then nothing.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 1M --steps 3 --seed 7 -o sim -q
deltawire publish sim/v0.safetensors store | sed -E 's/[0-9a-f]{32}/<run>/'
deltawire publish sim/v1.safetensors store | sed -E 's/[0-9a-f]{32}/<run>/'
deltawire publish sim/v1.safetensors store | sed -E 's/[0-9a-f]{32}/<run>/'
deltawire publish sim/v2.safetensors store --anchor-every 1 --codec gaps --quiet
deltawire publish sim/v3.safetensors store --mode full | sed -E 's/[0-9a-f]{32}/<run>/'
find store -type f | sed -E 's/[0-9a-f]{64}/<sha>/; s/-[0-9a-f]{12}\//-<attempt>\//; s/-[0-9a-f]{14}/-<bytes>/g' | sort

# A hook may say no; what was put is taken back.
deltawire publish sim/v0.safetensors store --hook-before-commit 'echo "version $DELTAWIRE_VERSION?"; exit 4'
find store -name '*0000000004*'

# What is wrong with a command line is said.
deltawire publish sim/v0.safetensors
deltawire publish sim/missing store
deltawire publish sim/v0.safetensors store --codec zip
deltawire publish sim/v0.safetensors store --memory-limit 1M
deltawire publish sim/v0.safetensors store --no-anchors --anchor-every 4
deltawire publish sim/v0.safetensors store --mode most
deltawire publish sim/v0.safetensors store --mode full --anchor-every 4
deltawire publish sim/v0.safetensors store --mode full --no-anchors

# Arguments in the wrong order, and what is neither a checkpoint nor a store.
deltawire publish store sim/v0.safetensors
deltawire publish s3://bucket/run sim/v0.safetensors
deltawire publish new sim
deltawire publish --watch store sim
deltawire publish store store
printf 'PK\x03\x04 and so on' > pytorch_model.bin
deltawire publish pytorch_model.bin store
mkdir torch && cp pytorch_model.bin torch && deltawire publish torch store
mkdir papers && touch papers/letter.txt
deltawire publish sim/v0.safetensors papers
ls papers
mkdir -p disk/lost+found && touch disk/.hidden && deltawire publish sim/v0.safetensors disk -q && ls disk
deltawire publish sim/v0.safetensors store --metrics-port 0

# Masters in float32, nearly all of which change.
$TESTS/cli/make-checkpoint m0.safetensors w:F32:100:3f800000
$TESTS/cli/make-checkpoint m1.safetensors w:F32:100:3f800001
deltawire publish m0.safetensors masters -q
deltawire publish m1.safetensors masters | grep -E '^(changed|whole|hint)'
