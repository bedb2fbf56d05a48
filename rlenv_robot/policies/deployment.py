"""Describe the robot of a training in the policy's file, and compare it with the robot to move."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hal import Robot, RobotError, RobotSpec, SpecMismatch
from hal.field import JsonDict, JsonObject
from hal.guarding.manifest_check import ManifestReport, compare_manifests
from hal.wrapper import RobotWrapper
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.tasks.task import task_world
from rlenv_robot.world import World

if TYPE_CHECKING:
    from rlenv_robot.vector.env import VectorEnvironment

__all__ = [
    "ACCEPTED", "METADATA", "TrainedPolicy", "check_deployment", "deployed_spec", "robot_as_deployed", "robot_entries",
    "robot_of", "robot_of_training",
]  # fmt: skip

ACCEPTED = ("sensors", "rate", "home", "gains", "delays")
"""Parts of a manifest whose differences a user may accept. Commands are not among them: they give actions a meaning."""


METADATA = "rlenv_robot"
"""The key of our entry (JSON) in the ``metadata_props`` of a policy's ONNX file."""


@runtime_checkable
class TrainedPolicy(Protocol):
    """A policy with a description of the robot on which it was trained."""

    @property
    def robot(self) -> RobotSpec | None:
        """The robot's description, with the range of its gains and delays; None if the file has none."""
        ...


@runtime_checkable
class _Served(Protocol):
    def served_spec(self) -> RobotSpec:
        """Return the description from the robot's server."""
        ...


def robot_entries(robot: RobotSpec | None) -> JsonDict:
    """Return the entries of a policy's file about its robot: the description and its manifest's digest."""
    return {} if robot is None else {"robot": robot.to_dict(), "manifest": robot.manifest_digest}


def robot_of(header: JsonObject) -> RobotSpec | None:
    """Return the robot described in the header of a policy's file, or None.

    Raises:
        RobotError: the description is damaged, or does not match its digest.
    """
    if header.get("robot") is None:
        return None
    robot = RobotSpec.from_dict(header["robot"])
    if robot.manifest_digest != header.get("manifest"):
        raise RobotError("the robot's description does not match the digest of its manifest")
    return robot


def deployed_spec(world: World) -> RobotSpec | None:
    """Return the description of a world's robot, with its declared gains and delays; None without a robot.

    Raises:
        ConnectionLost: the robot's server does not answer.
    """
    inner = task_world(world)
    if inner is None:
        return None
    return robot_as_deployed(inner.robot)


def robot_as_deployed(robot: Robot) -> RobotSpec:
    """Return a robot's description, from its server if it has one.

    Raises:
        ConnectionLost: the server does not answer.
    """
    unwrapped = robot.unwrapped if isinstance(robot, RobotWrapper) else robot
    return unwrapped.served_spec() if isinstance(unwrapped, _Served) else robot.spec


def robot_of_training(name: TaskLike, **settings: Any) -> RobotSpec:
    """Return the description of a task's simulated robot, with the range of its gains and delays, for a policy's file.

    Args:
        name: the task.
        settings: those of `rlenv_robot.make_vector` with which the policy was trained, such as ``profile``.

    Raises:
        ValueError: the task is unknown, or has no simulated robot.
    """
    envs: VectorEnvironment
    with make_vector(name, 1, **settings) as envs:
        return envs.batch.spec


def check_deployment(policy: object, deployed: RobotSpec | None, accept: Collection[str] = ()) -> list[str]:
    """Refuse a policy that was trained on a robot with other properties than the robot to move.

    `hal.guarding.manifest_check.compare_manifests` decides which differences are refused, and which are warnings.

    Args:
        policy: the policy. Only a `TrainedPolicy` is compared.
        deployed: the description of the robot to move (`deployed_spec`).
        accept: parts of the manifest (of `ACCEPTED`) whose differences become warnings.

    Returns:
        Warnings and notes, one sentence each: the differences that are not refused, or that the policy's file does not
        describe its robot.

    Raises:
        SpecMismatch: differences are refused; the error lists them.
        ValueError: ``accept`` has another part.
    """
    unknown = [part for part in accept if part not in ACCEPTED]
    if unknown:
        raise ValueError(f"{unknown[0]!r} can't be accepted, allowed are {', '.join(ACCEPTED)}")
    if deployed is None or not isinstance(policy, TrainedPolicy):
        return []
    if policy.robot is None:
        return [
            "note: the policy's file does not say on which robot it was trained, so gains, delays, rate and default "
            f"pose are not compared; `rlenv-robot sim2real manifest FILE --write {deployed.name}` adds what you know"
        ]
    report = compare_manifests(policy.robot, deployed)
    refused = [each for each in report.refusals if each.part not in accept]
    if refused:
        parts = ",".join(dict.fromkeys(each.part for each in refused if each.part in ACCEPTED))
        hint = f"; train for this robot, set its gains, or accept with --accept {parts}" if parts else ""
        raise SpecMismatch(f"this policy was trained on a robot with other properties{hint}", list(map(str, refused)))
    return _notes(report)


def _notes(report: ManifestReport) -> list[str]:
    accepted = [f"accepted: {each}" for each in report.refusals]
    return [*accepted, *(f"warning: {each}" for each in report.warnings)]
