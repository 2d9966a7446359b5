"""Chaos: a trainer, replicas, gc, compact, anchor and pin at work at once, each hit by KILL, STOP and TERM at random
moments; at the end everything is let run and must be as if nothing had happened."""
import json
import signal
import threading
import time

from world import PATIENCE, Violation, explain, finished, require

STEPS = 12


class Actor(threading.Thread):
    """Runs commands in sequence until the trainer is done, and receives signals meanwhile."""

    def __init__(self, world, name, rng, commands):
        super().__init__(name=name, daemon=True)
        self.world, self.rng, self.commands = world, rng, commands
        self.over, self.error, self.hits = threading.Event(), None, 0

    def run(self):
        try:
            for command in self.commands(self):
                self.call(command)
        except Exception as error:  # shown by the main thread
            self.error = error

    def call(self, command):
        """Returns the exit status and the printed JSON, or None if it was killed."""
        process = self.world.start(*command)
        killer = threading.Thread(target=self.hit, args=(process,), daemon=True)
        killer.start()
        ended = finished(process)
        killer.join()
        code = ended.returncode
        require(code in (0, 4, 5, 7, 9, 12, -signal.SIGKILL, -signal.SIGTERM), explain(ended))
        if code != 0:
            return code, None
        return 0, json.loads(ended.stdout) if "--json" in command else None

    def hit(self, process):
        """Usually sends a signal at a busy moment, sometimes nothing."""
        if self.over.is_set() or self.rng.random() < 0.4:
            if command_is_endless(process):
                while process.poll() is None and not self.over.wait(0.05):
                    pass
                process.send_signal(signal.SIGTERM)
            return
        time.sleep(self.rng.expovariate(1 / 0.08))
        blow = self.rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
        if process.poll() is not None:
            return
        self.hits += 1
        process.send_signal(blow)
        if blow == signal.SIGSTOP:
            time.sleep(self.rng.random() * 0.5)
            process.send_signal(signal.SIGCONT)
            if command_is_endless(process):
                time.sleep(self.rng.random())
                process.send_signal(signal.SIGTERM)


def command_is_endless(process):
    return process.args[1] == "follow"


def chaos(world):
    rng = world.rng
    world.simulate(steps=STEPS)
    step_of = {}  # version -> step
    pinned = set()

    def train(actor):
        for step in range(STEPS + 1):
            while True:
                options = ["--part-size", rng.choice(("64", "8KiB"))]
                if rng.random() < 0.2:
                    options += ["--anchor-every", "2"]
                # There is one publisher: a version committed by a killed attempt belongs to this step.
                code, report = actor.call(world.publish(step, *options, "--json"))
                if code == 0:
                    step_of[report["version"]] = step
                    break
            time.sleep(actor.rng.random() * 0.1)
        return ()

    def follow(name, *options):
        def commands(actor):
            while not actor.over.is_set():
                yield ["follow", world.store, world.root / name, "--name", name, "--interval", "0.05",
                       "--log-level", "off", *options]
        return commands

    def maintain(actor):
        while not actor.over.is_set():
            time.sleep(actor.rng.random() * 0.2)
            if not step_of:
                continue
            yield actor.rng.choice((["gc", world.store, "--keep", "3", "--grace", "1s"],
                                    ["compact", world.store, "--span", "2,4"], ["compact", world.store, "--anchor"],
                                    ["fsck", world.store, "--quick"]))

    def pin(actor):
        while not actor.over.is_set():
            time.sleep(actor.rng.random() * 0.3)
            if not step_of:
                continue
            version = max(step_of) - actor.rng.randrange(2)
            if version in step_of:
                code, _ = actor.call(["pin", world.store, version])
                if code == 0:
                    pinned.add(version)
        return ()

    seeds = iter([rng.randrange(1 << 30) for _ in range(8)])
    make = lambda name, commands: Actor(world, name, type(rng)(next(seeds)), commands)
    trainer = make("trainer", train)
    others = [make("follower", follow("replica")), make("copier", follow("copies", "--copy-on-write")),
              make("keeper", maintain), make("janitor", maintain), make("pinner", pin)]
    for actor in (trainer, *others):
        actor.start()
    trainer.join(PATIENCE * 2)
    require(not trainer.is_alive(), "the trainer does not get through")
    for actor in others:
        actor.over.set()
    for actor in others:
        actor.join(PATIENCE)
    for actor in (trainer, *others):
        world.tally["events"] += actor.hits
        if actor.error:
            raise Violation(f"{actor.name}: {actor.error}")

    # After the chaos: everything is as if nothing had happened.
    world.check_sound()
    head = world.head()
    require(step_of.get(head) == STEPS, f"version {head} is step {step_of.get(head)}, not {STEPS}")
    for name, options in (("replica", ()), ("copies", ("--copy-on-write",))):
        world.must(*world.pull(name, *options))
        require(world.check_replica(name, step_of.get) == head, f"{name} is not at the head")
    for version in sorted(pinned):
        world.check_fresh(step_of[version], f"pinned-{version}", "--version", version)
    world.must("gc", world.store, "--keep", "1", "--grace", "0s")
    world.must("gc", world.store, "--keep", "1", "--grace", "0s")
    world.check_sound()
    for version in sorted(pinned | {head}):
        world.check_fresh(step_of[version], f"kept-{version}", "--version", version)
