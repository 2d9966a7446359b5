"""Inspecting a chain."""

import numpy as np
import pytest

import deltawire as dw


@pytest.fixture
def chain(store: str) -> dw.Chain:
    """A seed and eleven small steps in two layers."""
    weights = {f"model.layers.{i}.w": np.zeros((10, 10)) for i in range(2)} | {"lm_head.weight": np.zeros(5)}
    publisher = dw.Publisher(store, weights)
    publisher.publish()
    for step in range(11):
        weights["model.layers.0.w"].flat[: step + 1] += 1
        weights["model.layers.1.w"][0] += 1
        publisher.publish()
    return dw.Chain(store)


def test_lists_manifests(chain: dw.Chain) -> None:
    assert chain.versions == list(range(12))
    assert chain.head == 11
    seed, first, last = chain[0], chain[1], chain[-1]
    assert (seed.full, seed.base, seed.reason, seed.parent) == (True, None, "seed", "")
    assert (first.full, first.base, first.parent) == (False, 0, seed.manifest)
    assert (first.num_changed, first.num_elements) == (11, 205)
    assert first.density == 11 / 205
    assert [part.size_bytes for part in first.parts] == [first.bytes]
    assert last.version == 11
    assert last.chain_bytes == sum(manifest.bytes for manifest in chain)
    assert {manifest.run for manifest in chain} == {chain.run}
    with pytest.raises(IndexError):
        chain[-13]


def test_lists_changes_by_tensor(chain: dw.Chain) -> None:
    assert chain.changes(0) == {}
    assert chain.changes(3) == {"model.layers.0.w": 0.03, "model.layers.1.w": 0.1}


def test_repr_is_readable(chain: dw.Chain) -> None:
    lines = repr(chain).splitlines()
    assert lines[0].startswith('Chain("memory:')
    assert lines[0].endswith("12 versions)")
    assert lines[1] == "   ...  2 more"
    assert len(lines) == 12
    assert lines[-1].split()[0] == "11"
    assert repr(chain[0]).startswith("Manifest(version=0, full (seed), ")
    assert repr(chain[3]).startswith("Manifest(version=3, ")
