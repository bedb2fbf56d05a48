"""Measure how well a dynamics model predicts recorded episodes, and a policy's return inside the model (R6.2)."""

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
"""Function from observation and action to the next observation; all fields have a leading axis (B,)."""


def model_error(transitions: Transitions, part: np.ndarray, model: Model, horizon: int) -> JsonDict:
    """Return the root mean square prediction error of each field, open loop over ``horizon`` steps.

    The model starts at a recorded observation and receives the recorded actions; after the first step its inputs are
    its own predictions. Use held-out episodes (``episodes``): on training episodes the error only measures
    memorisation.

    Args:
        transitions: the transitions of all episodes.
        part: positions at which predictions start, (M,); positions closer to an episode's end than the horizon are left
            out.
        model: see `Model`.
        horizon: number of steps, from 1.

    Returns:
        ``rms``: field -> list over the steps 1 to horizon; ``unchanged``: the same for the prediction that nothing
            changes, which a useful model must beat; ``starts``: number of starting positions.

    Raises:
        SourceError: no run of transitions is as long as the horizon, or the model does not return every field in its
            shape.
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
    """Return a policy's returns inside the model, starting from the first observations of the episodes.

    Args:
        transitions: the transitions of all episodes.
        part: positions in ``transitions``, (M,); their episodes give the starts.
        model: see `Model`.
        agent: the policy, a function from observation to action.
        reward: function from observation, action and next observation to rewards (B,).
        horizon: number of steps, from 1.
        discount: discount factor per step.

    Returns:
        ``returns``, one for each start, with ``mean`` and ``std``; ``horizon`` and ``discount``.

    Raises:
        SourceError: a function returns values of a wrong shape or kind.
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
            raise SourceError(f"reward returned shape {earned.shape}, expected {total.shape}, one per start")
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
