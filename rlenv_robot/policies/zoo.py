"""Find trained policies that installed packages bring, by names such as ``zoo:so101-reach``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from hal import RobotError, SpecMismatch
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.policies.lineage import policy_digest
from rlenv_robot.registry import find_task

__all__ = ["PREFIX", "ZooPolicy", "policy_file", "zoo_names", "zoo_policy"]

PREFIX = "zoo:"
"""Beginning of a policy's name where a file is expected."""

_ZOO = PluginTable("policy of the zoo", "rlenv_robot.zoo", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooPolicy:
    """A trained policy that a package ships, with how it was made and what it reached.

    A package declares its policies in the entry-point group ``rlenv_robot.zoo``, as ``name = "module:object"``.
    ``rlenv-robot policy card`` measures a policy and writes the card from which `read` makes such an object.

    Attributes:
        task: name of the task.
        file: the policy's file.
        digest: digest of the file (`rlenv_robot.policies.lineage.policy_digest`).
        observation: digest of the spec of the task's observation.
        action: digest of the spec of the task's action.
        robot: digest of the manifest of the robot on which the policy was trained; empty if unknown.
        command: the command that made the file.
        version: version of rlenv-robot that made the file.
        seed: the training's seed.
        episodes: number of episodes that were measured on each kind of robot.
        first_seed: the seed of these episodes, which no training used.
        measured: version of rlenv-robot that measured.
        successes: successful episodes, of ``policy``, ``zero`` (actions of 0) and ``random`` (random actions), each by
            kind of robot: ``nominal``, ``twin 0`` (the identified robot) and ``varied`` (drawn for each episode from
            the range in which robots of the kind differ).
    """

    task: str
    file: Path
    digest: str
    observation: str
    action: str
    robot: str
    command: str
    version: str
    seed: int
    episodes: int
    first_seed: int
    measured: str
    successes: Mapping[str, Mapping[str, int]]

    @staticmethod
    def read(card: str | Path) -> ZooPolicy:
        """Return the policy of a card, a JSON file beside the policy's file.

        Raises:
            RobotError: the card can't be read, or an entry is missing or unknown.
        """
        path = Path(card)
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return ZooPolicy(**{**plain, "file": path.parent / plain["file"]})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RobotError(f"{path}: not a card as `rlenv-robot policy card` writes it: {error!r}") from error

    def check(self, name: str) -> None:
        """Refuse a file that was changed, and a task that is another one by now.

        Args:
            name: the policy's name, for the message.

        Raises:
            RobotError: the file is missing, or its digest differs.
            ValueError: the task is not registered.
            SpecMismatch: the task's observation or action has changed since the training.
        """
        if policy_digest(self.file) != self.digest:
            raise RobotError(f"{name}: {self.file} is not the file that was measured; install its package again")
        task = find_task(self.task)
        specs = {"observation": task.observation, "action": task.action}
        changed = [f"{key}: digest {spec.digest[:12]}, trained with {getattr(self, key)[:12]}"
                   for key, spec in specs.items() if spec.digest != getattr(self, key)]  # fmt: skip
        if changed:
            raise SpecMismatch(
                f"{name} was trained by version {self.version} for {self.task}, which has changed; train it again: "
                f"{self.command}",
                changed,
            )


def zoo_names() -> list[str]:
    """Return the names of all policies of the zoo, without ``zoo:``, in alphabetical order."""
    return _ZOO.names()


def zoo_policy(name: str) -> ZooPolicy:
    """Return a policy of the zoo.

    Args:
        name: its name, without ``zoo:``.

    Raises:
        ValueError: the name is unknown, or its package can't be imported.
        RobotError: its card is damaged.
    """
    if name not in _ZOO:
        raise _ZOO.unknown(name)
    return cast("ZooPolicy", _ZOO.load(name))


def policy_file(place: str | Path) -> Path:
    """Return the path of a policy's file: the path itself, or the checked file of a name as ``zoo:so101-reach``.

    Raises:
        ValueError: the zoo has no policy of this name, or its task is not registered.
        RobotError: the file is not the one that was measured.
        SpecMismatch: the policy's task has changed since the training.
    """
    name = str(place)
    if not name.startswith(PREFIX):
        return Path(place)
    policy = zoo_policy(name.removeprefix(PREFIX))
    policy.check(name)
    return policy.file
