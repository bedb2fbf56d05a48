"""The demonstration's own plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlenv_robot.demo.report import Row
from rlenv_robot.learning.train import Training

__all__ = ["plot_distances", "plot_learning", "plot_model"]

_INK, _SOFT = "#1d2329", "#8a939b"
_COLOURS = ("#1b6ca8", "#e07b1a", "#3c7a4b", "#8a5aa8")


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), dpi=110, layout="constrained")
    axis = figure.add_subplot()
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_SOFT)
    axis.tick_params(colors=_INK)
    axis.grid(axis="x", color="#e6e9ec", linewidth=0.8)
    axis.set_axisbelow(True)
    return figure, axis


def plot_distances(path: Path, rows: Sequence[Row], tolerance_mm: float) -> None:
    """Every episode's final distance, a line for each row of the table."""
    figure, axis = _figure(0.9 + 0.75 * len(rows))
    rng = np.random.default_rng(0)
    for place, row in enumerate(rows):
        distances = np.array([outcome.distance_mm for outcome in row.outcomes])
        spread = place + rng.uniform(-0.18, 0.18, len(distances))
        axis.scatter(distances, spread, s=20, color=_COLOURS[place % 4], alpha=0.55, linewidths=0)
        middle = float(np.median(distances))
        axis.plot([middle, middle], [place - 0.32, place + 0.32], color=_INK, linewidth=2)
    axis.axvline(tolerance_mm, color="#b3261e", linewidth=1.2, linestyle=(0, (4, 3)))
    axis.text(tolerance_mm, -0.62, f" success: {tolerance_mm:g} mm", color="#b3261e", fontsize=9, va="center")
    axis.set_yticks(range(len(rows)), [f"{row.policy},\n{row.place}" for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.8)
    axis.set_xscale("symlog", linthresh=20)
    axis.set_xlim(left=0)
    ticks = [0, 5, 10, 15, 20, 50, 100, 200, 500]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("distance to the target at the end of the episode, mm (each dot an episode, bar: median)")
    figure.savefig(path)


def plot_learning(path: Path, trainings: Sequence[tuple[str, Training]]) -> None:
    """The middle candidate's return over wall time."""
    figure, axis = _figure(3.4)
    for index, (name, training) in enumerate(trainings):
        axis.plot(training.elapsed_s, training.median, color=_COLOURS[index], linewidth=1.8, label=name)
    axis.set_xlabel("wall time of the search, s")
    axis.set_ylabel("return of the middle candidate")
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path)


def plot_model(path: Path, error_deg: np.ndarray, unchanged_deg: np.ndarray, period_s: float) -> None:
    """The learned model's open-loop error on episodes that it was not fitted to."""
    figure, axis = _figure(3.0)
    seconds = period_s * np.arange(1, len(error_deg) + 1)
    axis.plot(seconds, unchanged_deg, color=_SOFT, linewidth=1.5, linestyle="--", label="nothing moves")
    axis.plot(seconds, error_deg, color=_COLOURS[0], linewidth=1.8, label="learned model")
    axis.set_yscale("log")
    axis.set_xlabel("time since the episode's start, s: recorded goals only, no correction")
    axis.set_ylabel("joint error, degrees RMS")
    axis.legend(frameon=False)
    figure.savefig(path)
