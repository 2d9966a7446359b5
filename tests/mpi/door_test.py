#!/usr/bin/env python3
"""One mpirun, one publisher, two replicas, over MPI: door_test.py DELTAWIRE-MPI MAKE-CHECKPOINT; 77 where no mpirun is."""
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main() -> int:
    program, make_checkpoint = sys.argv[1:]
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        return 77
    root = Path(tempfile.mkdtemp())
    try:
        wanted = root / "model.safetensors"
        subprocess.run([sys.executable, make_checkpoint, wanted, "w:BF16:512,64:3f80,3f81,bf80"], check=True)
        address = f"127.0.0.1:{free_port()}"
        command = ["mpirun"]
        if "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
            command += ["--allow-run-as-root", "--oversubscribe"]
        command += ["-n", "1", program, "publish", wanted, root / "store", "--log-format", "json", "--log-level", "info", "--ship", address]
        command += ["--ship-carrier", "mpi", "--ship-wait", "2"]
        for name in "ab":
            command += [":", "-n", "1", program, "follow", f"ship://{address}", root / name, "--until", "0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        text = ended.stdout + ended.stderr
        assert ended.returncode == 0, text
        events = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith('{"')]
        groups = [(one["carrier"], one["size"]) for one in events if one["event"] == "ship.group"]
        assert groups == [("mpi", 3)], text
        assert not [one for one in events if one["event"] in ("ship.failed", "ship.note")], text
        for name in "ab":
            assert (root / name / wanted.name).read_bytes() == wanted.read_bytes()
        print("two replicas hold version 0, over MPI")
    finally:
        shutil.rmtree(root)
    return 0


sys.exit(main())
