deltawire simulate --params 10k -o run -q

# Not there.
deltawire diff missing.safetensors run/v1.safetensors -o delta.safetensors
deltawire diff run/v0.safetensors missing/ -o delta.safetensors
deltawire diff run/v0.safetensors run/v1.safetensors -o no/such/folder/delta.safetensors

# Not a checkpoint.
echo 'hello, this is a text file and not a checkpoint' > text.safetensors
deltawire diff text.safetensors run/v1.safetensors -o delta.safetensors
head -c 5000 run/v0.safetensors > cut.safetensors
deltawire diff cut.safetensors run/v1.safetensors -o delta.safetensors
mkdir empty
deltawire diff empty run/v1.safetensors -o delta.safetensors

# Several files and no index: which of them?
deltawire diff run run/v1.safetensors -o delta.safetensors

# Options that are not known.
deltawire diff run/v0.safetensors run/v1.safetensors -o d.safetensors --codec gzip
deltawire diff run/v0.safetensors run/v1.safetensors -o d --part-size big

# A folder that is there already is not touched.
mkdir full && touch full/precious
deltawire diff run/v0.safetensors run/v1.safetensors -o full
ls full

# With --json the error is an object too, and still on stderr.
deltawire diff missing.safetensors run/v1.safetensors -o d.safetensors --json 2>/dev/null

# Nothing is left behind by any of these.
ls
