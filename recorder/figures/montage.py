"""Draw an episode as one video: all cameras, the simulated twin and the signals on one timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.figures.plot import GOAL, MEASURED, PERSON, REWARD, Lines, pick_lines
from recorder.figures.style import INK, QUIET, new_figure, tidy
from recorder.frame_layout import reward_field
from recorder.table.table import Table

__all__ = ["NO_CLOCK_HZ", "Montage"]

WIDTH, HEAD, GAP, STRIP = 1280, 64, 16, 92
"""Sizes in pixels: width of the image, and heights of the head line, the gaps, and one strip of signals."""
TIMES = 26
"""Height of the time axis below the strips, in pixels."""
_LABEL = 11
"""Characters that fit beside a strip."""
NO_CLOCK_HZ = 30.0
"""Frames per second of data without a clock."""
MOST_COLUMNS = 3
"""Largest number of images side by side."""
FADED = 0.72
"""Share of white over the future part of the timeline."""


@dataclass(frozen=True)
class _Box:
    """The place of an axis in pixels of the signals' image, and the times at its ends."""

    left: int
    right: int
    top: int
    bottom: int


class Montage:
    """Combine the images of one episode, frame by frame.

    Args:
        table: the table with the episode.
        episode: the episode's index in the table.
        tiles: title -> uint8 images of shape (height, width, 3), RGB, one for each frame of the episode; without tiles
            the montage is an animated plot.

    Raises:
        SourceError: the table has no such episode, or the episode has nothing to draw.
        LogError: matplotlib is missing.
    """

    def __init__(self, table: Table, episode: int, tiles: Mapping[str, Iterator[np.ndarray]]) -> None:
        if not 0 <= episode < len(table.starts):
            raise SourceError(f"{table.origin} has no episode {episode}, it has {len(table.starts)}")
        self._rows = table.rows[table.starts[episode] : table.stops[episode]]
        self._seconds = _seconds(self._rows)
        self._agents: Sequence[str] = table.layout.agents or ("",)
        rewards = sum(self._rows[reward_field(agent)] for agent in self._agents)
        self._reward: np.ndarray = np.asarray(rewards, float)
        self._tiles = dict(tiles)
        self._title = f"{_name(table, episode)}, episode {episode}"
        self._signals, self._boxes = _signals(
            pick_lines(table.layout, self._rows), self._seconds, self._reward, self._rows
        )
        self._faded = (self._signals * (1 - FADED) + 255 * FADED).astype(np.uint8)
        self._write = _Writer()

    def frames(self) -> Iterator[np.ndarray]:
        """Yield the montage of each frame, uint8 of shape (height, 1280, 3), RGB."""
        total = np.nancumsum(self._reward)
        for number in range(len(self._rows)):
            images = {title: next(images) for title, images in self._tiles.items()}
            body = [self._head(number, float(total[number])), *self._grid(images), self._timeline(number)]
            yield np.concatenate(body)

    def _head(self, number: int, total: float) -> np.ndarray:
        head = np.full((HEAD, WIDTH, 3), 255, np.uint8)
        self._write(head, self._title, GAP, 14, 26, INK, bold=True)
        reward = "" if np.isnan(self._reward).any() else f"   reward {self._reward[number]:6.2f}   return {total:7.2f}"
        text = f"{self._seconds[number]:6.2f} s   frame {number:4d} of {len(self._rows) - 1}{reward}"
        self._write(head, text, WIDTH - GAP, 15, 19, QUIET, right=True)
        if self._rows["intervention"][number]:
            self._write(head, "a person acts", WIDTH - GAP, 42, 15, GOAL, right=True)
        return head

    def _grid(self, images: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
        named = list(images.items())
        for first in range(0, len(named), MOST_COLUMNS):
            line = named[first : first + MOST_COLUMNS]
            columns = min(max(len(named), 2), MOST_COLUMNS)
            width = (WIDTH - GAP * (columns + 1)) // columns
            height = round(width * 3 / 4)
            strip = np.full((height + GAP, WIDTH, 3), 255, np.uint8)
            for column, (title, image) in enumerate(line):
                left = GAP + column * (width + GAP)
                strip[:height, left : left + width] = _fitted(image, height, width)
                self._write(strip, title, left + 10, 8, 17, "#ffffff", bold=True, shade=True)
            yield strip

    def _timeline(self, number: int) -> np.ndarray:
        """Return the signals, full up to now and faded from there on."""
        view = self._signals.copy()
        span = self._seconds[-1] or 1.0
        for box in self._boxes:
            now = box.left + round((box.right - box.left) * float(self._seconds[number] / span))
            view[box.top : box.bottom, now : box.right + 1] = self._faded[box.top : box.bottom, now : box.right + 1]
            view[box.top : box.bottom, now : now + 2] = (34, 34, 34)
        return view


def _seconds(rows: np.ndarray) -> np.ndarray:
    """Return the seconds since the first frame; for rows without a clock at `NO_CLOCK_HZ` frames per second."""
    seconds = (rows["stamp_ns"] - rows["stamp_ns"][0]) / 1e9
    return np.asarray(seconds if seconds[-1] > 0 else np.arange(len(rows)) / NO_CLOCK_HZ)


def _name(table: Table, episode: int) -> str:
    text = str(table.episodes[episode].get("task", Path(table.origin).name)).rstrip(".")
    return text if len(text) <= 28 else text[:25] + "..."


def _fitted(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Fit the whole image into a size, on a dark ground if its proportions differ."""
    import cv2

    scale = min(height / image.shape[0], width / image.shape[1])
    size = max(round(image.shape[1] * scale), 1), max(round(image.shape[0] * scale), 1)
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    ground = np.full((height, width, 3), 28, np.uint8)
    top, left = (height - size[1]) // 2, (width - size[0]) // 2
    ground[top : top + size[1], left : left + size[0]] = small
    return ground


def _signals(lines: Lines, seconds: np.ndarray, reward: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, list[_Box]]:
    """Draw all signals, two columns of strips and the reward below; return the image and the places of the axes."""
    count = len(lines.names)
    strips = (count + 1) // 2
    height = STRIP * (strips + 1) + 40 + TIMES
    figure = new_figure(WIDTH / 100, height / 100, constrained=False, dpi=100)
    canvas = figure.canvas
    grid = figure.add_gridspec(strips + 2, 2, left=0.108, right=0.985, top=1 - 26 / height, bottom=42 / height,
                               hspace=0.2, wspace=0.28, height_ratios=[STRIP] * strips + [TIMES, STRIP])  # fmt: skip
    axes = []
    for index in range(count):
        axis = figure.add_subplot(grid[index % strips, index // strips if count > 1 else slice(None)])
        if lines.goal is not None:
            axis.step(seconds[1:], lines.goal[1:, index], where="post", color=GOAL, linewidth=1.3)
        axis.plot(seconds, lines.measured[:, index], color=MEASURED, linewidth=1.6)
        _dress(axis, lines.names[index])
        if index % strips == strips - 1 or index == count - 1:  # the lowest of its column: its own time axis
            axis.tick_params(axis="x", labelbottom=True, length=3)
        axes.append(axis)
    axis = figure.add_subplot(grid[strips + 1, :])
    axis.step(seconds[1:], reward[1:], where="mid", color=REWARD, linewidth=1.6)
    _dress(axis, "reward unknown" if np.isnan(reward[1:]).all() else "reward")
    axis.tick_params(axis="x", labelbottom=True, length=3)
    axis.set_xlabel("seconds", color=QUIET, fontsize=9.5, labelpad=1)
    axes.append(axis)
    for axis in axes:
        axis.set_xlim(0, float(seconds[-1]) or 1.0)
        _shade(axis, seconds, rows["intervention"])
    unit = "" if lines.field.unit == "1" else f" in {lines.field.unit}"
    _legend(figure, height, lines.goal is not None, unit, bool(rows["intervention"].any()))
    if lines.field.size > count:
        figure.text(0.985, 1 - 6 / height, f"{lines.field.size - count} more elements not drawn", ha="right", va="top",
                    color=QUIET, fontsize=9.5)  # fmt: skip
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return image, [_box(axis, image.shape[0]) for axis in axes]


def _dress(axis: Any, name: str) -> None:
    tidy(axis, "y")
    axis.tick_params(labelsize=8.5, length=0, labelbottom=False)
    axis.margins(y=0.18)
    axis.locator_params(axis="y", nbins=3)
    axis.annotate(_label(name), (0, 0.5), (-46, 0), "axes fraction", "offset points",
                  ha="right", va="center", color=INK, fontsize=10)  # fmt: skip


def _label(name: str) -> str:
    """Return a strip's name in lines of at most `_LABEL` characters, three at most."""
    lines = [part[begin : begin + _LABEL] for part in name.split() for begin in range(0, len(part), _LABEL)]
    return "\n".join(lines[:3])


def _shade(axis: Any, seconds: np.ndarray, intervention: np.ndarray) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], intervention, [0]])))
    for start, stop in edges.reshape(-1, 2):
        axis.axvspan(seconds[max(start - 1, 0)], seconds[stop - 1], color=PERSON, alpha=0.6, linewidth=0, zorder=0)


def _legend(figure: Any, height: int, goal: bool, unit: str, person: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color=MEASURED, linewidth=2, label=f"measured{unit}")]
    if goal:
        handles.append(Line2D([], [], color=GOAL, linewidth=2, label=f"goal{unit}"))
    if person:
        handles.append(Patch(color=PERSON, label="a person acts"))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.1, 1 - 1 / height), ncols=len(handles),
                  frameon=False, fontsize=9.5, borderpad=0, borderaxespad=0.1, labelcolor=INK)  # fmt: skip


def _box(axis: Any, height: int) -> _Box:
    extent = axis.get_window_extent()
    return _Box(round(extent.x0), round(extent.x1), height - round(extent.y1), height - round(extent.y0))


class _Writer:
    """Writes text into images in the font that comes with matplotlib."""

    def __init__(self) -> None:
        self._fonts: dict[tuple[int, bool], Any] = {}

    def __call__(self, image: np.ndarray, text: str, x: int, y: int, size: int, colour: str, *, bold: bool = False,
                 right: bool = False, shade: bool = False) -> None:  # fmt: skip
        from PIL import Image, ImageDraw

        font = self._font(size, bold)
        drawn = Image.fromarray(image)
        pen = ImageDraw.Draw(drawn)
        x = x - round(pen.textlength(text, font)) if right else x
        if shade:
            pen.text((x + 1, y + 1), text, (0, 0, 0), font)
        pen.text((x, y), text, colour, font)
        image[:] = np.asarray(drawn)

    def _font(self, size: int, bold: bool) -> Any:
        if (size, bold) not in self._fonts:
            from matplotlib.font_manager import FontProperties, findfont
            from PIL import ImageFont

            path = findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal"))
            self._fonts[size, bold] = ImageFont.truetype(path, size)
        return self._fonts[size, bold]
