#!/usr/bin/env python3
"""Replicas in Ray actors: a trainer publishes into a store; each actor patches its own weights and reports its version.

ray_actor.py [--short]: a local Ray of two actors. On a cluster the store is a bucket or a folder that all nodes see.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import ray

import deltawire as dw

Weights = dict[str, np.ndarray]


def model() -> Weights:
    """Random weights of the model's shapes, which the first pull replaces."""
    random = np.random.default_rng()
    return {f"layers.{i}.weight": random.standard_normal((512, 512), dtype=np.float32) for i in range(4)}


@ray.remote
class Engine:
    """Serves a model; updates to the newest version between two requests."""

    def __init__(self, store: str) -> None:
        self.weights = model()
        self.replica = dw.TensorReplica(store, self.weights)

    def update(self, version: int) -> int:
        """Bring the weights to a version, in place. Every byte is verified."""
        return self.replica.pull(version=version).version

    def state(self) -> Weights:
        """The served weights."""
        return self.weights


def main() -> None:
    """Train, publish, update all engines after each step, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    steps = 2 if parser.parse_args().short else 10
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        store, weights = str(Path(folder, "store")), model()
        publisher = dw.Publisher(store, weights)
        seed = publisher.publish()
        engines = [Engine.remote(store) for _ in range(2)]
        ray.get([engine.update.remote(seed.number) for engine in engines])
        for step in range(steps):
            weights[f"layers.{step % 4}.weight"][step] *= 1.001  # a step of training
            version = publisher.publish().number
            # Only the number crosses Ray; the weights come from the store.
            served = ray.get([engine.update.remote(version) for engine in engines])
            print(f"version {version}: engines serve {served}")
        states = ray.get([engine.state.remote() for engine in engines])
        assert all(np.array_equal(state[name], weights[name]) for state in states for name in weights)
        print(f"{len(engines)} engines hold the trainer's weights, bit for bit")
    ray.shutdown()


if __name__ == "__main__":
    main()
