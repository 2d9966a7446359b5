#!/usr/bin/env python3
"""A replica in its own process: keeps a folder at the newest version of a run. It needs only numpy.

follow.py STORE FOLDER [--until VERSION]
"""

import argparse

import deltawire as dw


def main() -> None:
    """Pull new versions and print them, up to the last one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("folder")
    parser.add_argument("--until", type=int)
    args = parser.parse_args()
    with dw.Replica(args.store, args.folder) as replica:
        for pulled in replica.follow(until=args.until):
            # Here an engine would be notified: engine.reload(pulled.path, version=pulled.version)
            print(f"{replica.local.name}: {pulled!r}", flush=True)


if __name__ == "__main__":
    main()
