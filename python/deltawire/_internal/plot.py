"""Pictures of chains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from deltawire.errors import missing_extra

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise missing_extra(error, "plot") from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deltawire._internal.chain import Chain
    from deltawire.reports import Manifest


def layer_of(tensor: str) -> str:
    """A tensor's layer: its name up to the first number, or its first component.

    >>> layer_of("model.layers.7.mlp.up_proj.weight"), layer_of("lm_head.weight")
    ('layers.7', 'lm_head')
    """
    found = re.search(r"([^.]+\.\d+)\.", tensor)
    return found[1] if found else tensor.removeprefix("model.").split(".")[0]


def plot_chain(chain: Chain, last: int | None = None) -> Figure:
    """Density and bytes per version, and a heat map of changes per layer, on one axis of versions."""
    versions = chain.versions if last is None else chain.versions[-last:]
    manifests = [chain[version] for version in versions]
    places = range(len(versions))  # versions may have gaps

    figure = Figure(figsize=(9, 7), layout="constrained")
    density, size, heat = figure.subplots(3, 1, height_ratios=(1, 1, 2), sharex=True)
    # Not clipped: a version that changed nothing lies on the axis.
    changed = [np.nan if m.full else 100 * m.density for m in manifests]
    density.plot(places, changed, marker=".", clip_on=False, zorder=3)
    density.set_ylim(bottom=0)
    density.set_ylabel("changed, %")
    density.set_title(f"run {chain.run[:8]}")
    colours = ["tab:orange" if m.full else "tab:blue" for m in manifests]
    size.bar(places, [m.bytes for m in manifests], color=colours)
    size.set_yscale("log")
    size.set_ylabel("bytes (orange: full)")
    _draw_layers(chain, manifests, heat)
    _label(heat.set_xticks, versions, 14)
    heat.set_xlim(-0.5, len(versions) - 0.5)
    heat.set_xlabel("version")
    return figure


def _draw_layers(chain: Chain, manifests: list[Manifest], axes: Axes) -> None:
    sizes: Counter[str] = Counter()
    for tensor in chain.tensors(manifests[-1].version) if manifests else ():
        sizes[layer_of(tensor.name)] += prod(tensor.shape)
    layers = sorted(sizes, key=lambda name: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", name)])
    grid = np.full((len(layers), len(manifests)), np.nan)  # of versions that are stored whole nothing is known
    for column, manifest in enumerate(manifests):
        if not manifest.full:
            changed = _changed_by_layer(chain, manifest.version)
            grid[:, column] = [100 * changed[layer] / max(1, sizes[layer]) for layer in layers]
    if not np.isnan(grid).all():
        image = axes.imshow(grid, aspect="auto", interpolation="nearest", vmin=0)
        axes.figure.colorbar(image, ax=axes, label="changed, %")
        _label(axes.set_yticks, layers, 24)


def _changed_by_layer(chain: Chain, version: int) -> Counter[str]:
    changed: Counter[str] = Counter()
    for tensor, count in chain.num_changed(version).items():
        changed[layer_of(tensor)] += count
    return changed


def _label(set_ticks: Callable[..., object], names: Sequence[object], most: int) -> None:
    """Ticks for some of many."""
    shown = range(0, len(names), -(-len(names) // most))
    set_ticks(list(shown), [str(names[place]) for place in shown])
