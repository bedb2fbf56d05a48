"""Evaluate another policy from recorded episodes by importance sampling (off-policy evaluation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError
from recorder.json_data import JsonDict
from recorder.table.transitions import Transitions, columns
from rlenv_robot.data.filters import need_rewards
from rlenv_robot.data.fitted_q import LinearQ

__all__ = ["LogProbability", "off_policy"]

LogProbability = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], ArrayLike]
"""Log probability (density) of actions in observations, both with a leading axis (B,); returns (B,)."""


def off_policy(
    transitions: Transitions, part: np.ndarray, policy: LogProbability, discount: float, model: LinearQ | None = None
) -> JsonDict:
    """Estimate a policy's return by importance sampling, per decision and self-normalised (Precup et al. 2000).

    With ``rho[e, t]`` the product of the probability ratios up to step t of episode e of E:

    * per-decision: ``sum_t discount**t * mean_e(rho[e, t] * r[e, t])``, unbiased, of high variance;
    * self-normalised: ``sum_t discount**t * sum_e(rho[e, t] * r[e, t]) / sum_e rho[e, t]``, biased towards the
      recorded policy, of low variance. A finished episode counts on with its last ratio and reward 0;
    * doubly robust (Jiang and Li 2016; Thomas and Brunskill 2016, equation 10), with a model of the values:
      ``mean_e sum_t discount**t * (rho[e, t] * (r[e, t] - Q[e, t]) + rho[e, t-1] * V[e, t])``; as unbiased as the
      first whatever the model is, and of lower variance the better it is.

    Args:
        transitions: all of them.
        part: (M,) positions; their episodes are used, whole.
        policy: log probabilities under the policy to be judged.
        discount: of one step.
        model: the policy's values; None leaves ``doubly_robust`` out.

    Returns:
        ``per_decision`` with ``standard_error``, ``doubly_robust`` with ``doubly_robust_error``,
        ``self_normalised``, ``behaviour`` (the mean discounted return as recorded), ``effective_sample_size`` =
        ``sum(w)**2 / sum(w**2)`` of the whole episodes' ratios, and ``episodes``. An effective size near 1 says
        that one episode decides, and the estimate is worth little.

    Raises:
        SourceError: rewards or log probabilities were not recorded, an episode has lost frames, or the policy
            answers with something else than (M,) numbers.
    """
    need_rewards(transitions, "off-policy evaluation", part)
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
            f"expected {positions.shape} numbers below infinity, one a step"
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
