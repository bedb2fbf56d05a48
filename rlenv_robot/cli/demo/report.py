"""Report the results of the demonstration: plots, a table, a JSON file, and an HTML page with all of them."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recorder.figures.style import BLUE, INK, QUIET, RED, saved, series, sheet
from rlenv_robot.training.learner import Training
from rlenv_robot.training.rollout import Outcome

__all__ = [
    "HEAD", "Row", "cells", "html_report", "plot_distances", "plot_learning", "plot_model", "write_figures",
]  # fmt: skip


def plot_distances(path: Path, rows: Sequence[Row], tolerance_mm: float) -> None:
    """Plot the final distance of every episode, with one line per row of the table."""
    figure, (axis,) = sheet(1, 1, 9, 0.9 + 0.75 * len(rows))
    rng = np.random.default_rng(0)
    for place, row in enumerate(rows):
        distances = np.array([outcome.distance_mm for outcome in row.outcomes])
        spread = place + rng.uniform(-0.18, 0.18, len(distances))
        axis.scatter(distances, spread, s=20, color=series(place)["color"], alpha=0.55, linewidths=0)
        middle = float(np.median(distances))
        axis.plot([middle, middle], [place - 0.32, place + 0.32], color=INK, linewidth=2)
    axis.axvline(tolerance_mm, color=RED, linewidth=1.2, linestyle=(0, (4, 3)))
    axis.text(tolerance_mm, -0.62, f" success: {tolerance_mm:g} mm", color=RED, fontsize=9, va="center")
    axis.set_yticks(range(len(rows)), [f"{row.policy},\n{row.place}" for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.8)
    axis.set_xscale("symlog", linthresh=20)
    axis.set_xlim(left=0)
    ticks = [0, 5, 10, 15, 20, 50, 100, 200, 500]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("distance to the target at the end of the episode, mm (dot: episode, bar: median)")
    saved(figure, path)


def plot_learning(path: Path, trainings: Sequence[tuple[str, Training]]) -> None:
    """Plot the return of the median candidate over the steps of each search."""
    figure, (axis,) = sheet(1, 1, 9, 3.4)
    for index, (name, training) in enumerate(trainings):
        steps = np.linspace(0, training.steps / 1e6, len(training.median) + 1)[1:]
        axis.plot(steps, training.median, linewidth=1.8, **series(index), label=name)
    axis.set_xlabel("control steps of the search, millions")
    axis.set_ylabel("return of the median candidate")
    axis.legend(frameon=False, loc="lower right")
    saved(figure, path)


def plot_model(path: Path, error_deg: np.ndarray, unchanged_deg: np.ndarray, period_s: float) -> None:
    """Plot the open-loop error of the learned model on episodes outside its fit."""
    figure, (axis,) = sheet(1, 1, 9, 3.0)
    seconds = period_s * np.arange(1, len(error_deg) + 1)
    axis.plot(seconds, unchanged_deg, color=QUIET, linewidth=1.5, linestyle="--", label="no motion")
    axis.plot(seconds, error_deg, color=BLUE, linewidth=1.8, label="learned model")
    axis.set_yscale("log")
    axis.set_xlabel("time since the start of the episode, s (recorded commands, no correction)")
    axis.set_ylabel("joint error, degrees RMS")
    axis.legend(frameon=False)
    saved(figure, path)


# -- The table, the JSON file and the page --------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of the table: a policy, its robot, the seed of the episodes, and their outcomes."""

    policy: str
    place: str
    seed: int
    outcomes: Sequence[Outcome]

    @property
    def success(self) -> float:
        """The share of the episodes that reached the target, 0 to 1."""
        return float(np.mean([outcome.success for outcome in self.outcomes]))

    def distance_mm(self, quantile: float) -> float:
        """Return a quantile of the final distances, millimetres."""
        return float(np.quantile([outcome.distance_mm for outcome in self.outcomes], quantile))

    def limit_cycle_deg(self, quantile: float) -> float:
        """Return a quantile of the targets' limit cycles, degrees (`hal.guarding.limit_cycle`); NaN without any."""
        cycles = [outcome.limit_cycle_deg for outcome in self.outcomes if np.isfinite(outcome.limit_cycle_deg)]
        return float(np.quantile(cycles, quantile)) if cycles else math.nan


HEAD = (
    "policy", "where", "episodes", "seed", "success", "final distance, mm: median", "quartiles", "return",
    "limit cycle, degrees: median", "largest",
)  # fmt: skip
"""The columns of the table."""


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of `HEAD`."""
    return (
        row.policy, row.place, str(len(row.outcomes)), str(row.seed), f"{row.success:.0%}",
        f"{row.distance_mm(0.5):.1f}", f"{row.distance_mm(0.25):.1f} to {row.distance_mm(0.75):.1f}",
        f"{np.mean([outcome.total for outcome in row.outcomes]):.1f}",
        f"{row.limit_cycle_deg(0.5):.2f}", f"{row.limit_cycle_deg(1.0):.2f}",
    )  # fmt: skip


def write_figures(path: Path, rows: Sequence[Row], more: dict[str, Any]) -> None:
    """Write all measurements as JSON."""
    plain = [
        {
            "policy": row.policy, "where": row.place, "seed": row.seed, "episodes": len(row.outcomes),
            "success": row.success, "median_mm": row.distance_mm(0.5),
            "median_limit_cycle_deg": row.limit_cycle_deg(0.5), "outcomes": [asdict(o) for o in row.outcomes],
        }
        for row in rows
    ]  # fmt: skip
    path.write_text(json.dumps({"rows": plain, **more}, indent=1), encoding="utf-8")


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5b6670; --line: #d9dee3; --back: #ffffff; --card: #f5f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecef; --soft: #9aa6b0; --line: #333b43; --back: #14181c; --card: #1d2329 }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 0 }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.7rem; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
p, figcaption { color: var(--soft); margin: .3rem 0 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-top: 1rem }
th, td { text-align: left; padding: .5rem .9rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: bottom }
th { font-weight: 600; font-size: .85rem; color: var(--soft) }
td:nth-child(n+3), th:nth-child(n+3) { text-align: right }
figure { margin: 1rem 0; background: var(--card); border-radius: 10px; padding: 1rem }
img, video { width: 100%; height: auto; border-radius: 6px; background: #fff; display: block }
pre { background: var(--card); padding: 1rem; border-radius: 10px; overflow-x: auto; font-size: .85rem }
"""


def html_report(
    path: Path, rows: Sequence[Row], figures: Sequence[tuple[str, Path, str]], notes: Sequence[str]
) -> None:
    """Write a self-contained HTML page.

    Args:
        path: the path of the page.
        rows: the rows of the table.
        figures: title, image or video file, and caption of each figure.
        notes: sentences below the table.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEAD)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row)) + "</tr>" for row in rows)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>so101-reach: the main job</title><style>{_STYLE}</style></head><body><main>",
        "<h1>so101-reach, end to end</h1>",
        "<p>Trained in simulation, deployed over the network on another arm, recorded, "
        "retrained from that recording only, and deployed again.</p>",
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        *(f"<p>{html.escape(note)}</p>" for note in notes),
        *(_figure_element(*figure) for figure in figures),
        "</main></body></html>",
    ]
    path.write_text("".join(parts), encoding="utf-8")


def _figure_element(title: str, file: Path, caption: str) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    if file.suffix == ".mp4":
        element = f"<video controls loop muted autoplay playsinline src='data:video/mp4;base64,{data}'></video>"
    else:
        element = f"<img alt='{html.escape(title)}' src='data:image/png;base64,{data}'>"
    return f"<h2>{html.escape(title)}</h2><figure>{element}<figcaption>{html.escape(caption)}</figcaption></figure>"
