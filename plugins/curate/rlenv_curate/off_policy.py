"""Evaluate a policy on another policy's recorded episodes by importance sampling or fitted Q evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError, Spec
from recorder.json_data import JsonDict
from recorder.table.selection import Selection
from recorder.table.transitions import Transitions, columns
from rlenv_robot.data.filters import need_rewards
from rlenv_robot.tables import FieldValues

__all__ = ["Agent", "Features", "LinearQ", "LogProbability", "fit_q", "fitted_q", "off_policy"]

LogProbability = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], ArrayLike]
"""Function from observations and actions, both with a leading axis (B,), to the actions' log probability (density),
(B,)."""


def off_policy(
    transitions: Transitions, part: np.ndarray, policy: LogProbability, discount: float, model: LinearQ | None = None
) -> JsonDict:
    """Estimate a policy's return by importance sampling, per decision and self-normalised (Precup et al. 2000).

    With ``rho[e, t]`` the product of the probability ratios up to step t of episode e of E:

    * per-decision: ``sum_t discount**t * mean_e(rho[e, t] * r[e, t])``, unbiased, of high variance;
    * self-normalised: ``sum_t discount**t * sum_e(rho[e, t] * r[e, t]) / sum_e rho[e, t]``, biased towards the
      recorded policy, of low variance. A finished episode continues with its last ratio and reward 0;
    * doubly robust (Jiang and Li 2016; Thomas and Brunskill 2016, equation 10), with a model of the policy's values:
      ``mean_e sum_t discount**t * (rho[e, t] * (r[e, t] - Q[e, t]) + rho[e, t-1] * V[e, t])``; unbiased for any
      model, and of lower variance the better the model is.

    Args:
        transitions: the transitions of all episodes.
        part: positions in ``transitions``, (M,); their whole episodes are used.
        policy: log probabilities under the evaluated policy.
        discount: discount factor per step.
        model: the policy's values; None leaves ``doubly_robust`` out.

    Returns:
        ``per_decision`` with ``standard_error``, ``doubly_robust`` with ``doubly_robust_error``, ``self_normalised``,
        ``behaviour`` (the mean discounted return as recorded), ``effective_sample_size`` = ``sum(w)**2 / sum(w**2)`` of
        the whole episodes' ratios, and ``episodes``. An effective sample size near 1 means that one episode dominates,
        and the estimate is worth little.

    Raises:
        SourceError: rewards or log probabilities were not recorded, an episode has lost frames, or the policy does not
            return (M,) numbers.
    """
    need_rewards(transitions, "off-policy evaluation", Selection.of(part))
    numbers = np.unique(transitions.facts["episode"][part])
    positions = np.concatenate([np.arange(transitions.first[e], transitions.last[e]) for e in numbers])
    _need_whole_episodes(transitions, positions, numbers)
    log_ratio = _log_probabilities(transitions, positions, policy) - transitions.facts["log_probability"][positions]
    mask = _step_mask(transitions, numbers)
    summed = np.cumsum(_by_time(mask, log_ratio), axis=1)
    reward = _by_time(mask, transitions.facts["reward"][positions])
    factor = discount ** np.arange(reward.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        estimates = (factor * np.where(reward == 0, 0.0, np.exp(summed) * reward)).sum(axis=1)
    robust = {} if model is None else _doubly_robust(transitions, positions, mask, summed, factor, model)
    return {
        "kind": "off_policy",
        "episodes": len(numbers),
        "discount": discount,
        "per_decision": float(estimates.mean()),
        "standard_error": _standard_error(estimates),
        "self_normalised": float((factor * _self_normalised_rewards(summed, reward)).sum()),
        "behaviour": float((factor * reward).sum(axis=1).mean()),
        "effective_sample_size": _effective_sample_size(summed[:, -1]),
        **robust,
    }


def _doubly_robust(
    transitions: Transitions,
    positions: np.ndarray,
    mask: np.ndarray,
    summed: np.ndarray,
    factor: np.ndarray,
    model: LinearQ,
) -> JsonDict:
    layout = transitions.table.layout
    observation = columns(transitions.rows(positions), layout.observation, "observation")
    action = columns(transitions.next_rows(positions), layout.action, "action")
    residual = transitions.facts["reward"][positions] - model.value(observation, action)
    value = model.value_of_policy(observation)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(summed)
        before = np.concatenate([np.ones((len(ratio), 1)), ratio[:, :-1]], axis=1)
        estimates = (factor * (ratio * _by_time(mask, residual) + before * _by_time(mask, value))).sum(axis=1)
    return {"doubly_robust": float(estimates.mean()), "doubly_robust_error": _standard_error(estimates)}


def _standard_error(estimates: np.ndarray) -> float | None:
    """Return the standard error of the mean; None for one episode, and where ratios overflow."""
    if len(estimates) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(estimates.std(ddof=1) / np.sqrt(len(estimates)))
    return error if np.isfinite(error) else None


def _need_whole_episodes(transitions: Transitions, positions: np.ndarray, numbers: np.ndarray) -> None:
    unknown = int(np.isnan(transitions.facts["log_probability"][positions]).sum())
    if unknown:
        raise SourceError(
            f"off-policy evaluation needs the recorded policy's log probabilities, but {unknown} of "
            f"{len(positions)} steps have none; pass log_probability in step's extra_info when recording"
        )
    broken = numbers[transitions.lost[numbers] > 0]
    if len(broken):
        raise SourceError(
            f"off-policy evaluation needs whole episodes, frames are missing in {broken.tolist()}; "
            'leave them out with the option "episodes"'
        )


def _log_probabilities(transitions: Transitions, positions: np.ndarray, policy: LogProbability) -> np.ndarray:
    layout = transitions.table.layout
    observation = columns(transitions.rows(positions), layout.observation, "observation")
    action = columns(transitions.next_rows(positions), layout.action, "action")
    answer = np.asarray(policy(observation, action), float)
    if answer.shape != positions.shape or np.isnan(answer).any() or (answer == np.inf).any():
        raise SourceError(
            f"log_probability of the policy returned shape {answer.shape} with {np.isnan(answer).sum()} NaN, "
            f"expected {positions.shape} numbers below infinity, one per step"
        )
    return answer


def _step_mask(transitions: Transitions, numbers: np.ndarray) -> np.ndarray:
    """Return whether each episode has a step at each time, (E, T)."""
    lengths = transitions.lengths[numbers]
    return np.asarray(np.arange(lengths.max()) < lengths[:, None])


def _by_time(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Lay the values of all steps, episode after episode, out as (E, T); 0 after an end."""
    by_time = np.zeros(mask.shape)
    by_time[mask] = values
    return by_time


def _self_normalised_rewards(summed: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Return the reward at each time under normalised weights, (T,); 0 where every ratio is 0."""
    weight = _stable_exp(summed)
    total = weight.sum(axis=0)
    return np.asarray((weight * reward).sum(axis=0) / np.where(total > 0, total, 1.0))


def _stable_exp(logarithm: np.ndarray) -> np.ndarray:
    """Return exponentials over the largest of each column, which can't overflow; all 0 where all are."""
    largest = logarithm.max(axis=0)
    return np.asarray(np.exp(logarithm - np.where(np.isfinite(largest), largest, 0.0)))


def _effective_sample_size(logarithm: np.ndarray) -> float:
    weight = _stable_exp(logarithm)
    return float(weight.sum() ** 2 / np.square(weight).sum()) if weight.any() else 0.0


# -- fitted Q --------------------------------------------------------------------------------------------------------


Named = Mapping[str, np.ndarray]
Agent = Callable[[Named], FieldValues]
"""The evaluated policy: a function from observations (B, ...) to actions (B, ...), drawn if the policy is
stochastic."""

Features = Callable[[Named, Named], ArrayLike]
"""Function from observation and action to their features, (B, D)."""

_RIDGE = 1e-6
_CONVERGED = 1e-6


@dataclass(frozen=True)
class LinearQ:
    """A linear action-value function, ``Q(s, a) = features(s, a) @ weights``.

    Attributes:
        features: see `Features`.
        weights: the weights, (D,).
        agent: the evaluated policy.
        action: the spec of the policy's actions.
        residual: largest change of a value in the last iteration, divided by the largest value.
        iterations: number of iterations made.
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
        """Return the values of the policy's own actions, (B,)."""
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
        ``value``; ``standard_error`` over the starts (not of the fit); ``residual``, ``iterations``; ``bellman_rms``,
        the root mean square Bellman error on the data. A large one means that the features can't represent the value
        function.

    Raises:
        SourceError: as for `fit_q`.
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
        transitions: the transitions of all episodes.
        part: positions to learn from, (M,).
        agent: see `Agent`; called once with all next observations.
        discount: discount factor per step.
        features: see `Features`; by default 1, every standardised element of observation and action, and all products
            of two elements.
        iterations: largest number of iterations; they end once values change by less than a millionth.

    Raises:
        SourceError: rewards are unknown, a function returns a wrong shape, or the iteration diverges, as it may for a
            policy that leaves the region of the data.
    """
    need_rewards(transitions, "fitted-Q evaluation", Selection.of(part))
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
