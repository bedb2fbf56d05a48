"""Judge whether scores in simulation predict the ranking and the scores of policies on the real robot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hal import SourceError
from recorder.json_data import JsonDict

__all__ = ["PolicyScores", "Validity", "mean_maximum_rank_violation", "pearson", "validity"]

_REDRAWS = 1000
"""Draws with replacement for the intervals."""


def pearson(simulated: Sequence[float] | np.ndarray, real: Sequence[float] | np.ndarray) -> float:
    """Return Pearson's correlation coefficient of two lists of scores; NaN if one of them is constant.

    Args:
        simulated: score of each policy in simulation, (K,).
        real: score of each policy on the robot, (K,).
    """
    one, other = _paired(simulated, real)
    one, other = one - one.mean(), other - other.mean()
    scale = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / scale if scale > 1e-12 else math.nan


def mean_maximum_rank_violation(simulated: Sequence[float] | np.ndarray, real: Sequence[float] | np.ndarray) -> float:
    """Return the mean maximum rank violation: the policies' worst ranking errors in simulation, averaged.

    Two policies violate the ranking if exactly one of the lists ranks the first above the second; the error is the
    difference of their real scores. Source: SIMPLER (Li et al., "Evaluating Real-World Robot Manipulation Policies in
    Simulation", CoRL 2024), where 0 is perfect.

    Args:
        simulated: score of each policy in simulation, (K,).
        real: score of each policy on the robot, (K,).
    """
    one, other = _paired(simulated, real)
    violated = (one[:, None] > one) != (other[:, None] > other)
    return float(np.where(violated, np.abs(other[:, None] - other), 0.0).max(axis=1).mean())


def _paired(
    simulated: Sequence[float] | np.ndarray, real: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.asarray(simulated, np.float64), np.asarray(real, np.float64)
    if one.shape != other.shape or one.ndim != 1 or len(one) < 2:
        raise SourceError(
            f"scores have shapes {one.shape} and {other.shape}; expected one score for each of two or more policies"
        )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise SourceError("a score is not finite; leave that policy out, or run it again")
    return one, other


@dataclass(frozen=True)
class PolicyScores:
    """The scores of one policy, one for each episode.

    Attributes:
        name: the name of the policy.
        simulated: in simulation, (E,).
        real: on the real robot, (F,); F may differ from E.
    """

    name: str
    simulated: np.ndarray
    real: np.ndarray


@dataclass(frozen=True)
class Validity:
    """The agreement of scores in simulation with scores on the robot, over all policies.

    Attributes:
        pearson: correlation of the mean scores; NaN if either is constant.
        pearson_interval: its 95 % interval, by resampling episodes.
        rank_violation: mean maximum rank violation of the mean scores.
        rank_violation_interval: its 95 % interval, by resampling episodes.
        means: policy -> mean score in simulation and on the robot.
    """

    pearson: float
    pearson_interval: tuple[float, float]
    rank_violation: float
    rank_violation_interval: tuple[float, float]
    means: Mapping[str, tuple[float, float]]

    def to_dict(self) -> JsonDict:
        """Return JSON data; an undefined correlation is None."""
        return {
            "pearson": _number(self.pearson),
            "pearson_interval": [_number(end) for end in self.pearson_interval],
            "mean_maximum_rank_violation": self.rank_violation,
            "mean_maximum_rank_violation_interval": list(self.rank_violation_interval),
            "policies": {name: {"simulated": sim, "real": real} for name, (sim, real) in self.means.items()},
        }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def validity(policies: Sequence[PolicyScores], seed: int = 0) -> Validity:
    """Compare the policies' mean scores, with intervals from resampling their episodes (percentile bootstrap).

    Args:
        policies: two or more.
        seed: the seed of the draws.

    Raises:
        SourceError: there are fewer than two policies, one has no episode, or a score is not finite.
    """
    for policy in policies:
        if not (len(policy.simulated) and len(policy.real)):
            raise SourceError(f"policy {policy.name!r} has no episode on one of the two sides")
    simulated = np.array([policy.simulated.mean() for policy in policies])
    real = np.array([policy.real.mean() for policy in policies])
    correlation, violation = pearson(simulated, real), mean_maximum_rank_violation(simulated, real)
    rng = np.random.default_rng(seed)
    redrawn = [
        (_redrawn(rng, [policy.simulated for policy in policies]), _redrawn(rng, [policy.real for policy in policies]))
        for _ in range(_REDRAWS)
    ]
    correlations = np.array([pearson(*pair) for pair in redrawn])
    violations = np.array([mean_maximum_rank_violation(*pair) for pair in redrawn])
    return Validity(
        correlation,
        _interval(correlations),
        violation,
        _interval(violations),
        {policy.name: (float(simulated[k]), float(real[k])) for k, policy in enumerate(policies)},
    )


def _redrawn(rng: np.random.Generator, scores: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([values[rng.integers(len(values), size=len(values))].mean() for values in scores])


def _interval(values: np.ndarray) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)
