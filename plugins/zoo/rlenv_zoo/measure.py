"""Measure a policy beside actions of 0 and random ones, and describe it on a card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonDict
from rlenv_robot import __version__, load_policy
from rlenv_robot.policies.deployment import TrainedPolicy
from rlenv_robot.policies.lineage import policy_digest
from rlenv_robot.policies.policy import PLAIN, Policy
from rlenv_robot.policies.zoo import ZooPolicy
from rlenv_robot.registry import find_task
from rlenv_robot.training.trials import success_rates

__all__ = ["FIRST_SEED", "count_successes", "make_card", "write_card"]

FIRST_SEED = 8_000_000
"""Seed of the measured episodes, which no training of ours uses."""


class _EachAlone:
    """Ask a policy of one robot for each robot of a batch."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(next(iter(observation.values())))
        rows = [self._policy.act({name: value[row] for name, value in observation.items()}) for row in range(count)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def count_successes(policy: Policy, task: str, episodes: int, first_seed: int) -> dict[str, int]:
    """Return the successful episodes by kind of robot, as `rlenv_robot.training.trials.success_rates` names them."""
    return {
        robots: round(rate * episodes) for robots, rate in success_rates(task, policy, episodes, first_seed).items()
    }


def make_card(
    file: Path,
    task: str,
    command: str,
    seed: int,
    *,
    version: str = "",
    episodes: int = 200,
    first_seed: int = FIRST_SEED,
) -> ZooPolicy:
    """Measure a policy on the nominal robot, on the identified one, and on robots drawn from the range of its kind.

    Args:
        file: the policy's file.
        task: name of its task.
        command: the command that made the file.
        seed: the training's seed.
        version: version of rlenv-robot that made the file; by default this one.
        episodes: number of episodes on each kind of robot.
        first_seed: their seed.

    Raises:
        RobotError: the file is no policy, or one for single robots only.
        SpecMismatch: the policy is for another task.
        ValueError: the task is unknown.
    """
    chosen, trained = find_task(task), load_policy(file)
    trained.check(chosen.observation, chosen.action)
    policies: dict[str, Policy] = {"policy": trained}
    for name, make in PLAIN.items():
        plain = make(first_seed)
        plain.check(chosen.observation, chosen.action)
        policies[name] = _EachAlone(plain)
    robot = trained.robot if isinstance(trained, TrainedPolicy) else None
    return ZooPolicy(
        task=task, file=file, digest=policy_digest(file), observation=chosen.observation.digest,
        action=chosen.action.digest, robot="" if robot is None else robot.manifest_digest, command=command,
        version=version or __version__, seed=seed, episodes=episodes, first_seed=first_seed, measured=__version__,
        successes={name: count_successes(one, task, episodes, first_seed) for name, one in policies.items()},
    )  # fmt: skip


def write_card(policy: ZooPolicy, path: Path) -> None:
    """Write a card as `ZooPolicy.read` takes it.

    Raises:
        RobotError: the policy's file lies in another folder than the card.
    """
    if policy.file.resolve().parent != path.resolve().parent:
        raise RobotError(f"{path}: write the card beside the policy's file, into {policy.file.parent}")
    plain: JsonDict = {**asdict(policy), "file": policy.file.name}
    path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
