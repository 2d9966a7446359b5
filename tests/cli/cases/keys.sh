# Versions that are signed, and readers that insist on it.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 200k --steps 3 --seed 7 -o sim -q
deltawire keygen
deltawire keygen -o trainer
stat -c '%a %n' trainer trainer.pub
deltawire keygen -o trainer
deltawire keygen -o other -q
deltawire publish sim/v0.safetensors store --sign-key trainer -q
deltawire pull store replica --no-heartbeat --trust trainer.pub -q
deltawire log store --trust trainer.pub | wc -l

# Another key, no key, what is no key.
deltawire pull store fresh --no-heartbeat --trust other.pub 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire pull store fresh --no-heartbeat --trust missing.pub
deltawire pull store fresh --no-heartbeat --trust trainer
deltawire pull store fresh --no-heartbeat --trust sim/v0.safetensors
chmod 644 trainer
deltawire publish sim/v1.safetensors store --sign-key trainer
chmod 600 trainer trainer.pub
deltawire publish sim/v1.safetensors store --sign-key trainer.pub

# What is signed stays signed.
deltawire publish sim/v1.safetensors store 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire publish sim/v1.safetensors store --sign-key other 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/g'
deltawire compact store 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire anchor store 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire gc store --keep 1 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire publish sim/v1.safetensors store --change-key
deltawire publish sim/v1.safetensors store --unsigned --sign-key trainer

# Whoever can write to the store can add a version without a signature, or with another: nobody takes it.
cp -r store forged
deltawire publish sim/v1.safetensors forged --snapshot forger --unsigned -q
deltawire publish sim/v2.safetensors forged --sign-key trainer 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire pull forged replica --no-heartbeat --trust trainer.pub
deltawire publish sim/v2.safetensors forged --sign-key trainer --trust trainer.pub
deltawire fsck forged --trust trainer.pub | sed -E 's/-[0-9a-f]{12}\//-<attempt>\//'
deltawire verify sim/v0.safetensors replica

# Two keys in one file while they change.
cat trainer.pub other.pub > both.pub
deltawire publish sim/v1.safetensors store --sign-key other --change-key -q
deltawire publish sim/v2.safetensors store --sign-key trainer --trust both.pub -q
deltawire gc store --keep 3 --trust both.pub | head -1
deltawire pull store replica --no-heartbeat --trust trainer.pub 2>&1 | sed -E 's/[0-9a-f]{64}/<key>/'
deltawire pull store replica --no-heartbeat --trust both.pub | head -1
deltawire fsck store --trust both.pub
