"""A driver with a contact model stops or yields within two periods of a push, and refuses what it can't judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.drivers.bus_arm import BusArm
from hal.drivers.contact_model import ContactModel, save_contact_model
from hal.errors import RobotStopped
from hal.guard import Guard
from hal.robots.so101 import HIGH, LOW

Make = Callable[..., Any]
UP = np.array([0.3, -0.6, 0.4, 0.5, -0.5, 0.6], np.float32)


def wander(number: int) -> np.ndarray:
    swing = 0.3 * np.sin(number / 30 * np.array([1.5, 1.2, 1.8, 2.0, 1.6, 1.0]))
    return np.clip(UP + swing, LOW, HIGH).astype(np.float32)


def pushed(robot: Any, world: Any, newtons: float) -> int:
    """Push the gripper sideways while the arm moves; return the periods that the driver carried out meanwhile."""
    for number in range(90):
        assert robot.step({"joint_target": wander(number)}).faults == ()
    world.arm.data.xfrc_applied[world.arm.model.body("gripper").id, :3] = (0.0, newtons, 0.0)
    world.pushed_ns = world.port.now_ns()
    for number in range(90, 100):
        if robot.step({"joint_target": wander(number)}).faults:
            return number - 89
    return 99


@pytest.mark.parametrize("lose", [0.0, 0.02])
def test_a_push_stops_the_arm_within_two_periods_and_it_pushes_no_more(
    virtual_arm: Make, contact_model: ContactModel, tmp_path: Path, lose: float
) -> None:
    world = virtual_arm(pose=tuple(UP))
    save_contact_model(contact_model, tmp_path / "arm.contact.json")
    robot = Guard(world.driver(contact=tmp_path / "arm.contact.json"), now=lambda: world.port.now_ns() / 1e9)
    robot.reset({})
    world.faults.lose = lose
    with pytest.raises(RobotStopped, match="contact at shoulder_pan: it measures"):
        pushed(robot, world, 10.0)
    assert (world.port.now_ns() - world.pushed_ns) * 30 / 1e9 <= 3, "periods"
    goal = world.driver()._calibration.angles([servo.goal for servo in world.arm.servos])
    np.testing.assert_allclose(goal[0], world.arm.joints[0], atol=0.02)
    world.faults.lose = 0.0
    world.arm.data.xfrc_applied[:] = 0.0
    before = world.arm.joints
    world.pass_time(1.0)
    assert abs(world.arm.joints - before).max() < 0.15, "it carries itself where it is"
    robot.reset({"clear_stop": "a hand was there"})
    assert robot.step({"joint_target": robot.latest.applied["joint_target"]}).faults == ()


def test_a_push_lets_the_arm_yield_until_a_reset(virtual_arm: Make, contact_model: ContactModel) -> None:
    world = virtual_arm(pose=tuple(UP))
    robot = world.driver(contact=contact_model, on_contact="yield")
    robot.reset({})
    assert pushed(robot, world, 10.0) <= 3
    state = robot.step({"joint_target": wander(0)})
    held = state.applied["joint_target"]
    assert [(fault.code, "contact at shoulder_pan" in fault.message) for fault in state.faults] == [("contact", True)]
    assert abs(held[0] - state.sensors["joint_position"][0]) < 0.1, "the goal is where the arm is"
    for _ in range(15):
        state = robot.step({"joint_target": wander(0)})
    assert abs(state.sensors["joint_position"][0] - held[0]) > 0.2, "it gives way to a push that lasts"
    world.arm.data.xfrc_applied[:] = 0.0
    for _ in range(30):
        robot.step({"joint_target": wander(0)})
    robot.reset({})
    target = state.applied["joint_target"].astype(np.float32)
    for _ in range(30):
        assert robot.step({"joint_target": target}).faults == ()


def test_servos_stream_what_they_measure(virtual_arm: Make) -> None:
    world, rows = virtual_arm(pose=tuple(UP)), []

    class Sink:
        def write(self, values: Any, stamp_ns: int) -> int:
            rows.append((stamp_ns, values))
            return len(rows) - 1

    robot = world.driver()
    (stream,) = robot.streams
    robot.stream_to({stream.name: Sink()})
    robot.reset({})
    for number in range(10):
        state = robot.step({"joint_target": wander(number)})
    assert len(rows) == 10
    stream.spec.validate(dict(rows[-1][1]), "sample")
    np.testing.assert_allclose(rows[-1][1]["servo_position"], state.sensors["joint_position"])
    currents = [servo.current for servo in world.arm.servos]
    np.testing.assert_allclose(rows[-1][1]["servo_current"], currents, atol=0.1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"contact": "missing.json"}, "missing.json: no contact model"),
        ({"on_contact": "yield"}, "needs contact"),
        ({"on_contact": "flee"}, "allowed are 'stop' and 'yield'"),
        ({"contact": "model", "p": 32}, "holds for gains"),
        ({"contact": "other"}, "is of 'other'"),
    ],
)
def test_what_can_not_be_judged_is_refused_before_anything_opens(
    virtual_arm: Make, contact_model: ContactModel, options: dict[str, Any], problem: str
) -> None:
    models = {"model": contact_model, "other": replace(contact_model, arm="other")}
    if options.get("contact") in models:
        options = {**options, "contact": models[options["contact"]]}
    with pytest.raises(ValueError, match=problem) as refused:
        BusArm("/dev/nowhere", virtual_arm().calibration, **options)
    assert "\n" not in str(refused.value)
