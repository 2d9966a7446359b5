"""For any model and any changes, replicas equal their trainer, bit for bit."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import ARRAY_DTYPES, bits, blank, random_array

import deltawire as dw

State = dict[str, np.ndarray]
_runs = itertools.count()

SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 17, 64, 300]), max_size=3).map(tuple)
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
FORMS = st.dictionaries(NAMES, st.tuples(st.sampled_from(sorted(ARRAY_DTYPES)), SHAPES), min_size=1, max_size=5)
DENSITIES = st.sampled_from([0.0, 0.001, 0.02, 0.5, 1.0])
CODECS = st.sampled_from(["auto", "tight", "gaps", "adaptive", "raw"])
THREADS = st.sampled_from([1, 2])
# Every example opens stores and folders: few examples, without a time limit.
few = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def make(random: np.random.Generator, forms: dict[str, tuple[str, tuple[int, ...]]]) -> State:
    return {name: random_array(random, dtype, shape) for name, (dtype, shape) in forms.items()}


def step(random: np.random.Generator, state: State, forms: dict[str, tuple[str, tuple[int, ...]]], density: float) -> None:
    """Change a share of the elements to arbitrary values."""
    for name, array in state.items():
        chosen = random.random(array.shape) < density
        array[chosen] = random_array(random, forms[name][0], (int(chosen.sum()),))


@few
@given(forms=FORMS, densities=st.lists(DENSITIES, max_size=4), codec=CODECS, threads=THREADS, seed=st.integers(0, 1 << 32))
def test_replicas_equal_their_trainer(
    forms: dict[str, tuple[str, tuple[int, ...]]], densities: list[float], codec: str, threads: int, seed: int
) -> None:
    random, store = np.random.default_rng(seed), f"memory:property-{next(_runs)}"
    state = make(random, forms)
    early, late = blank(state), make(random, forms)
    with (
        tempfile.TemporaryDirectory() as folder,
        dw.Publisher(store, state, codec=codec, options=dw.PublishOptions(limits=dw.Limits(threads=threads))) as publisher,
    ):
        publisher.publish()
        replica = dw.TensorReplica(store, early, limits=dw.Limits(threads=1))
        files = dw.Replica(store, Path(folder) / "early", limits=dw.Limits(threads=1))
        for density in densities:
            replica.pull()
            files.pull()
            step(random, state, forms, density)
            publisher.publish()
        assert replica.pull().version == files.pull().version == dw.Chain(store).head
        dw.TensorReplica(store, late, limits=dw.Limits(threads=1)).pull()
        assert bits(early) == bits(late) == bits(state)
        publisher.publish_checkpoint(Path(folder) / "early")
        assert not publisher.publish().committed  # the files hold the same
        files.close()


@few
@given(forms=FORMS, density=DENSITIES, codec=CODECS, threads=THREADS, seed=st.integers(0, 1 << 32))
def test_deltas_lead_from_old_to_new(
    forms: dict[str, tuple[str, tuple[int, ...]]], density: float, codec: str, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    old = make(random, forms)
    new = {name: array.copy() for name, array in old.items()}
    step(random, new, forms, density)
    delta = dw.diff(old, new, codec=codec, threads=threads)
    assert {entry.tensor for entry in delta} == {name for name in old if old[name].tobytes() != new[name].tobytes()}
    with tempfile.TemporaryDirectory() as folder:
        delta.save(f"{folder}/delta.safetensors")
        dw.Delta.open(f"{folder}/delta.safetensors").apply_(old)
    assert bits(old) == bits(new)
    if len(delta):
        with pytest.raises(dw.BaseMismatch):
            delta.apply_(old)
        assert bits(old) == bits(new)
