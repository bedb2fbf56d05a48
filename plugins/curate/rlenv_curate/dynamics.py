"""Measure how well a model of the dynamics predicts recorded episodes, and what a policy earns in it (R6.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError, Spec
from recorder.json_data import JsonDict
from recorder.table.transitions import Transitions, columns
from rlenv_robot.tables import FieldValues

__all__ = ["Model", "model_error", "model_return"]

Named = Mapping[str, np.ndarray]
Model = Callable[[Named, Named], FieldValues]
"""The next observation from observation and action; all fields with a leading axis (B,)."""


def model_error(transitions: Transitions, part: np.ndarray, model: Model, horizon: int) -> JsonDict:
    """Return the root mean square prediction error of each field, open loop over ``horizon`` steps.

    The model starts at a recorded observation and is given the recorded actions; after the first step it
    works on its own predictions. Give it held-out episodes (``episodes``), or the figure says only how well it
    remembers.

    Args:
        transitions: all of them.
        part: (M,) positions from which it starts; those nearer to an end than the horizon are left out.
        model: see `Model`.
        horizon: number of steps, from 1.

    Returns:
        ``rms``: field -> list over the steps 1 to horizon; ``unchanged``: the same for the prediction that
        nothing changes, which a useful model must beat; ``starts``: from how many positions.

    Raises:
        SourceError: no run of transitions is that long, or the model does not return every field in its shape.
    """
    starts = part[part + horizon <= transitions.facts["stop"][part]]
    if not len(starts):
        raise SourceError(f"model_error: no {horizon} transitions follow one another here; take a smaller horizon")
    spec = transitions.table.layout.observation
    first = columns(transitions.rows(starts), spec, "observation")
    errors: dict[str, list[float]] = {name: [] for name in spec.names}
    unchanged: dict[str, list[float]] = {name: [] for name in spec.names}
    state: Named = first
    for k in range(horizon):
        following = transitions.next_rows(starts + k)
        state = _checked(model(state, columns(following, transitions.table.layout.action, "action")), state, "model")
        for name, truth in columns(following, spec, "observation").items():
            errors[name].append(_rms(state[name], truth))
            unchanged[name].append(_rms(first[name], truth))
    units = {field.name: field.unit for field in spec}
    return {
        "kind": "model_error", "horizon": horizon, "starts": len(starts),
        "rms": errors, "unchanged": unchanged, "units": units,
    }  # fmt: skip


def model_return(
    transitions: Transitions,
    part: np.ndarray,
    model: Model,
    agent: Callable[[Named], FieldValues],
    reward: Callable[[Named, Named, Named], ArrayLike],
    horizon: int,
    discount: float,
) -> JsonDict:
    """Return what a policy earns inside the model, starting from the first observations of the episodes.

    Args:
        transitions: of all episodes.
        part: positions in ``transitions``; the episodes that they belong to give the starts.
        model: see `Model`.
        agent: the policy: action from observation.
        reward: (B,) from observation, action and next observation.
        horizon: number of steps, from 1.
        discount: of one step.

    Returns:
        ``returns``, one a start, with ``mean`` and ``std``; ``horizon``, ``discount``.

    Raises:
        SourceError: a function does not return what it must.
    """
    layout = transitions.table.layout
    starts = transitions.first[np.unique(transitions.facts["episode"][part])]
    state: Named = columns(transitions.rows(starts), layout.observation, "observation")
    total = np.zeros(len(starts))
    for k in range(horizon):
        action = _checked(agent(state), _like(layout.action, len(starts)), "agent")
        following = _checked(model(state, action), state, "model")
        earned = np.asarray(reward(state, action, following), float)
        if earned.shape != total.shape:
            raise SourceError(f"reward returned shape {earned.shape}, expected {total.shape}, one a start")
        total += discount**k * earned
        state = following
    return {
        "kind": "model_return", "horizon": horizon, "discount": discount,
        "returns": total.tolist(), "mean": float(total.mean()), "std": float(total.std()),
    }  # fmt: skip


def _like(spec: Spec, count: int) -> dict[str, np.ndarray]:
    return spec.view(spec.rows(count))


def _checked(answer: FieldValues, like: Named, function: str) -> dict[str, np.ndarray]:
    values = {}
    for name, example in like.items():
        if name not in answer or np.shape(answer[name]) != example.shape:
            got = f"shape {np.shape(answer[name])}" if name in answer else "nothing"
            raise SourceError(f"{function} returned {got} for {name!r}, expected shape {example.shape}")
        values[name] = np.asarray(answer[name])
    return values


def _rms(guess: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(guess.astype(float) - truth))))
