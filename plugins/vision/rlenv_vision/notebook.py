"""Show environments, recorded episodes and source data in a notebook, as HTML of bounded size."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hal import Field, RobotError, Spec
from rlenv_robot.rendering.notebook import RecordedEpisode
from rlenv_robot.rendering.show import frame_rate, twin_images
from rlenv_robot.world import World

if TYPE_CHECKING:
    from recorder.table.table import Table

__all__ = ["ShownEnvironment", "environment_html", "episode_html", "source_html"]

_MOST_FIELDS, _MOST_EPISODES, _MOST_FRAMES, _MOST_POINTS, _MOST_LINES = 40, 20, 90, 300, 6
_SIZE = {"width": 400, "height": 300, "fine": False}
_MOST_VIDEO_BYTES = 3 << 20
"""Largest video in a notebook; a longer episode is shown as an image."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that colour-blind people can distinguish (Okabe and Ito, "Color Universal Design", 2008)."""


class ShownEnvironment(Protocol):
    """The part of `rlenv_robot.env.Environment` that `environment_html` shows."""

    env_id: str

    @property
    def world(self) -> World:
        """The environment's world."""
        ...

    @property
    def is_recorded(self) -> bool:
        """Whether an observer records the frames."""
        ...


def environment_html(env: ShownEnvironment) -> str:
    """Return an environment as HTML: its description, an image, and its observation and action."""
    world = env.world
    facts = [("environment", env.env_id), ("world", world.name), ("recorded", "yes" if env.is_recorded else "no")]
    try:
        picture = _image(world.image(dict(_SIZE)))
    except RobotError as error:
        picture = f"<p>{escape(str(error))}</p>"
    fields = _fields([("observation", world.observation), ("action", world.action)])
    return f"<div>{_facts(facts)}{picture}{fields}</div>"


def source_html(table: Table, transitions: int) -> str:
    """Return recorded data as HTML: counts, returns and lengths of the episodes, the first episodes, and the fields.

    Args:
        table: the frames.
        transitions: number of transitions.
    """
    lengths, returns = table.stops - table.starts, _returns(table)
    infos = table.episodes
    rated = [bool(info["success"]) for info in infos if isinstance(info.get("success"), bool | int)]
    facts = [
        ("data", table.origin),
        ("episodes", f"{len(lengths):,}"),
        ("transitions", f"{transitions:,}"),
        ("tasks", ", ".join(sorted({str(info.get("task")) for info in infos if info.get("task")})[:_MOST_LINES])),
        ("success", f"{np.mean(rated):.0%} of {len(rated):,} judged" if rated else "not judged"),
    ]
    rows = [
        (str(number), str(lengths[number]), f"{returns[number]:.4g}", _outcome(infos[number].get("success")))
        for number in range(min(len(lengths), _MOST_EPISODES))
    ]
    known = returns[np.isfinite(returns)]
    plots = _histogram("return of an episode", known) + _histogram("frames of an episode", lengths)
    more = f"<p>and {len(lengths) - len(rows):,} more</p>" if len(lengths) > len(rows) else ""
    fields = _fields([("observation", table.layout.observation), ("action", table.layout.action)])
    return f"<div>{_facts(facts)}{plots}{_rows(('episode', 'frames', 'return', 'success'), rows)}{more}{fields}</div>"


def episode_html(episode: RecordedEpisode) -> str:
    """Return an episode as HTML: its facts, a video or an image, and its signals."""
    facts = [
        ("episode", f"{episode.number} of {episode.table.origin}"),
        ("task", str(episode.info.get("task", "unknown"))),
        ("frames", f"{len(episode):,}"),
        ("return", f"{float(np.sum(_reward(episode)[1:])):.4g}"),
        ("success", _outcome(episode.info.get("success"))),
    ]
    return f"<div>{_facts(facts)}{_video(episode)}{_signals(episode)}</div>"


def _reward(episode: RecordedEpisode) -> np.ndarray:
    names = [name for name in episode.rows.dtype.names or () if name == "reward" or name.startswith("reward_")]
    total: np.ndarray = np.sum([np.asarray(episode.rows[name], float) for name in names], axis=0)
    return total


def _signals(episode: RecordedEpisode) -> str:
    rows, layout = episode.rows, episode.table.layout
    seconds = (rows["stamp_ns"] - rows["stamp_ns"][0]) / 1e9
    if not seconds[-1] > 0:
        seconds = np.arange(len(rows), dtype=float)
    plots = [_lines("reward", seconds, {"reward": _reward(episode)})]
    for group, spec in (("observation", layout.observation), ("action", layout.action)):
        for field in itertools.islice((field for field in spec if _drawn(field)), 2):
            values = np.asarray(rows[f"{group}_{field.name}"], float).reshape(len(rows), -1)
            names = [str(name) for name in field.elements] or [str(index) for index in range(values.shape[1])]
            lines = dict(zip(names[:_MOST_LINES], values.T[:_MOST_LINES], strict=False))
            unit = "" if field.unit == "1" else f", {field.unit}"
            plots.append(_lines(f"{group} {field.name}{unit}", seconds, lines))
    return "".join(plots)


def _video(episode: RecordedEpisode) -> str:
    """Return a video of the robot's model in the recorded poses, with every n-th frame of a long episode."""
    every = -(-len(episode) // _MOST_FRAMES)
    try:
        images = list(twin_images(episode.table, episode.number, dict(_SIZE), slice(None, None, every)))
    except RobotError as error:
        return f"<p>{escape(str(error))}</p>"
    video = _encoded(images, max(frame_rate(episode.table, episode.number) / every, 1.0))
    return _image(images[-1]) if video is None else video


def _drawn(field: Field) -> bool:
    return not field.is_text and 0 < field.size <= 64


def _returns(table: Table) -> np.ndarray:
    names = [name for name in table.rows.dtype.names or () if name == "reward" or name.startswith("reward_")]
    spans = zip(table.starts.tolist(), table.stops.tolist(), strict=True)
    return np.array([sum(float(np.sum(table.rows[name][a + 1 : b])) for name in names) for a, b in spans])


def _outcome(success: object) -> str:
    return ("yes" if success else "no") if isinstance(success, bool | int) else "not judged"


# -- HTML ------------------------------------------------------------------------------------------------------


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table>{rows}</table>"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _fields(groups: Iterable[tuple[str, Spec]]) -> str:
    rows = [
        (
            group, field.name, "x".join(map(str, field.shape)) or "1", field.unit,
            f"{np.min(field.low):.4g} to {np.max(field.high):.4g}" if not field.is_text else "text", field.meaning,
        )
        for group, spec in groups for field in spec
    ]  # fmt: skip
    more = f"<p>and {len(rows) - _MOST_FIELDS} more fields</p>" if len(rows) > _MOST_FIELDS else ""
    head = ("part", "field", "shape", "unit", "range", "meaning")
    return f"<details open><summary>fields</summary>{_rows(head, rows[:_MOST_FIELDS])}{more}</details>"


def _image(pixels: np.ndarray) -> str:
    """Return an image of uint8 (height, width, 3), RGB, as an element of HTML."""
    return f'<img alt="the state" src="{_jpeg(pixels)}">'


def _jpeg(pixels: np.ndarray) -> str:
    """Return an image as a URL that holds it."""
    from hal import Image
    from recorder.log.image_codec import encoded

    data = encoded(Image(np.ascontiguousarray(pixels), "rgb8", 0), "notebook").data
    return f"data:image/jpeg;base64,{base64.b64encode(bytes(data)).decode()}"


def _encoded(images: list[np.ndarray], fps: float) -> str | None:
    """Return a video as an element of HTML; None where none can be written here, or it is too long."""
    from recorder.images.video import write_video

    with TemporaryDirectory() as folder:
        path = Path(folder) / "episode.mp4"
        try:
            write_video(path, images, fps)
        except RobotError:
            return None
        if path.stat().st_size > _MOST_VIDEO_BYTES:
            return None
        data = base64.b64encode(path.read_bytes()).decode()
    height, width, _ = images[0].shape
    size = f'width="{width}" height="{height}" poster="{_jpeg(images[len(images) // 2])}"'
    return f'<video controls loop muted {size} src="data:video/mp4;base64,{data}"></video>'


# -- Plots, as SVG: no plotting library is needed ----------------------------------------------------------------

_WIDE, _HIGH, _LEFT, _BELOW = 400.0, 110.0, 48.0, 18.0


def _lines(title: str, seconds: np.ndarray, lines: dict[str, np.ndarray]) -> str:
    """Return lines over time."""
    chosen = np.unique(np.linspace(0, len(seconds) - 1, min(len(seconds), _MOST_POINTS)).astype(int))
    values = np.array([line[chosen] for line in lines.values()])
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    across = (seconds[chosen] - seconds[0]) / max(float(seconds[-1] - seconds[0]), 1e-9)
    parts = []
    for colour, (name, line) in zip(itertools.cycle(_COLOURS), zip(lines, values, strict=True), strict=False):
        up = (line - low) / max(high - low, 1e-12)
        points = " ".join(
            f"{_LEFT + x * (_WIDE - _LEFT):.1f},{_HIGH * (1 - y):.1f}"
            for x, y in zip(across, up, strict=True)
            if np.isfinite(y)
        )
        parts.append(
            f'<polyline fill="none" stroke="{colour}" points="{points}"><title>{escape(name)}</title></polyline>'
        )
    coloured = zip(itertools.cycle(_COLOURS), lines, strict=False)
    key = " ".join(f'<span style="color:{colour}">{escape(name)}</span>' for colour, name in coloured)
    heading = f"{escape(title)}: {key}" if len(lines) > 1 else escape(title)
    return _plot(heading, parts, (low, high), f"{seconds[-1]:.4g} s")


def _histogram(title: str, values: np.ndarray) -> str:
    """Return bars of how many values lie in each of twenty intervals."""
    if not len(values):
        return ""
    counts, edges = np.histogram(np.asarray(values, float), 20)
    wide = (_WIDE - _LEFT) / len(counts)
    bars = [
        f'<rect x="{_LEFT + index * wide:.1f}" y="{_HIGH * (1 - count / counts.max()):.1f}" width="{wide - 1:.1f}" '
        f'height="{_HIGH * count / counts.max():.1f}" fill="{_COLOURS[0]}"><title>{count}</title></rect>'
        for index, count in enumerate(counts.tolist())
    ]
    return _plot(
        f"{escape(title)}: {edges[0]:.4g} to {edges[-1]:.4g}", bars, (0, int(counts.max())), f"{edges[-1]:.4g}"
    )


def _plot(heading: str, parts: list[str], scale: tuple[float, float], end: str) -> str:
    label = '<text x="{}" y="{}" font-size="10" text-anchor="end" fill="currentColor">{}</text>'
    texts = [
        label.format(_LEFT - 4, 10, f"{scale[1]:.3g}"), label.format(_LEFT - 4, _HIGH, f"{scale[0]:.3g}"),
        label.format(_WIDE, _HIGH + 13, end),
    ]  # fmt: skip
    axis = f'<path d="M{_LEFT} 0V{_HIGH}H{_WIDE}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
    return (
        f'<figure style="margin:6px 0"><figcaption>{heading}</figcaption>'
        f'<svg viewBox="0 0 {_WIDE:g} {_HIGH + _BELOW:g}" width="{_WIDE:g}" role="img">'
        f"{axis}{''.join(parts)}{''.join(texts)}</svg></figure>"
    )
