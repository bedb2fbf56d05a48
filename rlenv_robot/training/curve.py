"""Measure how good a policy is while it learns: a line for people, a row for plots."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hal.field import JsonObject
from rlenv_robot.policies.policy import Policy
from rlenv_robot.registry import make_vector
from rlenv_robot.training.rollout import evaluate

__all__ = ["LearningCurve", "Point"]


@dataclass(frozen=True, slots=True)
class Point:
    """A trial after some steps and seconds of learning: success from 0 to 1, and mean return."""

    steps: int
    seconds: float
    success: float
    returns: float


class LearningCurve:
    """Try a policy on the same test episodes again and again. The time of trials is not counted.

    Args:
        name: the task.
        episodes: how many in each trial.
        seed: of these episodes; training should not use it.
        quiet: print nothing.
    """

    def __init__(self, name: str, *, episodes: int = 100, seed: int = 1_000_000, quiet: bool = False) -> None:
        self.name, self.points = name, list[Point]()
        self._seed, self._quiet = seed, quiet
        self._envs = make_vector(name, episodes, seed=seed, autoreset="disabled")
        self._begun = time.perf_counter()

    def add(self, steps: int, policy: Policy) -> Point:
        """Try the policy after so many steps of learning."""
        now = time.perf_counter()
        outcomes = evaluate(self._envs, policy, self._seed)
        success = float(np.mean([outcome.success for outcome in outcomes]))
        point = Point(steps, now - self._begun, success, float(np.mean([outcome.total for outcome in outcomes])))
        self.points.append(point)
        if not self._quiet:
            print(
                f"{point.steps:9,} steps {point.seconds:7.1f} s   success {point.success:5.0%}   "
                f"return {point.returns:7.2f}",
                flush=True,
            )
        self._begun += time.perf_counter() - now
        return point

    def first(self, success: float) -> Point | None:
        """Return the first point that reached a rate of success, or None."""
        return next((point for point in self.points if point.success >= success), None)

    def save(self, path: str | Path, about: JsonObject) -> None:
        """Write all points as JSON, with plain data about the run."""
        plain = {"task": self.name, **about, "points": [asdict(point) for point in self.points]}
        Path(path).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Close the test environments."""
        self._envs.close()
