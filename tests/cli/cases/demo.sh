# The main job with a small model. Sizes of zstd depend on its version.
deltawire demo --params 1M --steps 4 | grep -v '^  slime ' | sed -E 's/^ +[0-9.]+ s  //; s/^(replica b  killed with SIGKILL).*/\1/; s/: [0-9.]+ [kM]B in .*//; s|(folder: ).*|\1<folder>|' | sort -u
deltawire demo --steps 1
