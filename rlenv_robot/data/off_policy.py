"""Off-policy evaluation: what another policy would have earned, from the recorded episodes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hal import SourceError
from recorder.transitions import Transitions, columns
from rlenv_robot.data.filters import need_rewards

__all__ = ["LogProbability", "off_policy"]

LogProbability = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Any]
"""Log probability (density) of actions in observations, both with a leading axis (B,); returns (B,)."""


def off_policy(transitions: Transitions, part: np.ndarray, policy: LogProbability, discount: float) -> dict[str, Any]:
    """Per-decision and self-normalised importance sampling (Precup, Sutton and Singh 2000).

    With ``rho[e, t]`` the product of the probability ratios up to step t of episode e of E:

    * per-decision: ``sum_t discount**t * mean_e(rho[e, t] * r[e, t])``, unbiased, of high variance;
    * self-normalised: ``sum_t discount**t * sum_e(rho[e, t] * r[e, t]) / sum_e rho[e, t]``, biased towards the
      recorded policy, of low variance. A finished episode counts on with its last ratio and reward 0.

    Args:
        transitions: all of them.
        part: (M,) positions; their episodes are used, whole.
        policy: of the policy to be judged.
        discount: of one step.

    Returns:
        ``per_decision`` with ``standard_error``, ``self_normalised``, ``behaviour`` (the mean discounted return
        as recorded), ``effective_sample_size`` = ``sum(w)**2 / sum(w**2)`` of the whole episodes' ratios, and
        ``episodes``. An effective size near 1 says that one episode decides, and the estimate is worth little.

    Raises:
        SourceError: rewards or log probabilities were not recorded, an episode has lost frames, or the policy
            answers with something else than (M,) numbers.
    """
    need_rewards(transitions, "off-policy evaluation")
    numbers = np.unique(transitions.facts["episode"][part])
    positions = np.concatenate([np.arange(transitions.first[e], transitions.last[e]) for e in numbers])
    _check_recorded(transitions, positions, numbers)
    log_ratio = _asked(transitions, positions, policy) - transitions.facts["log_probability"][positions]
    summed, reward = _by_time(transitions, numbers, positions, log_ratio)
    factor = discount ** np.arange(reward.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        each = (factor * np.where(reward == 0, 0.0, np.exp(summed) * reward)).sum(axis=1)
        error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.nan
    return {
        "kind": "off_policy",
        "episodes": len(numbers),
        "discount": discount,
        "per_decision": float(each.mean()),
        "standard_error": None if np.isnan(error) else float(error),
        "self_normalised": float((factor * _normalised(summed, reward)).sum()),
        "behaviour": float((factor * reward).sum(axis=1).mean()),
        "effective_sample_size": _effective(summed[:, -1]),
    }


def _check_recorded(transitions: Transitions, positions: np.ndarray, numbers: np.ndarray) -> None:
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


def _asked(transitions: Transitions, positions: np.ndarray, policy: LogProbability) -> np.ndarray:
    layout = transitions.table.layout
    observation = columns(transitions.rows(positions), layout.observation, "observation")
    action = columns(transitions.next_rows(positions), layout.action, "action")
    answer = np.asarray(policy(observation, action), float)
    if answer.shape != positions.shape or np.isnan(answer).any() or (answer == np.inf).any():
        raise SourceError(
            f"log_probability of the policy returned shape {answer.shape} with {np.isnan(answer).sum()} NaN, "
            f"wanted {positions.shape} numbers below infinity, one a step"
        )
    return answer


def _by_time(
    transitions: Transitions, numbers: np.ndarray, positions: np.ndarray, log_ratio: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Summed log ratios, held after the end, and rewards, 0 after the end; both (E, T)."""
    lengths = transitions.lengths[numbers]
    inside = np.arange(lengths.max()) < lengths[:, None]
    ratio, reward = np.zeros(inside.shape), np.zeros(inside.shape)
    ratio[inside], reward[inside] = log_ratio, transitions.facts["reward"][positions]
    return np.cumsum(ratio, axis=1), reward


def _normalised(summed: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Reward at each time under normalised weights, (T,); 0 where every ratio is 0."""
    weight = _scaled(summed)
    total = weight.sum(axis=0)
    return np.asarray((weight * reward).sum(axis=0) / np.where(total > 0, total, 1.0))


def _scaled(logarithm: np.ndarray) -> np.ndarray:
    """Exponentials over the largest of each column, which can't overflow; all 0 where all are."""
    largest = logarithm.max(axis=0)
    return np.asarray(np.exp(logarithm - np.where(np.isfinite(largest), largest, 0.0)))


def _effective(logarithm: np.ndarray) -> float:
    weight = _scaled(logarithm)
    return float(weight.sum() ** 2 / np.square(weight).sum()) if weight.any() else 0.0
