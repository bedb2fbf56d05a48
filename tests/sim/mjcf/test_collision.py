"""Commands that a model holds back, judged by another model: MuJoCo's own distances to boxes that are geoms there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import pytest

from hal import Guard, RobotSpec, SpecError
from hal.guarding.motion_check import ClearWay
from sim.mjcf.collision import ModelCheck
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel, at_rate
from sim.robot import SimRobot
from sim.robots.so101 import so101, so101_mjcf

OUT = [[0.2, -0.1, -0.01, 0.3, 0.1, 0.1], [-0.05, 0.12, 0.0, 0.15, 0.3, 0.3]]
IN = [[-0.25, -0.4, -0.02, 0.42, 0.4, 0.4]]
CLEARANCE_M = 0.005
LAG_M = 0.05
"""Largest distance of a part beyond its command: the simulated servos lag by 0.13 rad, at a reach of 0.4 m."""
INNER = ("base_shell", "base_shell2", "shoulder_shell", "shoulder_shell2", "upper_arm_shell")
OUTER = (
    "lower_arm_shell", "lower_arm_shell2", "wrist_shell", "gripper_shell", "fixed_finger", "fixed_tip", "jaw_shell",
    "jaw_finger", "jaw_tip",
)  # fmt: skip
SOLIDS = ("upper_arm", "lower_arm", "wrist", "gripper", "jaw")


@pytest.fixture(scope="module")
def arm() -> SimModel:
    return at_rate(so101(looks=False), 240.0)


class Judge:
    """The same arm with the boxes as geoms, compiled anew."""

    def __init__(self) -> None:
        spec = so101_mjcf(False, False)
        kind = mujoco.mjtGeom.mjGEOM_BOX
        for number, box in enumerate(np.array(OUT)):
            spec.worldbody.add_geom(
                name=f"out{number}", type=kind, pos=(box[:3] + box[3:]) / 2, size=(box[3:] - box[:3]) / 2
            )
        low, high = np.array(IN[0])[:3], np.array(IN[0])[3:]
        for axis in range(3):
            for side, edge in ((-1, low), (1, high)):
                middle, size = (low + high) / 2, np.full(3, 2.0)
                size[axis], middle[axis] = 0.5, edge[axis] + 0.5 * side
                spec.worldbody.add_geom(name=f"in{axis}{side}", type=kind, pos=middle, size=size)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        model = self.model
        inner, outer, solid = ([model.geom(name).id for name in names] for names in (INNER, OUTER, SOLIDS))
        parents = model.body_parentid[model.geom_bodyid]
        self.pairs = [(one, other) for one in inner for other in outer if parents[other] != model.geom_bodyid[one]]
        boxes = [geom for geom in range(model.ngeom) if model.geom(geom).name.startswith(("out", "in"))]
        moving = [*(part for part in inner if model.geom(part).name[:4] != "base"), *outer, *solid]
        self.walls = [(part, box) for part in moving for box in boxes]

    def distances_m(self, joints: np.ndarray, pairs: list[tuple[int, int]]) -> float:
        """Return the shortest distance; negative where two penetrate each other."""
        self.data.qpos[:6] = joints
        mujoco.mj_kinematics(self.model, self.data)
        return min(mujoco.mj_geomDistance(self.model, self.data, *pair, 0.1, None) for pair in pairs)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def poses(spec: RobotSpec, count: int, seed: int) -> np.ndarray:
    low, high = spec.commands["joint_target"].bounds
    return np.random.default_rng(seed).uniform(low, high, (count, 6)).astype(np.float32)


def command(pose: np.ndarray) -> dict[str, np.ndarray]:
    return {"joint_target": np.asarray(pose, np.float32)}


def test_what_is_clear_is_clear_in_mujoco_too(arm: SimModel, judge: Judge) -> None:
    """Parts against parts to a hundredth of a millimetre; boxes never later than MuJoCo, and not much earlier."""
    parts = ModelCheck(arm, clearance_m=CLEARANCE_M)
    boxes = ModelCheck(arm, self_collision=False, clearance_m=CLEARANCE_M, keep_out=OUT, keep_in=IN)
    early = []
    for pose in poses(arm.spec, 400, 0):
        near = judge.distances_m(pose, judge.pairs) - CLEARANCE_M
        measured = parts.clearances_m(pose).min()
        if min(near, measured) < 0:
            assert measured == pytest.approx(near, abs=1e-5)
        wall, least = judge.distances_m(pose, judge.walls) - CLEARANCE_M, boxes.clearances_m(pose).min()
        if wall < 0:
            assert least < 0
        elif wall < 0.09:
            assert least <= wall + 1e-6
            early.append(wall - least)
    assert len(early) > 20
    assert np.median(early) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("boxes", [False, True], ids=["itself", "boxes"])
def test_random_commands_lead_into_nothing(arm: SimModel, judge: Judge, trials: int, boxes: bool) -> None:
    """Behind a guard that limits its acceleration, commands keep clear, and the arm itself within its servos' lag.

    Without limits on acceleration the commands keep clear as well, but the arm overshoots them by centimetres.
    """
    check = ModelCheck(arm, clearance_m=CLEARANCE_M, **({"keep_out": OUT, "keep_in": IN} if boxes else {}))
    limits = arm.spec.limits.merged(max_acceleration={"joint_target": 20.0}, max_jerk={"joint_target": 400.0})
    robot = SimRobot(arm)
    guard, nearest, commanded = Guard(robot, limits=limits, check=check), np.inf, np.inf
    pairs = judge.pairs + judge.walls if boxes else judge.pairs
    goals = poses(arm.spec, 3 * trials, 1)
    for trial in range(trials):
        guard.reset({})
        for goal in goals[3 * trial : 3 * trial + 3]:
            for tick in range(150):
                robot_state = guard.step(command(goal))
                if tick % 4 == 0:
                    commanded = min(commanded, judge.distances_m(robot_state.applied["joint_target"], pairs))
                    nearest = min(nearest, judge.distances_m(robot_state.sensors["joint_position"], pairs))
    assert guard.held_back is not None
    held = guard.held_back["held_back"]
    print(
        f"{trials} sequences, {held} commands held back, nearest {commanded * 1e3:.2f} mm as commanded, "
        f"{nearest * 1e3:.2f} mm as simulated"
    )
    assert held > 0 or trials < 20
    assert commanded > CLEARANCE_M - 0.002, "braking is looked at in a few poses only"
    assert nearest > -LAG_M
    robot.close()


def test_commands_that_are_not_led_keep_clear(arm: SimModel, judge: Judge) -> None:
    check = ModelCheck(arm, clearance_m=CLEARANCE_M, keep_out=OUT, keep_in=IN)
    robot = SimRobot(arm)
    guard = Guard(robot, check=check)
    guard.reset({})
    nearest = np.inf
    for goal in poses(arm.spec, 12, 2):
        for _ in range(80):
            applied = guard.step(command(goal)).applied["joint_target"]
            nearest = min(nearest, judge.distances_m(applied, judge.pairs + judge.walls))
    assert guard.held_back is not None
    assert guard.held_back["held_back"] > 0
    assert nearest >= CLEARANCE_M - 1e-5
    robot.close()


def least_on_the_way(check: ModelCheck, begin: np.ndarray, end: np.ndarray, looks: int = 24) -> np.ndarray:
    """The smallest clearance of each distance on a straight way, by looking at all of them all the way."""
    shares = np.linspace(0, 1, looks)
    return np.min([check.clearances_m(begin + share * (end - begin)) for share in shares], axis=0)


@pytest.mark.slow
def test_no_way_is_accepted_that_looking_at_everything_refuses(arm: SimModel, repeats: int) -> None:
    """Ways of all lengths, most of them near something; what is held back is held back for a reason."""
    check = ModelCheck(arm, clearance_m=CLEARANCE_M, keep_out=OUT, keep_in=IN)
    way, dice = ClearWay(check), np.random.default_rng(3)
    low, high = arm.spec.commands["joint_target"].bounds
    accepted, refused, nearest = 0, 0, np.inf
    for goal in poses(arm.spec, repeats, 4).astype(np.float64):
        at = np.array(arm.spec.home["joint_target"], np.float64)
        way.begin(command(at))
        for _ in range(20):
            towards = (goal - at) * dice.choice((0.01, 0.03, 0.2, 1.0)) + dice.normal(0, 0.003, 6)
            end = np.clip(at + towards, low, high).astype(np.float32)
            before = way.held_back
            reached = way.advance(command(end))["joint_target"].astype(np.float64)
            found = least_on_the_way(check, at, reached)
            nearest = min(nearest, float(found.min()))
            assert found.min() >= -check.resolution_m / 4 - 2e-6
            assert check.clearances_m(reached).min() >= -2e-6
            if way.held_back == before:
                accepted += 1
                np.testing.assert_array_equal(reached.astype(np.float32), end)
            else:
                refused += 1
                rest = least_on_the_way(check, reached, end.astype(np.float64), 100)
                assert rest.min() < 1e-3, "it was held back, and nothing was in its way"
                goal = poses(arm.spec, 1, int(dice.integers(2**31)))[0].astype(np.float64)
            at = reached
    print(f"{accepted} accepted, {refused} held back; nearest on an accepted way {nearest * 1e3:.3f} mm")
    assert accepted
    assert refused


def test_neighbours_and_what_touches_at_home_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    mjcf = """
    <mujoco model="two"><option timestep="0.01"/><worldbody>
      <body name="one"><joint name="a" axis="0 0 1"/><geom name="left" size="0.1"/>
        <body name="two" pos="0.1 0 0"><joint name="b" axis="0 0 1"/><geom name="middle" size="0.1"/>
          <body name="three" pos="0.05 0 0"><joint name="c" axis="0 0 1"/><geom name="right" size="0.1"/>
            <body name="four" pos="0.3 0 0"><joint name="d" axis="0 0 1"/><geom name="far" size="0.1"/></body>
    </body></body></body></worldbody><actuator>
      <position name="a" joint="a" ctrlrange="-2 2"/><position name="b" joint="b" ctrlrange="-2 2"/>
      <position name="c" joint="c" ctrlrange="-3.1 3.1"/><position name="d" joint="d" ctrlrange="-2 2"/>
    </actuator></mujoco>"""
    with caplog.at_level(logging.WARNING):
        check = ModelCheck(from_mjcf(mjcf, rate_hz=50))
    assert [record.getMessage() for record in caplog.records] == [
        "these parts are too near to each other at home, and are not compared: left and right"
    ]
    field = "angle_target"
    clear = check.clearances_m(check.pose({field: np.zeros(4)}))
    assert [check.describe(number) for number in range(len(clear))] == ["left and far", "middle and far"]
    assert check.clearances_m(np.array([0, 0, 3.1, 0])).min() < 0, "folded back onto the left"
    reach = 0.3 + 0.1  # of the far part, from the joint before it
    expected = [[0, 0], [reach + 0.05, 0], [reach, reach], [0.1, 0.1]]
    np.testing.assert_allclose(check.levers_m, expected, err_msg="no distance changes by a joint that moves both parts")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clearance_m": 0.0}, "clearance_m is 0.0, it must be a number above 0"),
        ({"keep_out": [[0, 0, 0, 1, 1]]}, r"keep_out\[0\] is \[0, 0, 0, 1, 1\], it must be the lowest x, y, z"),
        ({"keep_in": [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]]}, r"keep_in\[1\] is"),
        ({"keep_in": [[0, 0, 0, 1, 1, float("inf")]]}, r"keep_in\[0\] is"),
    ],
)
def test_a_box_that_is_none_is_refused(arm: SimModel, options: Mapping[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        ModelCheck(arm, **options)


def test_a_robot_without_poses_can_not_be_checked() -> None:
    mjcf = """<mujoco model="cart"><option timestep="0.01"/><worldbody><body name="c"><joint name="x" type="slide"/>
      <geom size="0.1"/></body></worldbody><actuator><motor name="x" joint="x" ctrlrange="-1 1"/></actuator></mujoco>"""
    with pytest.raises(SpecError, match="no command is a pose"):
        ModelCheck(from_mjcf(mjcf, rate_hz=50))
