# A store where a replica's folder is wanted, and the reverse; files that are no checkpoints.
export XDG_CACHE_HOME=$PWD/cache
deltawire simulate --params 20k --steps 1 -o sim -q
deltawire publish sim/v0.safetensors store -q
deltawire pull store local --no-heartbeat -q

# Swapped.
deltawire follow local store
deltawire pull local store
deltawire pull local s3://bucket/run
ls
deltawire log local
deltawire publish sim/v1.safetensors local

# A store is no checkpoint, and no delta.
deltawire inspect store
deltawire inspect s3://bucket/run
deltawire verify store local
deltawire apply store sim/v0.safetensors -o out

# What torch.save writes.
python3 -c "import pickle; pickle.dump({'w': 1}, open('pickled.bin', 'wb'))"
python3 -c "import zipfile; zipfile.ZipFile('zipped.bin', 'w').writestr('archive/data.pkl', 'x')"
for file in pickled.bin zipped.bin; do deltawire inspect $file; deltawire diff $file sim/v0.safetensors -o out; deltawire apply $file sim/v0.safetensors -o out; deltawire verify $file sim/v0.safetensors; done
mkdir hf && mv zipped.bin hf/pytorch_model.bin
deltawire inspect hf

# A port that is taken.
python3 -c "
import socket, subprocess
taken = socket.socket(); taken.bind(('127.0.0.1', 0)); taken.listen()
port = taken.getsockname()[1]
done = subprocess.run(['deltawire', 'follow', 'store', 'other', '--metrics-port', str(port)], capture_output=True, text=True)
print(done.stderr.replace(str(port), '<port>'), end='')
exit(done.returncode)"
