"""Plot an episode on one sheet: images, goals and measurements, reward, and the source of the actions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hal import Field, LogError, SourceError
from recorder.figures.style import BLUE, GREEN, INK, ORANGE, QUIET, RED, SHADE, new_figure, saved, tidy
from recorder.frame_layout import FrameLayout, reward_field
from recorder.images.images import Images
from recorder.images.sources import ImageSources
from recorder.table.pairing import UNPAIRED, pair_elements
from recorder.table.table import Table

__all__ = ["Lines", "pick_lines", "plot_episode"]

MEASURED, GOAL, REWARD, PERSON, FAULT = BLUE, ORANGE, GREEN, SHADE, RED
MOST_LINES = 12
"""Largest number of elements that are drawn; more would make a sheet unreadable."""

_END = 90
"""Characters of an episode's end that fit into a line; `rlenv-robot data show` prints all of it."""

_PAIRS = (
    ("sensor_joint_position", "applied_joint_target"),
    ("sensor_joint_position", "sensor_joint_goal"),
    ("observation_joint_position", "action_joint_target"),
    ("observation_state", "action_target"),
)
"""Pairs of a measurement and its goal; the first pair that a table has is drawn."""


_MEASURED = ("observation_", "sensor_")


@dataclass(frozen=True)
class Lines:
    """The lines of a plot: measurements of an episode, and the goals that belong to them.

    Attributes:
        field: the measured field.
        names: names of the n strips: the field's elements, and the commands that belong to none of them.
        measured: the measurements, shape (T, n), NaN in the strip of a command without one.
        goal: the goals, shape (T, n), NaN for an element without one; None if no element has one.
    """

    field: Field
    names: tuple[str, ...]
    measured: np.ndarray
    goal: np.ndarray | None


def plot_episode(table: Table, episode: int, path: Path | str) -> Path:
    """Draw one episode of a table as an image.

    Each camera has a strip of images, each at the time of its frame. Each element has a strip with its goal and its
    measurement; below them is the reward, over one time axis in seconds. Shading marks actions of a person, a red tick
    a refused action, a red cross an action that perhaps was not carried out because the robot was lost, and a line the
    episode's end.

    Args:
        table: the table with the episode.
        episode: the episode's index in the table.
        path: the image's file, ending in ``.png``, ``.svg`` or ``.pdf``; its folder is made if missing.

    Returns:
        The path.

    Raises:
        SourceError: the table has no such episode, or nothing that can be drawn.
        LogError: matplotlib is missing, or the image can't be written.
    """
    if not 0 <= episode < len(table.starts):
        raise SourceError(f"{table.origin} has no episode {episode}, it has {len(table.starts)}")
    rows = table.rows[table.starts[episode] : table.stops[episode]]
    lines = pick_lines(table.layout, rows)
    seconds = (rows["stamp_ns"] - rows["stamp_ns"][0]) / 1e9
    count = len(lines.names)
    films, lost = _films(table, episode)
    figure = new_figure(10, 1.15 + 0.85 * (len(films) + count) + 1.1)
    ratios = [1] * (len(films) + count) + [1.25]
    axes = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    for strip, film in zip(axes, films, strict=False):
        _draw_film(strip, seconds, film)
    axes = axes[len(films) :]
    for index, strip in enumerate(axes[:-1]):
        _draw_strip(strip, seconds, lines, index)
    _draw_reward(axes[-1], seconds, rows, table.layout)
    for strip in axes:
        _mark(strip, seconds, rows)
    axes[-1].set_xlim(-0.01 * max(seconds[-1], 1e-9), 1.01 * max(seconds[-1], 1e-9))
    figure.align_ylabels(figure.axes)
    _head(figure, figure.axes[0], table, episode, rows, lines, lost)
    return saved(figure, path)


def pick_lines(layout: FrameLayout, rows: np.ndarray) -> Lines:
    """Choose the measurements of an episode to draw, and their goals.

    Raises:
        SourceError: the rows have neither sensors nor observations.
    """
    spec = layout.spec
    for measured, goal in _PAIRS:
        if layout.turns and measured.startswith("observation_"):
            continue  # observations alternate between agents
        if measured in spec and goal in spec:
            return _pick(spec[measured], rows, spec[goal])
    drawn = [
        field
        for field in spec
        if not field.is_text and field.name.startswith(("sensor_",) if layout.turns else _MEASURED)
    ]
    if not drawn:
        raise SourceError("these rows have neither sensors nor observations, there is nothing to draw")
    commands = [field for field in spec if not field.is_text and field.name.startswith("action_") and not layout.turns]
    return _pick(drawn[0], rows, commands[0] if commands else None)


def _pick(field: Field, rows: np.ndarray, goal: Field | None) -> Lines:
    """Choose the strips: each measurement with its goal, paired by name or by order, then commands without a sensor."""
    flat, names = rows[field.name].reshape(len(rows), -1).astype(float), _names(field)
    if goal is None:
        return Lines(field, tuple(names[:MOST_LINES]), flat[:, :MOST_LINES], None)
    goals, pairs = rows[goal.name].reshape(len(rows), -1).astype(float), pair_elements(field, goal)
    pairs = [UNPAIRED] * field.size if pairs is None else pairs
    alone = [index for index in range(goal.size) if index not in pairs]
    most = max(MOST_LINES - len(alone), MOST_LINES // 2)  # commands without a sensor get half of the sheet at most
    strips = [(element, index) for element, index in enumerate(pairs)][:most] + [(UNPAIRED, index) for index in alone]
    strips = strips[:MOST_LINES]
    empty = np.full(len(rows), np.nan)
    measured = [empty if element == UNPAIRED else flat[:, element] for element, _ in strips]
    commanded = [empty if index == UNPAIRED else goals[:, index] for _, index in strips]
    titles = [f"{_names(goal)[index]} (action)" if element == UNPAIRED else names[element] for element, index in strips]
    return Lines(field, tuple(titles), np.stack(measured, 1), np.stack(commanded, 1))


def _names(field: Field) -> list[str]:
    names = field.elements if len(field.elements) == field.size else tuple(map(str, range(field.size)))
    return [name.removesuffix(".pos").replace("_", " ") for name in names]


class _Film(NamedTuple):
    """Images of one camera: the frames that they belong to, and uint8 (n, height, width, 3)."""

    camera: str
    frames: np.ndarray
    images: np.ndarray


_FILM_INCHES = (8.4, 0.8)
"""Width and height of a strip of images on the sheet."""
_FILM_PIXELS = 120
"""Height of an image that is drawn."""


def _films(table: Table, episode: int) -> tuple[list[_Film], str]:
    """Return the images to draw, by camera, and why some are missing."""
    films = []
    try:
        sources = ImageSources(table)
        source = sources.at(sources.where(episode))
        if source is None:
            return [], ""
        start, stop = int(table.starts[episode]), int(table.stops[episode])
        for camera in source.cameras:
            height, width = _size(table, sources, camera, start)
            most = max(int(_FILM_INCHES[0] / (_FILM_INCHES[1] * width / height)), 1)
            frames = np.unique(np.linspace(0, stop - start - 1, most + 1)[:-1].astype(int))
            size = (_FILM_PIXELS, max(round(_FILM_PIXELS * width / height), 1))
            with Images(table, size=size, sources=sources, cache_bytes=0) as decoder:
                images, mask = decoder.at(start + frames, camera)
            films.append(_Film(camera, frames[mask], images[mask]))
    except (SourceError, LogError) as error:
        return films, textwrap.shorten(f"images can't be drawn: {error}", _END, placeholder=" ...")
    return films, ""


def _size(table: Table, sources: ImageSources, camera: str, row: int) -> tuple[int, int]:
    """Return height and width of a camera's images."""
    with Images(table, sources=sources, cache_bytes=0) as decoder:
        height, width = decoder.at([row], camera)[0].shape[1:3]
    return height, width


def _draw_film(axis: Any, seconds: np.ndarray, film: _Film) -> None:
    axis.set_ylabel(film.camera.replace("_", " "), rotation=0, ha="right", va="center", color=INK, fontsize=9)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(axis="x", length=0, labelbottom=False)
    axis.set_ylim(0, 1)
    span = max(float(seconds[-1]), 1e-9)
    for frame, image in zip(film.frames.tolist(), film.images, strict=True):
        wide = _FILM_INCHES[1] * image.shape[1] / image.shape[0] / _FILM_INCHES[0] * span
        begin = float(seconds[frame])
        axis.imshow(image, extent=(begin, begin + 0.97 * wide, 0, 1), aspect="auto", interpolation="antialiased")
    axis.set_ylim(0, 1)


def _draw_strip(axis: Any, seconds: np.ndarray, lines: Lines, index: int) -> None:
    if lines.goal is not None:  # a goal holds until the next; row 0 has none
        axis.step(seconds[1:], lines.goal[1:, index], where="post", color=GOAL, linewidth=1.1, label="goal")
    axis.plot(seconds, lines.measured[:, index], color=MEASURED, linewidth=1.4, label="measured")
    axis.set_ylabel(lines.names[index], rotation=0, ha="right", va="center", color=INK, fontsize=9)
    _tidy(axis)


def _draw_reward(axis: Any, seconds: np.ndarray, rows: np.ndarray, layout: FrameLayout) -> None:
    agents: Sequence[str] = layout.agents or ("",)
    for agent in agents:
        axis.step(seconds[1:], rows[reward_field(agent)][1:], where="mid", linewidth=1.3,
                  color=REWARD if len(agents) == 1 else None, label=agent or None)  # fmt: skip
    if len(agents) > 1:
        axis.legend(frameon=False, fontsize=8, ncols=len(agents), loc="upper left")
    axis.set_ylabel("reward", rotation=0, ha="right", va="center", color=INK, fontsize=9)
    axis.set_xlabel("seconds since the episode began", color=INK, fontsize=9)
    _tidy(axis)
    axis.spines["bottom"].set_visible(True)
    axis.tick_params(axis="x", length=3)


def _tidy(axis: Any) -> None:
    tidy(axis, "y")
    axis.spines["bottom"].set_visible(False)
    axis.tick_params(axis="x", length=0)
    axis.margins(x=0.01, y=0.18)
    axis.locator_params(axis="y", nbins=3)


def _mark(axis: Any, seconds: np.ndarray, rows: np.ndarray) -> None:
    """Shade a person's actions, mark actions that were not carried out, draw the end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows["intervention"], [0]])))
    for start, stop in edges.reshape(-1, 2):
        axis.axvspan(seconds[max(start - 1, 0)], seconds[stop - 1], color=PERSON, alpha=0.6, linewidth=0, zorder=0)
    for marker, _, frames in _not_acted(rows):
        heights = np.full(len(frames), 0.06)
        axis.plot(seconds[frames], heights, marker, color=FAULT, transform=axis.get_xaxis_transform())
    if rows["terminated"][-1] or rows["truncated"][-1]:
        axis.axvline(seconds[-1], color=INK if rows["terminated"][-1] else QUIET, linewidth=1.2, linestyle=(0, (2, 2)))


def _not_acted(rows: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
    """Return marker, label and rows of the actions that made no transition; a refused action keeps the frame number."""
    idle, follows = rows["acted"][1:] == 0, np.diff(rows["frame_no"].astype(np.int64)) > 0
    refused, lost = (np.flatnonzero(idle & mask) + 1 for mask in (~follows, follows))
    return [("|", "action refused", refused), ("x", "robot lost, action perhaps not carried out", lost)]


def _head(figure: Any, top: Any, table: Table, episode: int, rows: np.ndarray, lines: Lines, lost: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    info = table.episodes[episode]
    title = f"{str(info.get('task', Path(table.origin).name)).rstrip('.')}, episode {episode}"
    total = sum(float(rows[reward_field(agent)].sum()) for agent in (table.layout.agents or ("",)))
    state = "terminated" if rows["terminated"][-1] else "truncated" if rows["truncated"][-1] else "open"
    end = textwrap.shorten(str(info.get("end", state)), _END, placeholder=" ...")
    facts = [f"{len(rows) - 1} steps", f"return {total:.4g}", state if end == state else f"{state} ({end})"]
    unit = "" if lines.field.unit == "1" else f" in {lines.field.unit}"
    if lines.field.size > len(lines.names):
        facts.append(f"{lines.field.size - len(lines.names)} more elements not drawn")
    facts += [lost] if lost else []
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, color=INK, fontweight="bold")
    top.set_title(" · ".join(facts), loc="left", fontsize=9.5, color=QUIET, pad=26)
    handles: list[Any] = [Line2D([], [], color=MEASURED, label=f"measured{unit}")]
    if lines.goal is not None:
        handles.append(Line2D([], [], color=GOAL, label=f"goal{unit}"))
    if rows["intervention"].any():
        handles.append(Patch(color=PERSON, label="a person acts"))
    for marker, label, frames in _not_acted(rows):
        if len(frames):
            handles.append(Line2D([], [], color=FAULT, marker=marker, linestyle="", label=label))
    top.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.06), ncols=len(handles), frameon=False,
               fontsize=8.5, borderaxespad=0, borderpad=0, handlelength=1.6, columnspacing=1.6)  # fmt: skip
