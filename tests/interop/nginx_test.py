#!/usr/bin/env python3
"""A standard cache before a server: eight replicas behind nginx, and the origin sends each byte of an object once.

usage: nginx_test.py DELTAWIRE

Twice: nginx keeps whole objects, and slices of them. The replicas download in pieces. Between nginx and the origin another
server of nginx notes what is asked for.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crash"))
from crash_world import World, run_test, wait_until  # noqa: E402

REPLICAS = 8
IMMUTABLE = ("parts/", "full/", "schemas/", "files/")

CONFIGURATION = """
{user} daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
  fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  log_format asked escape=none '$request_method $uri $status $body_bytes_sent';
  server {{
    listen unix:{root}/noted;
    access_log {root}/asked.log asked;
    location / {{ proxy_pass {origin}; proxy_http_version 1.1; proxy_buffering off; }}
  }}
  proxy_cache_path {root}/cache keys_zone=objects:10m max_size=1g use_temp_path=off;
  server {{
    listen unix:{root}/cached;
    listen 127.0.0.1:{port};
    proxy_http_version 1.1;
    proxy_cache objects;
    proxy_cache_lock on; proxy_cache_lock_timeout 600s; proxy_cache_lock_age 600s;
    {caching}
    location / {{ proxy_pass http://unix:{root}/noted; }}
  }}
}}
"""
SLICES = """slice 1m; proxy_cache_key $uri$is_args$args$slice_range; proxy_set_header Range $slice_range;"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def find_nginx():
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        print("skipped: nginx is not installed")
        sys.exit(77)
    return found


def start_nginx(nginx, root, origin, caching):
    port = free_port()
    root.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""  # the folder is nobody else's
    (root / "conf").write_text(CONFIGURATION.format(user=user, root=root, origin=origin, port=port, caching=caching))
    process = subprocess.Popen([nginx, "-p", str(root), "-e", str(root / "error.log"), "-c", str(root / "conf")])
    wait_until(lambda: process.poll() is not None or (root / "pid").exists(), "nginx starts")
    assert process.poll() is None, (root / "error.log").read_text()
    return process, f"http://127.0.0.1:{port}"


def sent_bytes(root):
    """The bytes that the origin has sent, by object."""
    sent = Counter()
    for line in (root / "asked.log").read_text().splitlines():
        method, uri, status, count = line.split()
        name = uri.removeprefix("/objects/")
        if name.startswith(IMMUTABLE) and status in ("200", "206"):
            sent[name] += int(count)
    return sent


def check_cache(world, nginx, origin, name, caching):
    """Replicas follow through a cache while versions are published; then count the bytes sent."""
    root = world.root / name
    process, url = start_nginx(nginx, root, origin, caching)
    replicas = [f"{name}-{number}" for number in range(REPLICAS)]
    processes = [world.start("follow", url, world.root / one, "--name", one, "--quiet") for one in replicas]
    try:
        first = world.head()
        for version in range(first + 1, first + 3):
            wait_until(lambda: all(world.held(one) == version - 1 for one in replicas), f"{name}: {version - 1} is held")
            world.must(*world.publish(version))
        wait_until(lambda: all(world.held(one) == version for one in replicas), f"{name}: {version} is held")
    finally:
        for one in [*processes, process]:
            one.terminate()
            one.wait()
    for one in replicas:
        world.must("verify", world.root / one, world.step(version))
    sent = sent_bytes(root)
    sizes = {one: (world.store / one).stat().st_size for one in sent}
    assert max(sizes.values()) > 4 << 20, f"too small to be cut into pieces: {sizes}"
    assert dict(sent) == sizes, f"{name}: sent {dict(sent)}, of {sizes}"
    print(f"{name}: {REPLICAS} replicas, {len(sent)} objects, {sum(sent.values())} bytes, each sent once")


def main(options, root):
    nginx = find_nginx()
    world = World(options.binary, root, root / "weights")
    world.simulate("8M", 5, 0.05)
    world.must(*world.publish(0))
    server = world.start("serve", world.store, "--listen", "127.0.0.1:0", "--json")
    try:
        origin = server.stdout.readline().split('"url":"')[1].split('"')[0]
        check_cache(world, nginx, origin, "whole", "")
        check_cache(world, nginx, origin, "slices", SLICES)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    run_test(main, __doc__)
