# slime's flags, with their defaults: which cells of mode x transport there are.
deltawire simulate --params 10k --shards 2 -o run -q
ln -s run/v0 base && ln -s run/v1 ckpt
flags="--update-weight-mode delta --update-weight-transport disk --update-weight-disk-dir updates --update-weight-local-checkpoint-dir local"
deltawire slime-publish ckpt
deltawire slime-publish ckpt --update-weight-mode delta
deltawire slime-publish ckpt --update-weight-transport disk
deltawire slime-publish ckpt --update-weight-mode delta --update-weight-transport disk --update-weight-disk-dir updates
deltawire slime-publish ckpt --colocate $flags
deltawire slime-publish ckpt --use-p2p-weight-update $flags
deltawire slime-publish ckpt --update-weight-transport disk --update-weight-disk-dir updates --update-weight-encoding deltas
deltawire slime-publish ckpt $flags --update-weight-delta-encoding gzip
ls

# A delta needs to know what version 0 is.
deltawire slime-publish ckpt $flags
deltawire slime-publish ckpt $flags --hf-checkpoint base
deltawire slime-publish ckpt $flags --hf-checkpoint base
ls updates updates/weight_v000001
cat local/.weight_sync/state.json

# An engine of its own follows; the old name of the folder's flag is known.
deltawire slime-pull updates engine --version 1 --base base --sglang-update-weight-delta-read-workers 1 --vllm-update-weight-delta-chunk-bytes 1MiB
deltawire verify engine ckpt
deltawire slime-pull updates engine --version 1 --base base
deltawire slime-publish base --update-weight-mode full --update-weight-transport disk --update-weight-delta-dir updates
deltawire slime-pull updates engine --version 2
deltawire verify engine base
deltawire slime-pull updates engine --version 3
deltawire slime-pull updates fresh --version 1
deltawire serve-pull --root nowhere
deltawire serve-pull
deltawire slime-push --update-weight-disk-dir nowhere --engine http://127.0.0.1:1
