"""Further kinds of `SourceData.statistics`: fields, actions, advantages, coverage, policies, models of dynamics."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hal import Field, SourceError
from recorder.json_data import JsonDict
from recorder.table.sampler import advantages
from recorder.table.selection import Selection
from recorder.table.transitions import Transitions
from rlenv_curate.dynamics import model_error, model_return
from rlenv_curate.off_policy import Agent, Features, fit_q, fitted_q, off_policy
from rlenv_robot.data.filters import need_rewards
from rlenv_robot.data.options import call, whole
from rlenv_robot.data.statistics import StatisticsKind, StatisticsRequest, moments

__all__ = [
    "ADVANTAGE", "COVERAGE", "FITTED_Q", "HISTOGRAM", "MODEL_ERROR", "MODEL_RETURN", "OFF_POLICY", "advantage",
    "coverage", "histogram",
]  # fmt: skip


# -- histograms and advantages ----------------------------------------------------------------------------------


def histogram(transitions: Transitions, part: np.ndarray, field: str, bins: int) -> JsonDict:
    """Count the values of a field (``observation.state``, ``action.joint_target``, ``reward``) in bins.

    The edges between bins of whole numbers lie between whole numbers, so that every bin holds equally many of them.
    If there are fewer whole numbers than ``bins``, each has a bin of its own, and the bins above the largest are empty.

    Returns:
        ``edges`` (elements, bins + 1) and ``counts`` (elements, bins), one row an element in C order.

    Raises:
        SourceError: there is no such field, or its values are unknown.
    """
    values, elements, unit = _column(transitions, part, field)
    is_whole = values.dtype.kind in "iu"
    flat = values.reshape(len(values), -1).astype(float)
    if not np.isfinite(flat).all():
        raise SourceError(f"histogram: {field} has values that are not finite; it can't be counted into bins")
    pairs = [np.histogram(column, _whole_edges(column, bins) if is_whole else bins) for column in flat.T]
    return {
        "kind": "histogram",
        "field": field,
        "unit": unit,
        "elements": elements,
        "counts": [counts.tolist() for counts, _ in pairs],
        "edges": [edges.tolist() for _, edges in pairs],
    }


def _whole_edges(column: np.ndarray, bins: int) -> np.ndarray:
    """Return the edges of bins for whole numbers, (bins + 1,)."""
    lowest = column.min()
    width = math.ceil((column.max() - lowest + 1) / bins)
    return np.asarray(lowest - 0.5 + width * np.arange(bins + 1))


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
        **moments(advantages(transitions, discount)[part]),
    }


def _is_word(value: object) -> str | None:
    return None if isinstance(value, str) else "a word"


# -- coverage of the actions -----------------------------------------------------------------------------------


_AT_LIMIT = 1e-3
"""Share of the range within which an action counts as at a limit."""


def coverage(transitions: Transitions, part: np.ndarray, bins: int) -> JsonDict:
    """Measure how much of the legal range the actions cover, element by element.

    Args:
        transitions: the transitions of all episodes.
        part: positions of the transitions that count.
        bins: number of bins of equal width that divide the range.

    Returns:
        ``actions``: field -> lists with one number per element, in C order: ``low`` and ``high`` of the range (of the
            data, if the field's range is open); ``covered``, the share of bins with an action; ``entropy`` of the bins
            divided by that of a uniform distribution, 0 to 1; ``at_limit``, the share of actions at either end of a
            closed range (NaN for an open one). ``distinct``: number of different actions.
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


# -- the kinds, and the options that each of them takes --------------------------------------------------------


def _model_error(request: StatisticsRequest) -> JsonDict:
    options = request.options
    return model_error(request.transitions, request.part, options["model"], options.get("horizon", 1))


def _model_return(request: StatisticsRequest) -> JsonDict:
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


def _fit_arguments(request: StatisticsRequest) -> _FitArguments:
    options = request.options
    fit = options["agent"], request.discount, options.get("features"), options.get("iterations", 1000)
    return _FitArguments(request.transitions, request.part, *fit)


def _fitted_q(request: StatisticsRequest) -> JsonDict:
    return fitted_q(*_fit_arguments(request))


def _off_policy(request: StatisticsRequest) -> JsonDict:
    model = fit_q(*_fit_arguments(request)) if "agent" in request.options else None
    return off_policy(request.transitions, request.part, request.options["log_probability"], request.discount, model)


_FIT = {"agent": call("observation"), "features": call("observation and action"), "iterations": whole(1)}
_MODEL = {"model": call("observation and action"), "horizon": whole(1)}

COVERAGE = StatisticsKind(lambda r: coverage(r.transitions, r.part, r.options.get("bins", 20)), {"bins": whole(1)})
FITTED_Q = StatisticsKind(_fitted_q, _FIT, ("agent",))
MODEL_ERROR = StatisticsKind(_model_error, _MODEL, ("model",))
MODEL_RETURN = StatisticsKind(
    _model_return,
    {**_MODEL, "agent": call("observation"), "reward": call("observation, action and next observation")},
    ("model", "agent", "reward", "horizon"),
)
OFF_POLICY = StatisticsKind(
    _off_policy, {"log_probability": call("observation and action"), **_FIT}, ("log_probability",)
)

ADVANTAGE = StatisticsKind(lambda r: advantage(r.transitions, r.part, r.discount), {})
HISTOGRAM = StatisticsKind(
    lambda r: histogram(r.transitions, r.part, r.options["field"], r.options.get("bins", 20)),
    {"field": _is_word, "bins": whole(1)},
    ("field",),
)
