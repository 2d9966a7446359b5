#!/usr/bin/env python3
"""A replica in a process of its own: keeps a folder at the newest version of a run. numpy is all it needs.

follow.py STORE FOLDER [--until VERSION]
"""

import argparse

import deltawire as dw


def main() -> None:
    """Pull what is new, and say so, until the last version is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("folder")
    parser.add_argument("--until", type=int)
    args = parser.parse_args()
    with dw.Replica(args.store, args.folder) as replica:
        for pulled in replica.follow(until=args.until):
            # Here an engine would be told: engine.reload(pulled.path, version=pulled.version)
            print(f"{replica.local.name}: {pulled!r}", flush=True)


if __name__ == "__main__":
    main()
