# What cannot be printed is an error: the disk is full, or stdout is closed.
deltawire simulate --params 10k -o run -q
deltawire simulate --params 10k -o other > /dev/full
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors > /dev/full
deltawire diff run/v0.safetensors run/v1.safetensors -o delta.safetensors --json > /dev/full
deltawire apply delta.safetensors run/v0.safetensors -o made.safetensors > /dev/full
deltawire verify run/v0.safetensors run/v0.safetensors > /dev/full
deltawire verify run/v0.safetensors run/v1.safetensors > /dev/full
deltawire inspect delta.safetensors --json > /dev/full
deltawire kernels > /dev/full
deltawire completion fish > /dev/full
deltawire help > /dev/full
deltawire --help > /dev/full
deltawire --version > /dev/full
deltawire diff --help > /dev/full
deltawire verify run/v0.safetensors run/v0.safetensors >&-
export XDG_CACHE_HOME=$PWD/cache
deltawire publish run/v0.safetensors store > /dev/full
deltawire pull store replica --no-heartbeat > /dev/full
deltawire log store > /dev/full
deltawire status store > /dev/full
deltawire plan store --from 0 > /dev/full
deltawire fsck store > /dev/full
deltawire gc store --keep 1 > /dev/full

# Those that go on by themselves say so when they end.
mkdir saves && cp run/v1.safetensors saves
deltawire publish --watch saves store --once --settle 0 --log-level off > /dev/full
deltawire follow store replica --no-heartbeat --once --log-level off > /dev/full
deltawire publish run/v0.safetensors store -q
deltawire follow store replica --no-heartbeat --once --json --log-level off > /dev/full
deltawire verify run/v0.safetensors replica

# An error of the verb itself comes first.
deltawire verify run/v0.safetensors missing --json > /dev/full

# Nothing to print, nothing lost. A file that is opened in place of stdout stays what it is.
deltawire diff run/v0.safetensors run/v1.safetensors -o quiet.safetensors -q > /dev/full
deltawire apply delta.safetensors run/v0.safetensors -o closed.safetensors -q >&-
deltawire apply delta.safetensors run/v0.safetensors -o closed.safetensors >&- 2>&-
cmp closed.safetensors run/v1.safetensors
cmp quiet.safetensors delta.safetensors

# Who has seen enough may go: no message, whether the signal is taken or not.
deltawire inspect run/v0.safetensors | head -1
(trap '' PIPE; deltawire inspect run/v0.safetensors | true; echo "${PIPESTATUS[0]}")
