"""Record episodes of a task in simulation, for tests that train or retrain from them."""

from __future__ import annotations

from pathlib import Path

import rlenv_robot
from rlenv_robot.policies.policy import Policy
from rlenv_robot.training.rollout import run_episode


def silent(generation: object) -> None:
    """Report nothing."""


def record(name: str, policy: Policy, folder: Path, episodes: int, **options: object) -> Path:
    """Record some episodes in simulation."""
    with rlenv_robot.make(name, record=folder, **options) as env:  # type: ignore[arg-type]
        for episode in range(episodes):
            list(run_episode(env, policy, {"seed": 1} if episode == 0 else {}))
    return folder
