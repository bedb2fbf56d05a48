"""Episodes of whole populations in simulation, and of one policy anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlenv_robot.environment import Environment
from rlenv_robot.learning.reach_policy import ReachPolicy
from rlenv_robot.policy import Policy
from rlenv_robot.vector import VectorEnvironment

__all__ = ["Outcome", "evaluate", "population_returns", "run_episode"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one episode ended: return, distance at its end in millimetres, and whether that was a success."""

    total: float
    distance_mm: float
    success: bool
    frames: int
    end: str


def population_returns(envs: VectorEnvironment, population: np.ndarray, seed: int) -> np.ndarray:
    """The mean return of each candidate over the same episodes.

    Args:
        envs: of size candidates x episodes, without automatic resets.
        population: shape (candidates, parameters).
        seed: of the episodes.

    Returns:
        Shape (candidates,).
    """
    count = len(population)
    policy = ReachPolicy(population)
    table = envs.reset({"seed": seed})
    total = np.zeros(envs.num_envs)
    for _ in range(envs.task.steps):
        folded = {name: value.reshape(count, -1, *value.shape[1:]) for name, value in table["observation"].items()}
        action = {name: value.reshape(envs.num_envs, -1) for name, value in policy.act(folded).items()}
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += reward["reward"]
    return np.asarray(total.reshape(count, -1).mean(axis=1))


def evaluate(envs: VectorEnvironment, policy: Policy, seed: int) -> list[Outcome]:
    """One episode of a policy in each environment (without automatic resets)."""
    table = envs.reset({"seed": seed})
    total, outcomes = np.zeros(envs.num_envs), {}
    for _ in range(envs.task.steps):
        action = policy.act(table["observation"])
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += reward["reward"]
        final = table["extra_info"].get("final")
        if final is None:
            continue
        for place, env in enumerate(final["index"].tolist()):
            outcomes[env] = Outcome(
                float(total[env]),
                float(final["metrics"]["distance_mm"][place]),
                bool(final["success"][place]),
                int(final["frame_no"][place]),
                "terminated" if table["terminated"][env] else "time",
            )
    return [outcomes[env] for env in sorted(outcomes)]


def run_episode(env: Environment, policy: Policy, options: Mapping[str, Any]) -> Iterator[Outcome | None]:
    """One episode through the standard's interface; yields None after every step and at last the outcome."""
    table = env.reset(options)
    total = 0.0
    while not (table["terminated"] or table["truncated"]):
        action = policy.act(table["observation"])
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        table, reward = env.step(request)
        total += reward["reward"]
        yield None
    extra = table["extra_info"]
    distance = extra.get("metrics", {}).get("distance_mm", float("nan"))
    end = "terminated" if table["terminated"] else str(extra.get("truncated_by", "truncated"))
    yield Outcome(total, distance, bool(extra.get("success", False)), table["frame_no"], end)
