"""Evaluate a policy from recorded transitions by fitted Q with linear features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError, Spec
from recorder.json_data import JsonDict
from recorder.table.transitions import Transitions, columns
from rlenv_robot.data.filters import need_rewards
from rlenv_robot.tables import FieldValues

__all__ = ["Agent", "Features", "LinearQ", "fit_q", "fitted_q"]

Named = Mapping[str, np.ndarray]
Agent = Callable[[Named], FieldValues]
"""The policy to be judged: actions (B, ...) from observations (B, ...), drawn if it is a random one."""

Features = Callable[[Named, Named], ArrayLike]
"""(B, D) numbers that describe observation and action."""

_RIDGE = 1e-6
_CONVERGED = 1e-6


@dataclass(frozen=True)
class LinearQ:
    """``Q(s, a) = features(s, a) @ weights``.

    Attributes:
        features: see `Features`.
        weights: (D,).
        agent: the policy that is valued.
        action: the spec of its actions.
        residual: largest change of a value in the last iteration, over the largest value.
        iterations: how many were needed.
    """

    features: Features
    weights: np.ndarray
    agent: Agent
    action: Spec
    residual: float
    iterations: int

    def value(self, observation: Named, action: Named) -> np.ndarray:
        """Return the values of actions, (B,)."""
        return np.asarray(_checked_features(self.features, observation, action) @ self.weights)

    def value_of_policy(self, observation: Named) -> np.ndarray:
        """Return the values of the actions that the policy takes, (B,)."""
        return self.value(observation, _policy_actions(self.agent, observation, self.action))


def fitted_q(
    transitions: Transitions,
    part: np.ndarray,
    agent: Agent,
    discount: float,
    features: Features | None,
    iterations: int,
) -> JsonDict:
    """Estimate the policy's mean value at the first observations of the episodes, by `fit_q`.

    Returns:
        ``value``; ``standard_error`` over the starts (not of the fit); ``residual``, ``iterations``;
        ``bellman_rms``, the root mean square of the Bellman error on the data: a large one says that the
        features can't hold this value function.

    Raises:
        SourceError: as `fit_q`.
    """
    fit = fit_q(transitions, part, agent, discount, features, iterations)
    layout = transitions.table.layout
    starts = transitions.first[np.unique(transitions.facts["episode"][part])]
    values = fit.value_of_policy(columns(transitions.rows(starts), layout.observation, "observation"))
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    here, there, reward, goes_on = _rows_and_rewards(transitions, part)
    following = columns(there, layout.observation, "observation")
    target = reward + discount * goes_on * fit.value_of_policy(following)
    seen = fit.value(columns(here, layout.observation, "observation"), columns(there, layout.action, "action"))
    return {
        "kind": "fitted_q",
        "model": "linear",
        "value": float(values.mean()),
        "standard_error": None if error is None else float(error),
        "episodes": len(values),
        "discount": discount,
        "residual": fit.residual,
        "iterations": fit.iterations,
        "bellman_rms": float(np.sqrt(np.mean(np.square(seen - target)))),
    }


def fit_q(
    transitions: Transitions,
    part: np.ndarray,
    agent: Agent,
    discount: float,
    features: Features | None = None,
    iterations: int = 1000,
) -> LinearQ:
    """Fit the policy's Q function (Le, Voloshin and Yue 2019, "Batch Policy Learning under Constraints", algorithm 3).

    Each iteration is a ridge regression.

    Args:
        transitions: all of them.
        part: (M,) positions to learn from.
        agent: see `Agent`; asked once about all next observations.
        discount: of one step.
        features: see `Features`; by default 1, every standardised element of observation and action, and all
            products of two.
        iterations: at most; fewer once values change by less than a millionth.

    Raises:
        SourceError: rewards are unknown, a function answers in a wrong shape, or the iteration diverges, which
            it may where the policy goes where the data did not.
    """
    need_rewards(transitions, "fitted-Q evaluation", part)
    layout = transitions.table.layout
    here, there, reward, goes_on = _rows_and_rewards(transitions, part)
    observation, action = columns(here, layout.observation, "observation"), columns(there, layout.action, "action")
    following = columns(there, layout.observation, "observation")
    features = features or _quadratic(observation, action)
    now, later = (
        _checked_features(features, observation, action),
        _checked_features(features, following, _policy_actions(agent, following, layout.action)),
    )
    gram = now.T @ now
    solve = np.linalg.solve(gram + _RIDGE * max(np.trace(gram), 1.0) / len(gram) * np.eye(len(gram)), now.T)
    fixed, step = solve @ reward, solve @ (discount * goes_on[:, None] * later)
    weights, residual = np.zeros(len(gram)), math.inf
    changes: list[float] = []
    with np.errstate(over="ignore", invalid="ignore"):
        while len(changes) < iterations and residual > _CONVERGED and math.isfinite(sum(changes)):
            updated = fixed + step @ weights
            changes.append(float(np.abs(now @ (updated - weights)).max()))
            residual = changes[-1] / max(float(np.abs(now @ updated).max()), 1e-12)
            weights = updated
    # What converges changes less and less; without, the values grow as long as one goes on.
    if not math.isfinite(sum(changes)) or (residual > _CONVERGED and changes[-1] > changes[len(changes) // 2]):
        raise SourceError(
            f"fitted-Q evaluation diverged: after {len(changes)} iterations the changes of values still grow; take "
            "fewer features, a smaller discount, or a policy that is nearer to the recorded one"
        )
    return LinearQ(features, weights, agent, layout.action, residual, len(changes))


def _rows_and_rewards(
    transitions: Transitions, part: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    facts = transitions.facts[part]
    return transitions.rows(part), transitions.next_rows(part), facts["reward"], 1.0 - facts["terminated"]


def _flat(values: Named) -> np.ndarray:
    parts = [np.asarray(value, float).reshape(len(value), -1) for value in values.values()]
    return np.concatenate(parts, axis=1)


def _quadratic(observation: Named, action: Named) -> Features:
    """Return features of standardised elements: 1, every element, and all products of two."""
    both = np.concatenate([_flat(observation), _flat(action)], axis=1)
    mean, spread = both.mean(axis=0), both.std(axis=0)
    spread[spread < 1e-9] = np.inf  # what never changes says nothing
    first, second = np.triu_indices(both.shape[1])

    def features(observation: Named, action: Named) -> np.ndarray:
        x = (np.concatenate([_flat(observation), _flat(action)], axis=1) - mean) / spread
        return np.concatenate([np.ones((len(x), 1)), x, x[:, first] * x[:, second]], axis=1)

    return features


def _checked_features(features: Features, observation: Named, action: Named) -> np.ndarray:
    count = len(next(iter(observation.values())))
    answer = np.asarray(features(observation, action), float)
    if answer.ndim != 2 or len(answer) != count or not np.isfinite(answer).all():
        raise SourceError(f"features returned shape {answer.shape}, expected ({count}, D) finite numbers")
    return answer


def _policy_actions(agent: Agent, observation: Named, spec: Spec) -> dict[str, np.ndarray]:
    """Return the policy's actions, in the order of the data's fields."""
    count, answer = len(next(iter(observation.values()))), agent(observation)
    if not isinstance(answer, Mapping):
        raise SourceError(f"agent returned a {type(answer).__name__}, expected a mapping from field to actions")
    for field in spec:
        shape = np.shape(answer[field.name]) if field.name in answer else None
        if shape != (count, *field.shape):
            raise SourceError(f"agent returned {shape} for {field.name!r}, expected shape {(count, *field.shape)}")
    return {name: np.asarray(answer[name]) for name in spec.names}
