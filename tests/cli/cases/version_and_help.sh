# What a newcomer types first.
deltawire --version
deltawire --help

# Every verb explains itself, with examples.
deltawire diff --help
deltawire apply --help
deltawire verify --help
deltawire inspect --help
deltawire simulate --help
deltawire kernels --help
deltawire completion --help

# Mistakes on the command line end with 2.
deltawire
deltawire frobnicate
deltawire diff
deltawire diff a.safetensors b.safetensors
deltawire verify a.safetensors b.safetensors --threads 0
deltawire verify a.safetensors b.safetensors --frobnicate
