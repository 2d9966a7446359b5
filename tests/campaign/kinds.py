"""Each kind of attack: a function that does one trial in an empty world and raises Violation when a promise does
not hold. The seed decides everything that the machine's timing does not."""
import json
import os
import shutil
import time

import xxhash
from chaos import chaos  # noqa: F401
from world import Violation, chain_of, explain, finished, require  # isort: split

import crash_test
import crash_world
import fault_test
import race_test


def kill(world):
    """SIGKILL at a random sync point of a random command, which is then restarted."""
    name, (steps, command, version) = world.rng.choice(list(crash_test.scenarios().items()))
    inner = crash_test.ChainWorld(world.binary, world.root / "world", world.weights)
    try:
        crash_test.make_checkpoints(inner, world.rng.randrange(1, 1 << 31))
        crash_test.prepare(inner, steps)
        check = crash_test.checks(inner, version)
        points = crash_world.count_points(inner, command, check, world.root)
        for point in world.rng.sample(range(1, points + 1), min(points, 4)):
            world.tally["events"] += crash_world.kill_at(point, inner, command, check, world.root)
            world.tally["well"] += 1
    except AssertionError as error:
        raise Violation(f"{name}: {error}") from None


def race(world):
    """Publishers that race to commit: exactly one wins."""
    processes, rounds = world.rng.randrange(2, 9), 4
    world.simulate("5K", steps=2 * processes, density=0.05)
    race_test.race(world, processes, rounds)
    for name, count in (("events", rounds), ("well", rounds), ("refused", rounds * (processes - 1))):
        world.tally[name] += count


def fault(world):
    """One to three simultaneous faults of the store during a random verb."""
    rng = world.rng
    inner = fault_test.FaultWorld(world.binary, world.root, world.weights)
    world.simulate(steps=3)
    for version in range(3):
        world.must(*world.publish(version))
        if version == 0:
            world.must(*world.pull())
    specs = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice(("unavailable", "fail", "slow:ms=3", "tear", "lost", "duplicate", "twice",
                           f"late:calls={rng.randrange(1, 5)}", f"stale-list:calls={rng.randrange(1, 6)}", "flip"))
        specs.append(kind + rng.choice((f":n={rng.randrange(1, 12)}", f":p={rng.choice((0.05, 0.2, 0.5))}"
                                        f":seed={rng.randrange(1000)}")))
    spec = ",".join(specs)
    keeps_other = any(s.startswith(("tear", "lost")) for s in specs)
    retries = rng.choice((0, 3))
    verb, local = rng.choice((("publish", None), ("pull", "replica"), ("pull", "fresh"), ("follow", "replica")))
    try:
        code = (fault_test.check_publish(inner, spec, keeps_other, retries) if verb == "publish" else
                fault_test.check_pull(inner, verb, local, spec, retries))
    except AssertionError as error:
        raise Violation(f"{verb} {local or ''} --inject {spec} --retries {retries}: {error}") from None
    world.tally["events"] += len(specs)
    world.tally["well" if code == 0 else "refused"] += 1


def corruption(world):
    """Objects of the store that are changed, truncated, extended, removed or swapped."""
    rng, steps = world.rng, 4
    chain_of(world, steps)
    if rng.random() < 0.5:
        world.must("compact", world.store, "--span", "2")
    if rng.random() < 0.3:
        world.must("compact", world.store, "--anchor", "--upto", rng.randrange(steps + 1))
    before = world.held("replica")
    healthy = world.copy_store("healthy")
    for _ in range(rng.randrange(1, 4)):
        victim = rng.choice(world.objects())
        good = victim.read_bytes()
        how = rng.choice(("flip", "cut", "grow", "remove", "swap", "zero"))
        if how == "remove" or (how in ("flip", "zero") and not good):
            victim.unlink()
        elif how == "flip":
            at = rng.randrange(len(good))
            victim.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1:])
        elif how == "cut":
            victim.write_bytes(good[:rng.randrange(len(good) + 1)])
        elif how == "grow":
            victim.write_bytes(good + rng.randbytes(rng.randrange(1, 100)))
        elif how == "zero":
            victim.write_bytes(bytes(len(good)))
        else:
            other = rng.choice(world.objects())
            theirs = other.read_bytes()
            victim.write_bytes(theirs), other.write_bytes(good)
        world.tally["events"] += 1
        if not world.objects():
            break
    world.run("fsck", world.store)
    for local in ("replica", "other"):
        pulled = world.run(*world.pull(local))
        held = world.check_replica(local)
        if local == "replica":
            require(held is not None and held >= before, f"from version {before} to {held}: {explain(pulled)}")
    # The store is repaired from a mirror: every replica catches up.
    shutil.rmtree(world.store)
    shutil.copytree(healthy, world.store)
    for local in ("replica", "other"):
        world.must(*world.pull(local))
        require(world.check_replica(local) == steps, f"{local} is not at the head after the repair")
    world.check_sound()


def overwritten_source(world):
    """The checkpoint is overwritten in various ways while it is published."""
    rng = world.rng
    world.simulate("3M", steps=3, density=0.3)
    first = rng.choice((0, 1))
    for step in range(first):
        world.must(*world.publish(step))
    source = world.root / "source.safetensors"
    shutil.copyfile(world.step(first), source)
    size = source.stat().st_size
    rate = f"{rng.choice((2, 3, 6))}MB"
    before = world.attempts()
    publish = world.start("publish", source, world.store, "--snapshot", world.snapshot, "--part-size", "256KiB", "--rate-limit", rate)
    time.sleep(0.1 + rng.random() * 1.5)
    while publish.poll() is None and world.attempts() == before:  # what it finds when it begins counts as saved
        time.sleep(0.01)
    other = world.step(first + 1).read_bytes()
    how = rng.choice(("in place", "rename", "part", "cut", "same time", "grow"))
    stamp = source.stat()
    if how == "rename":
        new = world.root / "new.safetensors"
        new.write_bytes(other), new.replace(source)
    elif how == "cut":
        with open(source, "r+b") as file:
            file.truncate(rng.randrange(size))
    elif how == "grow":
        with open(source, "ab") as file:
            file.write(bytes(1000))
    else:
        with open(source, "r+b") as file:
            at = rng.randrange(size // 2) if how == "part" else 0
            file.seek(at), file.write(other[at:at + (size // 4 if how == "part" else size)])
        if how == "same time":  # a tool that keeps times
            os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    world.tally["events"] += 1
    ended = finished(publish)
    world.tally["well" if publish.returncode == 0 else "refused"] += 1
    require(publish.returncode >= 0, f"{how}: {explain(ended)}")
    require(publish.returncode == 0 or "error: " in ended.stderr, f"{how}: {explain(ended)}")
    if publish.returncode == 0:
        # The committed version is one of the two, complete.
        world.must(*world.pull("witness", "--no-heartbeat"))
        same = [world.run("verify", world.step(step), world.root / "witness").returncode == 0
                for step in (first, first + 1)]
        require(any(same), f"{how}: version {world.head()} is neither what was saved nor what was there: {explain(ended)}")
    if world.head() >= 0:
        world.check_sound()
    # The trainer continues.
    world.must(*world.publish(3))
    world.check_sound()
    world.check_fresh(3)


def rollback(world):
    """The store loses its newest versions, or is restored from an older copy: no replica goes back by itself."""
    rng, steps = world.rng, 5
    world.simulate(steps=steps)
    signed = rng.random() < 0.5
    sign, trust = [], []
    if signed:
        world.must("keygen", "-o", world.root / "key")
        sign, trust = ["--sign-key", world.root / "key"], ["--trust", world.root / "key.pub"]
    cut = rng.randrange(steps)
    for step in range(steps + 1):
        world.must(*world.publish(step, *sign))
        if step == cut:
            old = world.copy_store("old")
    cow = ["--copy-on-write"] if rng.random() < 0.3 else []
    world.must(*world.pull("replica", *trust, *cow))
    require(world.held("replica") == steps, "the replica is not at the head")
    how = rng.choice(("manifests", "old copy"))
    whole = world.copy_store("whole")
    if how == "manifests":
        for manifest in world.manifests()[cut + 1:]:
            manifest.unlink()
        if rng.random() < 0.5:
            (world.store / "HEAD").write_text(str(cut))
    else:
        shutil.rmtree(world.store)
        shutil.copytree(old, world.store)
    world.tally["events"] += 1
    refused = world.run(*world.publish(0, *sign))
    require(refused.returncode == 6 and "lost version" in refused.stderr, f"{how}: published: {explain(refused)}")
    verbs = [world.pull("replica", *trust, *cow), ["follow", *world.pull("replica", *trust, *cow)[1:], "--once"],
             ["follow", *world.pull("replica", *trust, *cow)[1:], "--until", str(cut)]]
    result = world.run(*rng.choice(verbs))
    require(world.held("replica") == steps, f"{how}: from {steps} to {world.held('replica')}: {explain(result)}")
    world.check_replica("replica")
    # Going back by number is allowed.
    world.must(*world.pull("replica", *trust, *cow, "--version", cut))
    require(world.check_replica("replica") == cut, "asked for by number, and not given")
    shutil.rmtree(world.store)
    shutil.copytree(whole, world.store)
    world.must(*world.pull("replica", *trust, *cow))
    require(world.check_replica("replica") == steps, "the store is whole again, the replica is not at its head")


def forged_record(world):
    """Someone with write access changes signed records, with valid checksums: no replica with the key accepts them."""
    rng, steps = world.rng, 4
    world.simulate(steps=steps)
    world.must("keygen", "-o", world.root / "key")
    world.must("keygen", "-o", world.root / "evil")
    sign, trust = ["--sign-key", world.root / "key"], ["--trust", world.root / "key.pub"]
    behind = rng.randrange(steps)
    for step in range(steps + 1):
        world.must(*world.publish(step, *sign, *(["--anchor-every", "1"] if rng.random() < 0.3 else [])))
        if step == behind:
            world.must(*world.pull("replica", *trust))
    if rng.random() < 0.4:
        world.must("compact", world.store, "--span", "2", *sign)
    whole = world.copy_store("whole")
    records = [p for p in world.objects() if p.suffix == ".json" and p.parent.name in ("manifests", "hops", "schemas")
               or p.name == "run.json"]
    for _ in range(rng.randrange(1, 3)):
        victim = rng.choice(records)
        record = json.loads(victim.read_text())
        how = rng.choice(("value", "foreign", "unsigned", "signature", "swap"))
        if how == "swap":
            other = rng.choice(records)
            text, theirs = victim.read_bytes(), other.read_bytes()
            victim.write_bytes(theirs), other.write_bytes(text)
        else:
            forge(record, how, rng)
            victim.write_text(canonical(record))
        world.tally["events"] += 1
    if rng.random() < 0.3:  # or a whole version of somebody else
        world.run("publish", world.step(0), world.store, "--snapshot", world.root / "evil-snapshot", "--sign-key",
                  world.root / "evil")
    for local in ("replica", "other"):
        world.run(*world.pull(local, *trust))
        world.check_replica(local)  # what it holds under a number is what the trainer published under it
    held = world.held("replica")
    require(held is not None and held >= behind, f"forged records took it from {behind} to {held}")
    world.run("fsck", world.store, *trust)
    shutil.rmtree(world.store)
    shutil.copytree(whole, world.store)
    for local in ("replica", "other"):
        world.must(*world.pull(local, *trust))
        require(world.check_replica(local) == steps, f"{local} is not at the head of the true chain")


def forge(record, how, rng):
    """Change a record like an attacker, and recompute its checksum."""
    if how == "unsigned":
        record.pop("signature", None)
    elif how == "signature" and isinstance(record.get("signature"), dict):
        text = record["signature"]["ed25519"]
        at = rng.randrange(len(text))
        record["signature"]["ed25519"] = text[:at] + format(int(text[at], 16) ^ 1, "x") + text[at + 1:]
    elif how == "foreign" and isinstance(record.get("signature"), dict):
        record["signature"]["key"] = rng.randbytes(32).hex()
    else:
        keys = [key for key, value in record.items() if key not in ("check", "signature", "format")]
        key = rng.choice(keys)
        value = record[key]
        if isinstance(value, bool) or value is None:
            record[key] = rng.choice((0, 1, None))
        elif isinstance(value, int):
            record[key] = max(0, value + rng.choice((-1, 1, 10**6)))
        elif isinstance(value, str) and value:
            at = rng.randrange(len(value))
            record[key] = value[:at] + rng.choice("0123456789abcdef") + value[at + 1:]
        elif isinstance(value, list) and value:
            value.pop(rng.randrange(len(value)))
        else:
            del record[key]
    if "check" in record:
        bare = {key: value for key, value in record.items() if key not in ("check", "signature")}
        record["check"] = xxhash.xxh3_128_hexdigest(canonical(bare).encode())


def canonical(record):
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
