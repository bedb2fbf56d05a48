"""Which statistics there are, and what each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.transitions import Transitions
from rlenv_robot.data import summary as figures
from rlenv_robot.data.coverage import coverage
from rlenv_robot.data.dynamics import model_error, model_return
from rlenv_robot.data.filters import select
from rlenv_robot.data.fitted_q import fit_q, fitted_q
from rlenv_robot.data.off_policy import off_policy
from rlenv_robot.data.options import FILTERS, Check, call, choice, read, whole

__all__ = ["KINDS", "statistics"]


class _Request(NamedTuple):
    """What a kind works on."""

    transitions: Transitions
    part: np.ndarray
    options: Mapping[str, Any]
    discount: float
    privileged: bool


class _Kind(NamedTuple):
    """One kind: what it computes, its own options, and those of them that must be there."""

    compute: Callable[[_Request], dict[str, Any] | None]
    options: Mapping[str, Check]
    required: tuple[str, ...] = ()


def statistics(
    transitions: Transitions, extra_info: Mapping[str, Any], discount: float, privileged: bool
) -> dict[str, Any] | None:
    """Compute the kind that the options ask for; see `rlenv_robot.source.SourceData.statistics`."""
    name = extra_info.get("kind", "summary") if isinstance(extra_info, Mapping) else "summary"
    choices = choice(*KINDS)
    wanted = choices(name)
    if wanted:
        raise SourceError(f"statistics: kind is {name!r}, allowed is {wanted}")
    kind = KINDS[name]
    allowed = {"kind": choices, **kind.options, **FILTERS}
    options = read(extra_info, allowed, f"statistics of kind {name}")
    for option in kind.required:
        if option not in options:
            raise SourceError(
                f"statistics of kind {name}: option {option!r} is missing, it needs {', '.join(kind.required)}"
            )
    part = select(transitions, options)
    return kind.compute(_Request(transitions, part, options, discount, privileged))


def _word(value: Any) -> str | None:
    return None if isinstance(value, str) else "a word"


def _error(request: _Request) -> dict[str, Any]:
    return model_error(request.transitions, request.part, request.options["model"], request.options.get("horizon", 1))


def _inside(request: _Request) -> dict[str, Any]:
    given = request.options
    functions = (given["model"], given["agent"], given["reward"])
    return model_return(request.transitions, request.part, *functions, given["horizon"], request.discount)


def _fit(request: _Request) -> tuple[Any, ...]:
    given = request.options
    fit = (given["agent"], request.discount, given.get("features"), given.get("iterations", 1000))
    return (request.transitions, request.part, *fit)


def _fitted_q(request: _Request) -> dict[str, Any]:
    return fitted_q(*_fit(request))


def _off_policy(request: _Request) -> dict[str, Any]:
    model = fit_q(*_fit(request)) if "agent" in request.options else None
    return off_policy(request.transitions, request.part, request.options["log_probability"], request.discount, model)


_FIT = {"agent": call("observation"), "features": call("observation and action"), "iterations": whole(1)}
_MODEL = {"model": call("observation and action"), "horizon": whole(1)}

KINDS: Mapping[str, _Kind] = {
    "summary": _Kind(lambda r: figures.summary(r.transitions, r.part, r.privileged), {}),
    "returns": _Kind(lambda r: figures.returns(r.transitions, r.part), {}),
    "episodes": _Kind(lambda r: figures.episodes(r.transitions, r.part), {}),
    "timing": _Kind(lambda r: figures.timing(r.transitions, r.part), {}),
    "advantage": _Kind(lambda r: figures.advantage(r.transitions, r.part, r.discount), {}),
    "histogram": _Kind(
        lambda r: figures.histogram(r.transitions, r.part, r.options["field"], r.options.get("bins", 20)),
        {"field": _word, "bins": whole(1)},
        ("field",),
    ),
    "coverage": _Kind(lambda r: coverage(r.transitions, r.part, r.options.get("bins", 20)), {"bins": whole(1)}),
    "off_policy": _Kind(
        _off_policy,
        {"log_probability": call("observation and action"), **_FIT},
        ("log_probability",),
    ),
    "fitted_q": _Kind(_fitted_q, _FIT, ("agent",)),
    "model_error": _Kind(_error, _MODEL, ("model",)),
    "model_return": _Kind(
        _inside,
        {**_MODEL, "agent": call("observation"), "reward": call("observation, action and next observation")},
        ("model", "agent", "reward", "horizon"),
    ),
}
