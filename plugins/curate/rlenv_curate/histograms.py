"""Draw histograms of a data set: returns, lengths and timing of its episodes, and its actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.figures.style import BLUE, GREEN, INK, ORANGE, QUIET, RED, heading, saved, sheet
from recorder.frame_layout import reward_field
from recorder.table.table import Table

__all__ = ["plot_histograms"]

_ALIKE = 1e-4
"""Relative spread below which values are drawn as one."""
_BINS, _COLUMNS, _MOST_ACTIONS, _MOST_ROWS = 40, 3, 12, 1_000_000


def plot_histograms(table: Table, path: Path | str) -> Path:
    """Draw the returns and lengths of the episodes, the periods between frames, and each element of the actions.

    With more than a million rows, only every k-th is counted. A red line marks the limit of a range;
    `rlenv_curate.checks.table` calls actions at a limit clipped.

    Args:
        table: a table with at least one episode.
        path: path of the image, ending in ``.png``, ``.svg`` or ``.pdf``.

    Returns:
        The path.

    Raises:
        SourceError: the table has no episode.
        LogError: matplotlib is not installed, or the image can't be written.
    """
    if not len(table.starts):
        raise SourceError(f"{table.origin} has no episode to draw")
    names = [field for field in table.layout.spec if field.name.startswith("action_") and not field.is_text]
    elements = [(field, index) for field in names for index in range(field.size)][:_MOST_ACTIONS]
    rows = -(-(3 + len(elements)) // _COLUMNS)
    figure, axes = sheet(rows, _COLUMNS, 10.0, 2.1 * rows + 0.5)
    lengths = table.stops - table.starts - 1
    _bars(axes[0], _returns(table), "return of an episode", GREEN)
    _bars(axes[1], lengths.astype(float), "steps of an episode", BLUE)
    _bars(axes[2], _periods_ms(table), "period, ms", ORANGE)
    chosen = _chosen(table)
    for axis, (field, index) in zip(axes[3:], elements, strict=False):
        values = table.rows[field.name][chosen].reshape(len(chosen), -1)[:, index].astype(float)
        name = field.elements[index] if len(field.elements) == field.size else str(index)
        unit = "" if field.unit == "1" else f", {field.unit}"
        _bars(axis, values, f"{field.name.removeprefix('action_')} {name}{unit}", BLUE)
        low, high = (np.broadcast_to(bound, field.shape).ravel()[index] for bound in field.bounds)
        for limit in (low, high):
            if np.isfinite(limit) and np.isfinite(values).any() and np.nanmin(values) <= limit <= np.nanmax(values):
                axis.axvline(limit, color=RED, linewidth=1.2)
    for axis in axes[3 + len(elements) :]:
        axis.set_visible(False)
    count = sum(field.size for field in names)
    more = [f"{count - len(elements)} more elements of the action not drawn"] if count > len(elements) else []
    steps = f"{int(lengths.sum()):,} steps".replace(",", " ")
    heading(figure, Path(table.origin).name, [f"{len(lengths)} episodes", steps, *more])
    return saved(figure, path)


def _bars(axis: Any, values: np.ndarray, name: str, colour: str) -> None:
    finite = values[np.isfinite(values)]
    axis.set_xlabel(name, color=INK, fontsize=9)
    axis.tick_params(axis="y", labelleft=False, length=0)
    alike = bool(finite.size) and float(np.ptp(finite)) <= _ALIKE * abs(float(finite[0]))
    if alike or not finite.size:  # a number says more than one bar
        text = f"always {finite[0]:.4g}" if finite.size else "not recorded"
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color=QUIET)
        axis.set_xticks([])
        axis.set_yticks([])
        return
    axis.hist(finite, bins=min(_BINS, max(8, round(finite.size**0.5))), color=colour, linewidth=0)
    low, middle, high = np.quantile(finite, [0.05, 0.5, 0.95])
    axis.set_title(f"median {middle:.4g}, 90 % in {low:.4g} to {high:.4g}", loc="left", fontsize=8, color=QUIET)


def _returns(table: Table) -> np.ndarray:
    agents = table.layout.agents or ("",)
    spans = zip(table.starts.tolist(), table.stops.tolist(), strict=True)
    return np.array(
        [
            sum(float(table.rows[reward_field(agent)][start + 1 : stop].sum()) for agent in agents)
            for start, stop in spans
        ]
    )


def _periods_ms(table: Table) -> np.ndarray:
    spans = zip(table.starts.tolist(), table.stops.tolist(), strict=True)
    periods = [np.diff(table.rows["stamp_ns"][start:stop].astype(np.int64)) / 1e6 for start, stop in spans]
    every = np.concatenate(periods) if periods else np.zeros(0)
    return every[every > 0]


def _chosen(table: Table) -> np.ndarray:
    """Return the indices of the rows that hold an action, thinned out."""
    spans = zip(table.starts.tolist(), table.stops.tolist(), strict=True)
    rows = np.concatenate([np.arange(start + 1, stop) for start, stop in spans])
    return np.asarray(rows[:: max(1, len(rows) // _MOST_ROWS)])
