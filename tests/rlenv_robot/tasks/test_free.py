"""The task `free`: a robot that has only a driver is driven, recorded and run without a task of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import (
    EpisodeError,
    Field,
    Limits,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    check_clears,
    check_reset_options,
)
from hal.robots.so101 import SO101
from real import Server
from rlenv_robot.tasks.free import Free, free_task
from rlenv_robot.tasks.task import Arrays

JOINTS = ("base", "lift")


def described(name: str) -> RobotSpec:
    angles = Field("joint_position", (2,), "float32", -1.7, 1.7, "rad", "angles", JOINTS)
    goals = Field("joint_target", (2,), "float32", -1.6, 1.6, "rad", "goals", JOINTS)
    return RobotSpec(
        name,
        Spec("sensors", (angles,)),
        Spec("commands", (goals,)),
        rate_hz=200,
        limits=Limits(max_velocity={"joint_target": 9.0}),
        home={"joint_target": (0.0, 0.0)},
        measured_by={"joint_target": "joint_position"},
    )


class LabArm:
    """A driver of a robot that no model describes, whose joints are where they are sent."""

    spec = described("lab-arm-of-a-test")
    closed = 0

    def __init__(self) -> None:
        self.stopped: str | None = None
        self.goal: np.ndarray | None = None

    def reset(self, options: Any = None) -> RobotState:
        check_reset_options(self.spec.commands, options)
        check_clears(self.stopped, options)
        self.stopped = None
        return self._move(np.zeros(2, np.float32))

    def step(self, command: Arrays) -> RobotState:
        if self.goal is None:
            raise EpisodeError("step before reset")
        if self.stopped is not None:
            raise RobotStopped(self.stopped)
        return self._move(self.spec.commands.validate(command, "command")["joint_target"])

    def _move(self, goal: np.ndarray) -> RobotState:
        self.goal = goal.copy()
        time.sleep(self.spec.period_s)
        return RobotState({"joint_position": goal.copy()}, {"joint_target": goal.copy()}, time.monotonic_ns())

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    def close(self) -> None:
        type(self).closed += 1


def made() -> LabArm:
    """Make the driver, as a function that names no spec."""
    return LabArm()


def drive(robot: Any, steps: int, **options: Any) -> list[Any]:
    with rr.make("free", robot=robot, steps=steps, **options) as env:
        observed: list[Any] = [env.reset({"seed": 1})]
        while not (observed[-1]["terminated"] or observed[-1]["truncated"]):
            target = np.clip(observed[-1]["observation"]["joint_position"] + np.float32(0.01), -1, 1)
            action = {"joint_target": target}
            obs, reward = env.step({"env_id": env.env_id, "frame_no": observed[-1]["frame_no"], "action": action})
            assert reward["reward"] == 0
            observed.append(obs)
    return observed


def test_a_driver_of_this_process_is_driven_and_recorded(tmp_path: Path) -> None:
    observed = drive(LabArm(), 4, record=tmp_path / "runs")
    assert (len(observed), observed[-1]["truncated"], observed[-1]["terminated"]) == (5, True, False)
    table = rr.open_source(tmp_path / "runs").table
    assert table.episodes[0]["task"] == table.episodes[0]["robot"] == "lab-arm-of-a-test"
    np.testing.assert_array_equal(
        table.rows["observation_joint_position"], [obs["observation"]["joint_position"] for obs in observed]
    )


@pytest.mark.parametrize("factory", ["LabArm", "made"])
def test_a_driver_is_named_by_its_module(factory: str) -> None:
    assert len(drive(f"{__name__}:{factory}", 2)) == 3


def test_a_served_robot_describes_itself() -> None:
    with Server(LabArm(), address="tcp://127.0.0.1:*", paced_by_robot=True) as server:
        assert len(drive(server.address, 3)) == 4
        assert free_task(server.address).action.digest == LabArm.spec.commands.digest


def test_the_task_of_a_registered_robot_has_its_model() -> None:
    class Other(LabArm):
        spec = SO101

    assert free_task(Other(), steps=7) == Free("so101", steps=7)


@pytest.mark.parametrize("where", ["sim", "twin", "driver", "lab-arm"])
def test_a_robot_that_does_not_describe_itself_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match=r"give the address of a server, such as .*, or a driver as module:factory"):
        rr.make("free", robot=where)


def test_what_is_no_setting_and_no_robot_is_refused() -> None:
    with pytest.raises(ValueError, match="setting 'step' is unknown, did you mean 'steps'"):
        rr.make("free", LabArm(), step=3)
    with pytest.raises(TypeError, match=r"robot is 3 \(int\), allowed is an address"):
        rr.make("free", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes its robot from make"):
        rr.task("free")
    with pytest.raises(ValueError, match="'free' is not allowed"):
        rr.register_task("free", Free)
