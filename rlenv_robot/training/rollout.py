"""Run episodes of whole populations in simulation, and of one policy anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hal import IllegalAction, Violation
from hal.field import JsonObject
from rlenv_robot.env import Environment
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.policy import Policy
from rlenv_robot.tables import Options
from rlenv_robot.tasks.agents import RewardValues
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["Outcome", "evaluate", "population_returns", "run_episode"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one episode ended.

    Attributes:
        total: return; of several agents their mean.
        metrics: the task's figures at its end, by name with the unit in it; empty where the robot was lost.
        success: whether the task was fulfilled then.
        frames: how many steps it took.
        end: why it ended.
    """

    total: float
    metrics: Mapping[str, float]
    success: bool
    frames: int
    end: str

    @property
    def distance_mm(self) -> float:
        """Return the distance at the end, millimetres; NaN for a task without one."""
        return self.metrics.get("distance_mm", math.nan)


def population_returns(envs: VectorEnvironment, population: FeedbackPolicy, seed: int, steps: int) -> np.ndarray:
    """Return the mean return of each candidate over the same episodes.

    Args:
        envs: of size candidates x episodes, without automatic resets.
        population: its parameters have the shape (candidates, parameters).
        seed: of the episodes.
        steps: how many steps of an episode count, at most.

    Returns:
        Shape (candidates,); several agents: of their mean reward.
    """
    count = len(population.parameters)
    table = envs.reset({"seed": seed})
    total, over = np.zeros(envs.num_envs), np.zeros(envs.num_envs, bool)
    for _ in range(steps):
        folded = {name: value.reshape(count, -1, *value.shape[1:]) for name, value in table["observation"].items()}
        action = {
            name: value.reshape(envs.num_envs, *value.shape[2:]) for name, value in population.act(folded).items()
        }
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += _shared(reward["reward"])
        over |= (table["terminated"] | table["truncated"]).astype(bool)
        if over.all():
            break
    return np.asarray(total.reshape(count, -1).mean(axis=1))


def evaluate(envs: VectorEnvironment, policy: Policy, seed: int) -> list[Outcome]:
    """Run one episode of a policy in each environment (without automatic resets)."""
    table = envs.reset({"seed": seed})
    total, outcomes = np.zeros(envs.num_envs), {}
    for _ in range(envs.task.steps):
        action = policy.act(table["observation"])
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += _shared(reward["reward"])
        final = table["extra_info"].get("final")
        if final is None:
            continue
        for place, env in enumerate(final["index"].tolist()):
            outcomes[env] = Outcome(
                float(total[env]),
                {name: float(value[place]) for name, value in final["metrics"].items()},
                bool(final["success"][place]),
                int(final["frame_no"][place]),
                "terminated" if table["terminated"][env] else "time",
            )
    return [outcomes[env] for env in sorted(outcomes)]


def run_episode(env: Environment, policy: Policy, options: Options) -> Iterator[Outcome | None]:
    """Run one episode through the standard's interface; yield None after every step, and at last the outcome.

    Raises:
        IllegalAction: the policy chose one. It was not executed, and asked again the policy would choose the same.
    """
    table = env.reset(options)
    total = 0.0
    while not (table["terminated"] or table["truncated"]):
        action = policy.act(table["observation"])
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        table, reward = env.step(request)
        if "error" in table["extra_info"]:
            raise _refused(table["extra_info"]["error"], table["frame_no"])
        total += float(_shared(reward["reward"]))
        yield None
    extra = table["extra_info"]
    end = "terminated" if table["terminated"] else str(extra.get("truncated_by", "truncated"))
    yield Outcome(total, extra.get("metrics", {}), bool(extra.get("success", False)), table["frame_no"], end)


def _refused(error: JsonObject, frame_no: int) -> IllegalAction:
    message = f"in frame {frame_no} the policy chose an illegal action, which was not executed: {error['message']}"
    return IllegalAction(Violation(error["code"], error["field"], tuple(error["index"]), message))


def _shared(reward: RewardValues) -> float | np.ndarray:
    """Return the reward, or the mean over agents."""
    return sum(reward.values()) / len(reward) if isinstance(reward, Mapping) else reward
