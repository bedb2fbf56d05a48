"""Describe recorded data by figures that JSON can hold, for `SourceData.statistics` (R3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from hal import Field, SourceError
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import is_success
from recorder.table.sampler import advantages
from recorder.table.selection import Selection
from recorder.table.transitions import Transitions
from rlenv_robot.data.dynamics import model_error, model_return
from rlenv_robot.data.filters import is_expert, need_rewards, select
from rlenv_robot.data.off_policy import Agent, Features, fit_q, fitted_q, off_policy
from rlenv_robot.data.options import FILTERS, Check, CheckedOptions, call, choice, read, whole
from rlenv_robot.tables import Options

__all__ = ["KINDS", "advantage", "coverage", "episodes", "histogram", "returns", "statistics", "summary", "timing"]

# -- coverage of the actions ---------------------------------------------------------------------------------


_AT_LIMIT = 1e-3
"""An action this near to a limit, in parts of the range, is at it."""


def coverage(transitions: Transitions, part: np.ndarray, bins: int) -> JsonDict:
    """Describe which part of the legal range the actions cover, element by element.

    Args:
        transitions: all of them.
        part: positions of those that count.
        bins: of equal width, into which the range is cut.

    Returns:
        ``actions``: field -> lists, one number an element in C order: ``low`` and ``high`` of the range (that of the
        data where the field's own is open), ``covered``, the share of bins with an action in them; ``entropy`` of
        the bins over that of an even spread, 0 to 1; ``at_limit``, the share of actions at either end of a closed
        range (NaN for open ones). ``distinct``: how many different actions there are.
    """
    rows, spec = transitions.next_rows(part), transitions.table.layout.action
    packed = spec.rows(len(rows))
    spec.pack_into(packed, {name: rows[f"action_{name}"] for name in spec.names})
    fields = {field.name: _field_coverage(field, packed[field.name].reshape(len(rows), -1), bins)
              for field in spec if not field.is_text}  # fmt: skip
    return {
        "kind": "coverage",
        "steps": len(rows),
        "bins": bins,
        "distinct": len(np.unique(packed.view(f"V{packed.dtype.itemsize}"))),
        "actions": fields,
    }


def _field_coverage(field: Field, values: np.ndarray, bins: int) -> JsonDict:
    lows, highs = (np.broadcast_to(np.ravel(side), values.shape[1]) for side in (field.low, field.high))
    three = zip(values.astype(float).T, lows, highs, strict=True)
    columns = [_element_coverage(column, low, high, bins) for column, low, high in three]
    return {
        "unit": field.unit,
        "elements": list(field.elements),
        **{key: [column[key] for column in columns] for key in ("low", "high", "covered", "entropy", "at_limit")},
    }


def _element_coverage(values: np.ndarray, low: float, high: float, bins: int) -> dict[str, float]:
    closed = bool(np.isfinite(low) and np.isfinite(high))
    begin, end = (float(low), float(high)) if closed else (float(values.min()), float(values.max()))
    counts = np.histogram(values, bins, (begin, end))[0]
    share = counts[counts > 0] / max(counts.sum(), 1)
    near = np.minimum(values - begin, end - values) <= _AT_LIMIT * (end - begin)
    return {
        "low": begin,
        "high": end,
        "covered": float((counts > 0).mean()),
        "entropy": float(-(share * np.log(share)).sum() / np.log(bins)) if bins > 1 else 0.0,
        "at_limit": float(near.mean()) if closed else float("nan"),
    }


# -- distributions: returns, fields, timing ------------------------------------------------------------------


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

_LATE = 1.5
"""A period counts as late from this many nominal ones: half a period too long, so jitter alone is not late."""


def _moments(values: np.ndarray) -> JsonDict:
    """Return mean, deviation, range and quantiles along the first axis, as lists of the other axes' shape."""
    values = np.asarray(values)
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    # Element by element in its own type: several times as fast as one pass over all in double precision.
    columns = [_column_moments(np.sort(flat[:, k])) for k in range(flat.shape[1])]
    names = ("mean", "std", "min", "max", *_QUANTILES)
    figures = np.array(columns, float).reshape(*values.shape[1:], len(names))
    return {name: figures[..., k].tolist() for k, name in enumerate(names)}


def _column_moments(ordered: np.ndarray) -> list[float]:
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
        transitions: all of them.
        part: (M,) positions that count.
        privileged: whether sensors and applied commands are described too.
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
        "lengths": _moments(transitions.lengths[numbers]),
        "returns": _moments(transitions.returns[numbers]) if rewarded else None,
        "rewards": _moments(transitions.facts["reward"][part]) if rewarded else None,
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
        return _moments(values)
    return {"distinct": len(np.unique(values)), "longest": int(np.strings.str_len(values).max(initial=0))}


def returns(transitions: Transitions, part: np.ndarray) -> JsonDict:
    """Return the undiscounted return of each episode, and their distribution.

    Raises:
        SourceError: a reward is unknown.
    """
    need_rewards(transitions, "statistics of returns", Selection.of(part))
    numbers = np.unique(transitions.facts["episode"][part])
    values = transitions.returns[numbers]
    return {"kind": "returns", "episode": numbers.tolist(), "return": values.tolist(), **_moments(values)}


def histogram(transitions: Transitions, part: np.ndarray, field: str, bins: int) -> JsonDict:
    """Count the values of a field (``observation.state``, ``action.joint_target``, ``reward``) in bins.

    Returns:
        ``edges`` (elements, bins + 1) and ``counts`` (elements, bins), one row an element in C order.

    Raises:
        SourceError: there is no such field, or its values are unknown.
    """
    values, elements, unit = _column(transitions, part, field)
    flat = values.reshape(len(values), -1).astype(float)
    if not np.isfinite(flat).all():
        raise SourceError(f"histogram: {field} has values that are not finite; it can't be counted into bins")
    pairs = [np.histogram(column, bins) for column in flat.T]
    return {
        "kind": "histogram",
        "field": field,
        "unit": unit,
        "elements": elements,
        "counts": [counts.tolist() for counts, _ in pairs],
        "edges": [edges.tolist() for _, edges in pairs],
    }


def _column(transitions: Transitions, part: np.ndarray, field: str) -> tuple[np.ndarray, list[str], str]:
    layout = transitions.table.layout
    columns: dict[str, tuple[Field, str]] = {
        f"{prefix}.{one.name}": (one, f"{prefix}_{one.name}")
        for prefix, spec in (("observation", layout.observation), ("action", layout.action))
        for one in spec
    }
    if field == "reward":
        return transitions.facts["reward"][part], [], "1"
    if field not in columns:
        raise SourceError(f"histogram: field {field!r} is unknown, allowed are {', '.join([*columns, 'reward'])}")
    one, column = columns[field]
    if one.is_text:
        raise SourceError(f"histogram: {field} holds texts, which can't be counted into bins")
    rows = transitions.next_rows(part) if column.startswith("action_") else transitions.rows(part)
    return rows[column], list(one.elements), one.unit


def episodes(transitions: Transitions, part: np.ndarray) -> JsonDict:
    """Return a line of plain data for each episode: its length, return and end, and what its record says."""
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
    """Describe the periods between neighbouring frames' stamps; with agents in turn, between joint actions.

    Returns:
        ``nominal_s``, their median; ``largest_s``; ``share_late``, of those above 1.5 nominal periods;
        ``lost``, steps that begin at a missing frame; mean, deviation and quantiles. None where the data have no
        clock: no two stamps differ.
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
        **_moments(periods),
    }


def advantage(transitions: Transitions, part: np.ndarray, discount: float) -> JsonDict:
    """Describe the distribution of the Monte-Carlo advantage (`recorder.table.sampler.advantages`).

    Raises:
        SourceError: a reward is unknown.
    """
    need_rewards(transitions, "statistics of advantages", Selection.of(part))
    return {
        "kind": "advantage",
        "baseline": "mean return to go of all episodes at the same step",
        "discount": discount,
        **_moments(advantages(transitions, discount)[part]),
    }


# -- the kinds, and the options that each of them takes ------------------------------------------------------


class _Request(NamedTuple):
    """The transitions and checked options of one call."""

    transitions: Transitions
    part: np.ndarray
    options: CheckedOptions
    discount: float
    privileged: bool


class _Kind(NamedTuple):
    """One kind: its function, its own options, and the required ones."""

    compute: Callable[[_Request], JsonDict | None]
    options: Mapping[str, Check]
    required: tuple[str, ...] = ()


def statistics(transitions: Transitions, extra_info: Options, discount: float, privileged: bool) -> JsonDict | None:
    """Compute the kind that the options ask for; see `rlenv_robot.source.SourceData.statistics`."""
    name = extra_info.get("kind", "summary") if isinstance(extra_info, Mapping) else "summary"
    choices = choice(*KINDS)
    problem = choices(name)
    if problem or not isinstance(name, str):
        raise SourceError(f"statistics: kind is {name!r}, allowed is {problem}")
    kind = KINDS[name]
    allowed = {"kind": choices, **kind.options, **FILTERS}
    options = read(extra_info, allowed, f"statistics of kind {name}")
    for option in kind.required:
        if option not in options:
            raise SourceError(
                f"statistics of kind {name}: option {option!r} is missing, it needs {', '.join(kind.required)}"
            )
    part = np.asarray(select(transitions, options))
    return kind.compute(_Request(transitions, part, options, discount, privileged))


def _is_word(value: object) -> str | None:
    return None if isinstance(value, str) else "a word"


def _model_error(request: _Request) -> JsonDict:
    options = request.options
    return model_error(request.transitions, request.part, options["model"], options.get("horizon", 1))


def _model_return(request: _Request) -> JsonDict:
    options = request.options
    functions = (options["model"], options["agent"], options["reward"])
    return model_return(request.transitions, request.part, *functions, options["horizon"], request.discount)


class _FitArguments(NamedTuple):
    """The arguments of `fit_q` and `fitted_q`, in their order."""

    transitions: Transitions
    part: np.ndarray
    agent: Agent
    discount: float
    features: Features | None
    iterations: int


def _fit_arguments(request: _Request) -> _FitArguments:
    options = request.options
    fit = options["agent"], request.discount, options.get("features"), options.get("iterations", 1000)
    return _FitArguments(request.transitions, request.part, *fit)


def _fitted_q(request: _Request) -> JsonDict:
    return fitted_q(*_fit_arguments(request))


def _off_policy(request: _Request) -> JsonDict:
    model = fit_q(*_fit_arguments(request)) if "agent" in request.options else None
    return off_policy(request.transitions, request.part, request.options["log_probability"], request.discount, model)


_FIT = {"agent": call("observation"), "features": call("observation and action"), "iterations": whole(1)}
_MODEL = {"model": call("observation and action"), "horizon": whole(1)}

KINDS: Mapping[str, _Kind] = {
    "summary": _Kind(lambda r: summary(r.transitions, r.part, r.privileged), {}),
    "returns": _Kind(lambda r: returns(r.transitions, r.part), {}),
    "episodes": _Kind(lambda r: episodes(r.transitions, r.part), {}),
    "timing": _Kind(lambda r: timing(r.transitions, r.part), {}),
    "advantage": _Kind(lambda r: advantage(r.transitions, r.part, r.discount), {}),
    "histogram": _Kind(
        lambda r: histogram(r.transitions, r.part, r.options["field"], r.options.get("bins", 20)),
        {"field": _is_word, "bins": whole(1)},
        ("field",),
    ),
    "coverage": _Kind(lambda r: coverage(r.transitions, r.part, r.options.get("bins", 20)), {"bins": whole(1)}),
    "off_policy": _Kind(
        _off_policy,
        {"log_probability": call("observation and action"), **_FIT},
        ("log_probability",),
    ),
    "fitted_q": _Kind(_fitted_q, _FIT, ("agent",)),
    "model_error": _Kind(_model_error, _MODEL, ("model",)),
    "model_return": _Kind(
        _model_return,
        {**_MODEL, "agent": call("observation"), "reward": call("observation, action and next observation")},
        ("model", "agent", "reward", "horizon"),
    ),
}
