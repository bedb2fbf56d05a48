"""Make a table of plain arrays with one row a frame, and take a table apart into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, SourceError, Spec
from hal.errors import wrong_type
from recorder.formats.runs import rows_of, runs_of, table_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.table.table import Table

__all__ = ["table", "table_columns"]


def table(
    *,
    observation: Mapping[str, ArrayLike],
    action: Mapping[str, ArrayLike],
    episode: ArrayLike,
    reward: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    rate_hz: float = 50.0,
    fields: Sequence[Field] = (),
    infos: Sequence[JsonObject] | None = None,
    origin: str = "memory",
    notes: Sequence[str] = (),
) -> Table:
    """Make the table that the reader of a format returns, of arrays with one row a frame.

    A row holds an observation, the action that was chosen there, and the reward of that action. The last row of an
    episode holds its last observation; its action and reward are not used.

    Args:
        observation: name -> (R, ...) numbers. Names are in lower case, with underscores.
        action: name -> (R, ...) numbers.
        episode: (R,) whole numbers, equal within an episode; the rows of an episode follow one another.
        reward: (R,); None where none is known.
        terminated: (R,) bool; an episode whose last row is True was ended by its task. All others, and all where this
            is None, count as truncated.
        rate_hz: rows a second.
        fields: descriptions of observations and actions, found by their names, such as those of a robot's spec: units,
            ranges and elements, which a task compares. The unit of any other is 1.
        infos: one mapping of plain data for each episode (`Table.episodes`); None for none.
        origin: the path that the data were read from, for messages.
        notes: what was lost or repaired while reading, a sentence each.

    Raises:
        SourceError: arrays differ in length or hold no numbers, an episode has a single row or two places, the infos
            are not one for each episode, or a field is of no array or of another shape.
        TypeError: observation or action is no mapping.
    """
    for group, part in (("observation", observation), ("action", action)):
        if not isinstance(part, Mapping):
            raise wrong_type(group, part, "a mapping from names to arrays, such as {'joint_position': positions}")
    numbers = np.asarray(episode)
    if numbers.ndim != 1 or not len(numbers):
        raise SourceError(f"{origin}: episode has shape {numbers.shape}, expected (R,) with a row or more")
    count = len(numbers)
    observed, acted = (
        {name: _numbers(origin, f"{group} {name!r}", values, count) for name, values in part.items()}
        for group, part in (("observation", observation), ("action", action))
    )
    rewards = np.full(count, np.nan) if reward is None else _numbers(origin, "reward", reward, count).astype(float)
    ended = np.zeros(count, bool) if terminated is None else _numbers(origin, "terminated", terminated, count) != 0
    for name, values in (("reward", rewards), ("terminated", ended)):
        if values.shape != (count,):
            raise SourceError(f"{origin}: {name} has shape {values.shape}, expected ({count},)")
    stops = np.append(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1, count)
    starts = np.append(0, stops[:-1])
    if len(np.unique(numbers)) < len(starts):
        raise SourceError(f"{origin}: the rows of an episode do not follow one another; sort them by episode")
    infos = [{}] * len(starts) if infos is None else infos
    if len(infos) != len(starts):
        raise SourceError(f"{origin}: infos are {len(infos)}, expected one for each of {len(starts)} episodes")
    given = {one.name: one for one in fields}
    observation_spec, action_spec = _specs(origin, {"observation": observed, "action": acted}, given)
    layout = FrameLayout(observation_spec, action_spec)
    episodes = []
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        if stop - start < 2:
            raise SourceError(f"{origin}: episode {numbers[start]} has a single row; a step needs the row after it")
        stamp_ns = np.round(np.arange(stop - start) * 1e9 / rate_hz).astype(np.int64)
        parts = {name: values[start:stop] for name, values in observed.items()}
        steps = {name: values[start : stop - 1] for name, values in acted.items()}
        ends = bool(ended[stop - 1]), not ended[stop - 1]
        episodes.append(rows_of(layout, number, parts, steps, rewards[start : stop - 1], ends, stamp_ns))
    return table_of(layout, episodes, infos, origin, notes)


def table_columns(source: Table) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of a table, as `table` takes them, for the writer of a format.

    The last row of each episode has no action or reward of its own: it is filled with an action of zeros and a reward
    of NaN.

    Returns:
        The keyword arguments ``observation``, ``action``, ``episode``, ``reward`` and ``terminated`` of `table`, and a
        sentence for each thing that the arrays don't hold.

    Raises:
        SourceError: the table has rewards of several agents.
    """
    if source.layout.agents:
        raise SourceError(f"{source.origin} has a reward for each of several agents; these arrays hold one")
    runs, notes = runs_of(source)
    lengths = [len(run) + 1 for run in runs]
    last = np.cumsum(lengths, dtype=np.int64) - 1
    ended = np.zeros(sum(lengths), bool)
    ended[last] = [run.terminated for run in runs]
    return {
        "observation": _joined([run.group("observation", source.layout.observation) for run in runs]),
        "action": _joined([_padded(run.group("action", source.layout.action)) for run in runs]),
        "episode": np.repeat(np.arange(len(runs)), lengths),
        "reward": np.concatenate([np.empty(0), *(np.append(run.came["reward"], np.nan) for run in runs)]),
        "terminated": ended,
    }, notes


def _numbers(origin: str, what: str, values: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise SourceError(f"{origin}: {what} has type {array.dtype}, expected numbers")
    if not array.ndim or len(array) != count:
        raise SourceError(f"{origin}: {what} has shape {array.shape}, expected {count} rows, as episode has")
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _specs(origin: str, groups: Mapping[str, Mapping[str, np.ndarray]], fields: Mapping[str, Field]) -> Iterator[Spec]:
    known = {name: values.shape[1:] for group in groups.values() for name, values in group.items()}
    for name, field in fields.items():
        if known.get(name) != field.shape:
            what = f"shape {field.shape}, its array has {known[name]}" if name in known else "no array"
            raise SourceError(f"{origin}: field {name!r} has {what}; arrays are {', '.join(known)}")
    for group, arrays in groups.items():
        own = {name: Field(name, values.shape[1:], values.dtype.name) for name, values in arrays.items()}
        yield Spec(group, tuple(fields.get(name, field) for name, field in own.items()))


def _padded(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([value, np.zeros_like(value[:1])]) for name, value in values.items()}


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else {})}
