# A run that began with xxh3-128 goes on with it, whatever is the default of new ones.
deltawire simulate --params 100k --steps 3 -o run -q
deltawire publish run/v0.safetensors store --snapshot snapshot --digest xxh3-128 -q
deltawire pull store replica --name r -q
deltawire publish run/v1.safetensors store --snapshot snapshot -q
deltawire publish run/v2.safetensors store --snapshot elsewhere -q
deltawire publish run/v3.safetensors store --snapshot snapshot --digest sum128 -q
deltawire show store 3 | grep digests
deltawire pull store replica --name r -q
deltawire verify run/v3.safetensors replica
deltawire compact store -q
deltawire anchor store -q
deltawire fsck store | tail -n 1
deltawire pull store late --name late -q
deltawire verify run/v3.safetensors late
