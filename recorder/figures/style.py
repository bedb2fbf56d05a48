"""Style all plots: colours that people with colour blindness can distinguish, quiet axes, one way to save.

The background is white and opaque, so that a plot reads the same on a light and on a dark page. Series differ in colour
and in dashes. The colours are those of Okabe and Ito (Color Universal Design, 2008), without their yellow, which is
invisible on white.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError

__all__ = [
    "BLUE", "GREEN", "INK", "ORANGE", "PURPLE", "QUIET", "RED", "SHADE", "heading", "new_figure", "saved", "series",
    "sheet", "tidy",
]  # fmt: skip

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
INK, QUIET, GRID, AXIS = "#222222", "#6f6f6f", "#ececec", "#cccccc"
SHADE = "#f3e3b8"
"""Background colour of a highlighted part of a plot, such as a person's actions."""
DPI = 130

_COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1)), (0, (8, 2)))


def series(index: int) -> dict[str, Any]:
    """Return the colour and the dashes of a line among several."""
    return {"color": _COLOURS[index % len(_COLOURS)], "linestyle": _DASHES[index % len(_DASHES)]}


def new_figure(width: float, height: float, *, constrained: bool = True, dpi: int = DPI) -> Any:
    """Return an empty figure that draws without a screen.

    Args:
        width: width in inches.
        height: height in inches.
        constrained: whether matplotlib places the axes.
        dpi: dots per inch.

    Raises:
        LogError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise LogError("plots need matplotlib: pip install 'rlenv-robot[demo]'") from None
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    figure.set_layout_engine("constrained" if constrained else "none")
    FigureCanvasAgg(figure)
    return figure


def sheet(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, row by row, in this module's style.

    Args:
        rows: number of rows of axes.
        columns: number of columns of axes.
        width: width in inches.
        height: height in inches.
        options: options of matplotlib's ``Figure.subplots``, such as ``sharex``.

    Raises:
        LogError: matplotlib is missing.
    """
    figure = new_figure(width, height)
    axes = np.atleast_1d(figure.subplots(rows, columns, **options)).ravel().tolist()
    for axis in axes:
        tidy(axis)
    return figure, axes


def tidy(axis: Any, grid: str = "both") -> None:
    """Give an axis quiet lines and numbers, and a grid behind the data.

    Args:
        axis: the matplotlib axis.
        grid: ``x``, ``y`` or ``both``.
    """
    axis.spines[["top", "right"]].set_visible(False)
    for spine in axis.spines.values():
        spine.set_color(AXIS)
    axis.tick_params(colors=QUIET, labelsize=8, length=3, width=0.6)
    axis.grid(axis=grid, color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.xaxis.label.set(color=INK, fontsize=9)
    axis.yaxis.label.set(color=INK, fontsize=9)


def heading(figure: Any, title: str, facts: Sequence[str] = ()) -> None:
    """Write a title at the top left, with facts after it."""
    text = title if not facts else f"{title}   " + " · ".join(facts)
    figure.suptitle(text, x=0.01, ha="left", fontsize=11, color=INK)


def saved(figure: Any, path: Path | str) -> Path:
    """Write a figure to a ``.png``, ``.svg`` or ``.pdf`` file, making its folder if it is missing; return the path.

    Raises:
        LogError: the file can't be written, or its ending is unknown.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib doesn't know
        raise LogError(f"{path} can't be written: {error}") from error
    return path
