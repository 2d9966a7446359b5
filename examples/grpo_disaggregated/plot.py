"""Plots what the steps of a training took."""

import json
from pathlib import Path

from matplotlib.figure import Figure


def plot(records: Path, picture: Path) -> None:
    """Reward, bytes, pause and density over the versions."""
    steps = [step for step in map(json.loads, records.read_text().splitlines()) if step["density"] is not None]
    versions = [step["version"] for step in steps]
    figure = Figure(figsize=(9, 6), layout="constrained")
    reward, size, pause, density = figure.subplots(2, 2, sharex=True).flat
    reward.plot(versions, [step["reward"] for step in steps], color="tab:green")
    reward.set_title("reward")
    reward.set_ylim(0, 1)
    size.plot(versions, [step["bytes"] / 1e3 for step in steps])
    size.axhline(steps[0]["full_bytes"] / 1e3, color="tab:gray", linestyle="--", label="the whole model")
    size.set_title("kB per step")
    size.set_ylim(bottom=0)
    size.legend()
    pause.plot(versions, [1e3 * step["pause_seconds"] for step in steps], color="tab:red")
    pause.set_title("pause of the server, ms")
    pause.set_yscale("log")
    density.plot(versions, [100 * step["density"] for step in steps], color="tab:purple")
    density.set_title("weights that changed, %")
    density.set_ylim(bottom=0)
    for axes in (pause, density):
        axes.set_xlabel("version")
    figure.savefig(picture, dpi=80)
