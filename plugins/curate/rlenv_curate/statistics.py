"""Further kinds of `SourceData.statistics`: coverage, off-policy evaluation and dynamics models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hal import Field
from recorder.json_data import JsonDict
from recorder.table.transitions import Transitions
from rlenv_curate.dynamics import model_error, model_return
from rlenv_curate.off_policy import Agent, Features, fit_q, fitted_q, off_policy
from rlenv_robot.data.options import call, whole
from rlenv_robot.data.statistics import StatisticsKind, StatisticsRequest

__all__ = ["COVERAGE", "FITTED_Q", "MODEL_ERROR", "MODEL_RETURN", "OFF_POLICY", "coverage"]


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
