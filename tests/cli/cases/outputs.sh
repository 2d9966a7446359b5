deltawire simulate --params 10k -o run -q
deltawire simulate --params 10k --shards 2 -o sharded -q
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors -q
sums=$(sha256sum run/* sharded/*/* delta.safetensors)

# An input is never the output, by whatever name.
deltawire diff run/v0.safetensors run/v1.safetensors -o run/v1.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o run/../run/v0.safetensors
ln run/v0.safetensors hard.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o hard.safetensors
deltawire diff sharded/v0 sharded/v1 -o sharded/v1/model-00001-of-00002.safetensors
deltawire diff sharded/v0 sharded/v1 -o sharded/v0/delta
deltawire apply delta.safetensors run/v0.safetensors -o delta.safetensors
deltawire apply delta.safetensors sharded/v0 -o sharded/v0

# Nothing but a file is replaced by a file, and nothing but an empty folder by a folder.
deltawire diff run/v0.safetensors run/v1.safetensors -o /dev/null
mkfifo pipe.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o pipe.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o hard.safetensors/parts
deltawire diff run/v0.safetensors run/v1.safetensors -o ""
deltawire simulate -o ""
mkdir folder
deltawire apply delta.safetensors run/v0.safetensors -o folder
deltawire apply delta.safetensors run/v0.safetensors -o new/
deltawire apply delta.safetensors sharded/v0 -o new.safetensors
touch file
deltawire apply delta.safetensors sharded/v0 -o file
echo "$sums" | sha256sum --check --quiet
ls

# Links are followed, and stay.
touch target.safetensors
ln -s target.safetensors link.safetensors
deltawire apply delta.safetensors run/v0.safetensors -o link.safetensors -q
readlink link.safetensors
cmp target.safetensors run/v1.safetensors

# A file may be patched in place; its permission bits are kept.
chmod 640 target.safetensors
deltawire diff run/v1.safetensors run/v0.safetensors -o back.safetensors -q
deltawire apply back.safetensors target.safetensors -o target.safetensors -q
cmp target.safetensors run/v0.safetensors
stat -c %a target.safetensors

# A full disk: the message has the name that was given.
(ulimit -f 4; trap '' XFSZ; deltawire diff sharded/v0 sharded/v1 --codec raw -o parts)
(ulimit -f 4; trap '' XFSZ; deltawire apply delta.safetensors sharded/v0 -o made)
(ulimit -f 4; trap '' XFSZ; deltawire simulate --params 1M --shards 2 -o large)
ls -d parts* made* large*
