"""Describe recorded data by statistics in JSON form, for `SourceData.statistics` (R3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hal import Field, SourceError
from hal.errors import missing_plugin
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import is_success
from recorder.table.selection import Selection
from recorder.table.transitions import Transitions
from rlenv_robot.config.plugin_names import plugin_of
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.data.episode_records import is_expert
from rlenv_robot.data.filters import need_rewards, select
from rlenv_robot.data.options import FILTERS, Check, choice, read
from rlenv_robot.tables import Options

__all__ = [
    "KINDS", "StatisticsKind", "StatisticsRequest", "episodes", "kind_names", "load_kind", "moments", "returns",
    "statistics", "summary", "timing",
]  # fmt: skip

# -- distributions: returns, fields, timing ------------------------------------------------------------------


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

_LATE = 1.5
"""A period counts as late from this many nominal ones: half a period too long, so jitter alone is not late."""


def moments(values: np.ndarray) -> JsonDict:
    """Return mean, deviation, range and quantiles along the first axis, as lists of the other axes' shape."""
    values = np.asarray(values)
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    # Element by element in its own type: several times as fast as one pass over all in double precision.
    columns = [_columnmoments(np.sort(flat[:, k])) for k in range(flat.shape[1])]
    names = ("mean", "std", "min", "max", *_QUANTILES)
    figures = np.array(columns, float).reshape(*values.shape[1:], len(names))
    return {name: figures[..., k].tolist() for k, name in enumerate(names)}


def _columnmoments(ordered: np.ndarray) -> list[float]:
    """Return the moments of one element's sorted values, where a NaN lies last."""
    if ordered.dtype.kind == "f" and np.isnan(ordered[-1]):
        return [math.nan] * (4 + len(_QUANTILES))
    place = np.array(list(_QUANTILES.values())) * (len(ordered) - 1)
    low = place.astype(np.int64)
    below, above = ordered[low].astype(float), ordered[np.minimum(low + 1, len(ordered) - 1)].astype(float)
    quantiles = below + (above - below) * (place - low)
    mean = ordered.mean(dtype=float)
    return [float(mean), float(ordered.std(dtype=float)), float(ordered[0]), float(ordered[-1]), *quantiles.tolist()]


def summary(transitions: Transitions, part: np.ndarray, privileged: bool) -> JsonDict:
    """Summarise episodes, steps, returns, lengths, timing, and the distribution of every field.

    Args:
        transitions: the recorded transitions.
        part: (M,) positions to include.
        privileged: whether to describe sensors and applied commands too.
    """
    numbers = np.unique(transitions.facts["episode"][part])
    rewarded = not np.isnan(transitions.facts["reward"][part]).any()
    table = transitions.table
    return {
        "kind": "summary",
        "origin": table.origin,
        "notes": list(table.notes),
        "episodes": len(numbers),
        "steps": len(part),
        "lengths": moments(transitions.lengths[numbers]),
        "returns": moments(transitions.returns[numbers]) if rewarded else None,
        "rewards": moments(transitions.facts["reward"][part]) if rewarded else None,
        "interventions": int(transitions.facts["intervention"][part].sum()),
        "fields": _fields(transitions, part, privileged),
        "timing": timing(transitions, part),
    }


def _fields(transitions: Transitions, part: np.ndarray, privileged: bool) -> JsonDict:
    layout = transitions.table.layout
    groups = [("observation", layout.observation, 0), ("action", layout.action, 1)]
    if privileged:
        groups += [("applied", layout.applied, 1), ("sensor", layout.sensors, 0)]
    rows, row = transitions.table.rows, transitions.row(part)
    return {
        f"{prefix}.{field.name}": {
            "unit": field.unit,
            "elements": list(field.elements),
            **_describe(field, rows[f"{prefix}_{field.name}"][row + later]),
        }
        for prefix, spec, later in groups
        for field in spec
    }


def _describe(field: Field, values: np.ndarray) -> JsonDict:
    """Return the moments of numbers; of texts how many are different, and the largest length."""
    if not field.is_text:
        return moments(values)
    return {"distinct": len(np.unique(values)), "longest": int(np.strings.str_len(values).max(initial=0))}


def returns(transitions: Transitions, part: np.ndarray) -> JsonDict:
    """Return the undiscounted return of each episode, and their distribution.

    Raises:
        SourceError: a reward is unknown.
    """
    need_rewards(transitions, "statistics of returns", Selection.of(part))
    numbers = np.unique(transitions.facts["episode"][part])
    values = transitions.returns[numbers]
    return {"kind": "returns", "episode": numbers.tolist(), "return": values.tolist(), **moments(values)}


def episodes(transitions: Transitions, part: np.ndarray) -> JsonDict:
    """Return JSON data for each episode: its length, return and end, and the contents of its record."""
    lines = []
    for number in np.unique(transitions.facts["episode"][part]).tolist():
        record: JsonObject = transitions.table.episodes[number]
        value = float(transitions.returns[number])
        lines.append({
            "episode": number,
            "length": int(transitions.lengths[number]),
            "return": None if np.isnan(value) else value,
            "terminated": int(transitions.facts["terminated"][transitions.last[number] - 1]),
            "lost": int(transitions.lost[number]),
            "expert": is_expert(record),
            "success": is_success(record),
            **{key: record.get(key) for key in ("env_id", "source", "policy", "verdict", "end", "seed")},
        })  # fmt: skip
    return {"kind": "episodes", "episodes": lines}


def timing(transitions: Transitions, part: np.ndarray) -> JsonDict | None:
    """Describe the periods between the stamps of neighbouring frames; with agents in turn, between joint actions.

    Returns:
        ``nominal_s``, the median period; ``largest_s``; ``share_late``, the share of periods above 1.5 nominal ones;
        ``lost``, the number of steps that begin at a missing frame; mean, deviation and quantiles. None if the data
        have no clock, that is, if all stamps are equal.
    """
    rows, row = transitions.table.rows, transitions.facts["row"][part]
    if transitions.table.layout.turns:
        row = row[rows["agent"][row + 1] == 0]  # all have chosen
    stamps = rows["stamp_ns"]
    periods = (stamps[row + 1] - stamps[row]) * 1e-9
    if not periods.any():
        return None
    nominal = float(np.median(periods))
    numbers = np.unique(transitions.facts["episode"][part])
    return {
        "kind": "timing",
        "nominal_s": nominal,
        "largest_s": float(periods.max()),
        "share_late": float(np.mean(periods > _LATE * nominal)),
        "lost": int(transitions.lost[numbers].sum()),
        **moments(periods),
    }


def _known_timing(transitions: Transitions, part: np.ndarray) -> JsonDict:
    described = timing(transitions, part)
    if described is None:
        raise SourceError(
            f"statistics of kind timing: {transitions.table.origin} has no clock, all its stamps are equal"
        )
    return described


# -- the kinds, and the options that each of them takes ------------------------------------------------------


class StatisticsRequest(NamedTuple):
    """The transitions and checked options of one call.

    Attributes:
        transitions: the recorded transitions.
        part: (M,) positions of those that pass the filters.
        options: by name, as checked by `StatisticsKind.options`, without those that are None.
        discount: the discount of one step.
        privileged: whether sensors and applied commands may be described.
    """

    transitions: Transitions
    part: np.ndarray
    options: Mapping[str, Any]
    discount: float
    privileged: bool


class StatisticsKind(NamedTuple):
    """One kind of statistics, which an entry point of the group ``rlenv_robot.statistics`` names.

    Attributes:
        compute: returns JSON data; None if the data lack what it describes.
        options: name -> check, for its options beside the filters.
        required: names of the required options.
    """

    compute: Callable[[StatisticsRequest], JsonDict | None]
    options: Mapping[str, Check]
    required: tuple[str, ...] = ()


def statistics(transitions: Transitions, extra_info: Options, discount: float, privileged: bool) -> JsonDict | None:
    """Compute the requested kind of statistics; see `rlenv_robot.source.SourceData.statistics`."""
    name = extra_info.get("kind", "summary") if isinstance(extra_info, Mapping) else "summary"
    kind = load_kind(name)
    allowed = {"kind": choice(*kind_names()), **kind.options, **FILTERS}
    options = read(extra_info, allowed, f"statistics of kind {name}")
    for option in kind.required:
        if option not in options:
            raise SourceError(
                f"statistics of kind {name}: option {option!r} is missing, it needs {', '.join(kind.required)}"
            )
    part = np.asarray(select(transitions, options))
    return kind.compute(StatisticsRequest(transitions, part, options, discount, privileged))


def kind_names() -> list[str]:
    """Return the kinds of statistics, including those of installed packages, in alphabetical order."""
    return _kinds().names()


def load_kind(name: object) -> StatisticsKind:
    """Return a kind of statistics by its name.

    Raises:
        SourceError: the name is unknown, or a package's object is not a `StatisticsKind`.
        ValueError: the package that declares it can't be imported.
    """
    table = _kinds()
    package = plugin_of("rlenv_robot.statistics", name)
    if package is not None and name not in table:
        raise SourceError(f"statistics: kind {name!r} is in {missing_plugin(package)}")
    problem = choice(*kind_names())(name)
    if problem or not isinstance(name, str):
        raise SourceError(f"statistics: kind is {name!r}, allowed is {problem}")
    kind = table.load(name)
    if not isinstance(kind, StatisticsKind):
        raise SourceError(f"statistics: kind {name!r} is a {type(kind).__name__}, it must be a StatisticsKind")
    return kind


@cache
def _kinds() -> PluginTable:
    return PluginTable("statistics", "rlenv_robot.statistics", KINDS)


KINDS: Mapping[str, StatisticsKind] = {
    "summary": StatisticsKind(lambda r: summary(r.transitions, r.part, r.privileged), {}),
    "returns": StatisticsKind(lambda r: returns(r.transitions, r.part), {}),
    "episodes": StatisticsKind(lambda r: episodes(r.transitions, r.part), {}),
    "timing": StatisticsKind(lambda r: _known_timing(r.transitions, r.part), {}),
}
"""The core's kinds by name."""
