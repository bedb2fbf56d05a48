"""Draw a panel beside an image, with the agent's observation and other data of a frame (clause 6.2.2.3)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hal import Field, Image, Spec
from recorder.frame_layout import BEHAVIOUR_PREFIX, EXTRA_PREFIX, FrameLayout, reward_field
from recorder.json_data import JsonObject
from rlenv_robot.tables import Reward

__all__ = ["Line", "beside", "field_lines", "info_lines", "reward_lines", "row_lines"]

_WIDTH, _LINE, _MARGIN = 330, 15, 8
"""Width of a column, height of a line, and margin, in pixels."""
_CHARACTERS = 50
"""Characters that a column has room for."""
_MOST_COLUMNS = 3
_MOST_ELEMENTS = 24
"""A field of more elements is described by its shape and range alone."""
_BLANK_HEIGHT = 480
_BACKGROUND, _TEXT, _STRONG, _BAR, _TRACK = (24, 26, 30), (214, 218, 224), (255, 204, 102), (88, 166, 255), (58, 62, 70)
_UNSHOWN = frozenset({"agents", "images", "used", "fields", "controller"})
"""Entries of ``extra_info`` that are shown otherwise, or that are names of fields alone."""


class Line(NamedTuple):
    """One line of a panel.

    Attributes:
        text: the text to draw.
        share: position of the value in its range, 0 to 1, drawn as a bar; None for no bar.
        strong: whether the line is a heading.
    """

    text: str
    share: float | None = None
    strong: bool = False


def field_lines(title: str, spec: Spec, values: Mapping[str, np.ndarray]) -> Iterator[Line]:
    """Yield a heading, and a line for each element of the fields, as many as fit.

    Args:
        title: the heading.
        spec: the fields.
        values: by field name, without leading axes.
    """
    if not len(spec):
        return
    yield Line(title, strong=True)
    for field in spec:
        value = np.asarray(values[field.name])
        if field.counted_by:
            value = value[: int(values[field.counted_by])]
        yield from _of_field(field, value)


def _of_field(field: Field, value: np.ndarray) -> Iterator[Line]:
    unit = "" if field.unit == "1" else f" {field.unit}"
    if field.is_text:
        for text in value.ravel().tolist():
            yield from _wrapped(f"{field.name}: {text}")
        return
    if value.size > _MOST_ELEMENTS or not value.size:
        span = f": {value.min():.4g} to {value.max():.4g}{unit}" if value.size else " (none)"
        yield Line(f"{field.name} {list(value.shape)}{span}")
        return
    low, high = (np.broadcast_to(bound, field.shape).ravel() for bound in field.bounds)
    ends = [np.broadcast_to(np.ravel(side), field.size) for side in (field.low, field.high)]
    for place, number in enumerate(value.ravel().tolist()):
        closed = np.isfinite(ends[0][place]) and np.isfinite(ends[1][place])
        width = float(high[place]) - float(low[place])
        share = float(np.clip((number - float(low[place])) / width, 0, 1)) if closed and width > 0 else None
        yield Line(f"{field.name}{_element(field, place)} {number:.4g}{unit}", share)


def _element(field: Field, place: int) -> str:
    if not field.shape:
        return ""
    index = np.unravel_index(place, field.shape)
    name = field.elements[int(index[-1])] if field.elements else ""
    numbers = ",".join(str(int(i)) for i in (index[:-1] if name else index))
    return f"[{','.join(part for part in (numbers, name) if part)}]"


def reward_lines(reward: Reward) -> Iterator[Line]:
    """Yield one line for the reward, or one per agent."""
    yield Line("reward", strong=True)
    for agent, value in (reward if isinstance(reward, Mapping) else {"": reward}).items():
        yield Line(f"{agent} {float(value):.4g}".strip())


def info_lines(title: str, extra: JsonObject) -> Iterator[Line]:
    """Yield a heading, and a line for each entry of JSON data, with dotted names for nested ones; nothing if empty."""
    lines = list(_plain("", {name: value for name, value in extra.items() if name not in _UNSHOWN}))
    if lines:
        yield Line(title, strong=True)
        yield from lines


def _plain(name: str, value: object) -> Iterator[Line]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _plain(f"{name}.{key}" if name else str(key), item)
        return
    is_list = isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value)
    array = np.asarray(value) if is_list or isinstance(value, np.ndarray | np.generic | float) else None
    if array is not None and array.dtype.kind in "biuf":
        numbers = " ".join(f"{number:.4g}" for number in array.ravel().tolist())
        yield from _wrapped(f"{name}: {numbers if array.size <= 8 else list(array.shape)}")
    elif not isinstance(value, Image):
        yield from _wrapped(f"{name}: {value}")


def _wrapped(text: str) -> Iterator[Line]:
    for line in textwrap.wrap(text, _CHARACTERS, subsequent_indent="  ") or [""]:
        yield Line(line)


def row_lines(layout: FrameLayout, row: np.ndarray, info: JsonObject, last: bool) -> list[Line]:
    """Return the lines of a recorded frame.

    Args:
        layout: the layout of the row.
        row: one frame row.
        info: the episode's record.
        last: whether it is the episode's last frame, to which the result of the episode is added.
    """
    flags = [name for name in ("terminated", "truncated", "intervention") if row[name]]
    lines = [Line(f"frame {row['frame_no']} of episode {row['episode']} {' '.join(flags)}".strip(), strong=True)]

    def group(title: str, prefix: str, spec: Spec) -> Iterable[Line]:
        return field_lines(title, spec, {name: row[f"{prefix}_{name}"] for name in spec.names})

    lines += group("observation", "observation", layout.observation)
    if row["acted"]:
        lines += group("action", "action", layout.action)
        lines += group("taken beside the action", EXTRA_PREFIX, layout.extra)
        lines += group("behaviour distribution", BEHAVIOUR_PREFIX, layout.behaviour)
        rewards = {agent: float(row[reward_field(agent)]) for agent in layout.agents or ("",)}
        lines += reward_lines(rewards)
    if last:
        lines += info_lines("end", {name: info[name] for name in _END if info.get(name) is not None})
    return lines


_END = ("end", "success", "verdict", "return", "metrics", "goal")


def beside(image: np.ndarray | None, lines: Sequence[Line], room_for: int = 0) -> np.ndarray:
    """Append lines to the right of an image in up to three columns, and the number of lines that don't fit.

    Args:
        image: uint8 of shape (height, width, 3), RGB; None for the lines only. A small one is enlarged.
        lines: from top to bottom. Characters beyond ASCII are drawn as ``?``.
        room_for: minimum number of lines to reserve space for, so that all frames of a video have one width.

    Returns:
        uint8 of shape (height, larger width, 3).
    """
    if image is not None:  # a small board of pixels would leave no room for lines
        factor = max(1, _BLANK_HEIGHT // image.shape[0])
        image = image.repeat(factor, axis=0).repeat(factor, axis=1)
    height = _BLANK_HEIGHT if image is None else image.shape[0]
    room = max(1, (height - 2 * _MARGIN) // _LINE)
    most = room * _MOST_COLUMNS
    shown = list(lines) if len(lines) <= most else [*lines[: most - 1], Line(f"... and {len(lines) - most + 1} more")]
    columns = [_column(shown[at : at + room], height) for at in range(0, max(len(shown), min(room_for, most), 1), room)]
    return np.hstack([*([] if image is None else [image]), *columns])


def _column(lines: Sequence[Line], height: int) -> np.ndarray:
    from recorder.log.image_codec import opencv

    cv2 = opencv("drawing what the agent saw")
    column = np.full((height, _WIDTH, 3), _BACKGROUND, np.uint8)
    bar = (_WIDTH - 70, _WIDTH - _MARGIN)
    for number, line in enumerate(lines):
        bottom = _MARGIN + (number + 1) * _LINE - 4
        if line.share is not None:
            cv2.rectangle(column, (bar[0], bottom - 5), (bar[1], bottom - 2), _TRACK, -1)
            end = bar[0] + round((bar[1] - bar[0]) * line.share)
            cv2.rectangle(column, (bar[0], bottom - 5), (end, bottom - 2), _BAR, -1)
        text = line.text.encode("ascii", "replace").decode()
        colour = _STRONG if line.strong else _TEXT
        cv2.putText(column, text, (_MARGIN, bottom), cv2.FONT_HERSHEY_SIMPLEX, 0.37, colour, 1, cv2.LINE_AA)
    return column
