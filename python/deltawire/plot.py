"""Pictures of chains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from deltawire.chain import Chain


def layer_of(tensor: str) -> str:
    """A tensor's layer: its name up to the first number, or its first component.

    >>> layer_of("model.layers.7.mlp.up_proj.weight"), layer_of("lm_head.weight")
    ('layers.7', 'lm_head')
    """
    found = re.search(r"([^.]+\.\d+)\.", tensor)
    return found[1] if found else tensor.removeprefix("model.").split(".")[0]


def plot_chain(chain: Chain, last: int | None = None) -> Figure:
    """Density and bytes per version, and a heat map of changes per layer."""
    versions = chain.versions if last is None else chain.versions[-last:]
    manifests = [chain[version] for version in versions]
    deltas = [manifest for manifest in manifests if not manifest.full]

    figure = Figure(figsize=(9, 7), layout="constrained")
    density, size, heat = figure.subplots(3, 1, height_ratios=(1, 1, 2))
    density.plot([m.version for m in deltas], [100 * m.density for m in deltas], marker=".")
    density.set_ylabel("changed, %")
    density.set_title(f"run {chain.run[:8]}")
    colours = ["tab:orange" if m.full else "tab:blue" for m in manifests]
    size.bar(versions, [m.bytes for m in manifests], color=colours)
    size.set_yscale("log")
    size.set_ylabel("bytes (orange: full)")
    _draw_layers(chain, [m.version for m in deltas], heat)
    return figure


def _draw_layers(chain: Chain, versions: list[int], axes: object) -> None:
    rows: dict[str, dict[int, list[float]]] = {}
    for column, version in enumerate(versions):
        for tensor, share in chain.changes(version).items():
            rows.setdefault(layer_of(tensor), {}).setdefault(column, []).append(share)
    layers = sorted(rows, key=lambda name: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", name)])
    grid = np.zeros((len(layers), len(versions)))
    for row, layer in enumerate(layers):
        for column, shares in rows[layer].items():
            grid[row, column] = 100 * sum(shares) / len(shares)
    if grid.size == 0:
        return
    image = axes.imshow(grid, aspect="auto", interpolation="nearest")  # type: ignore[attr-defined]
    axes.set_yticks(range(len(layers)), layers)  # type: ignore[attr-defined]
    axes.set_xticks(range(len(versions)), versions)  # type: ignore[attr-defined]
    axes.set_xlabel("version")  # type: ignore[attr-defined]
    axes.figure.colorbar(image, ax=axes, label="changed, %")  # type: ignore[attr-defined]
