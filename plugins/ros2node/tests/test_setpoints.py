"""Trajectories, positions and velocities: what is carried out, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hal.joints import JointCommands, joint_sensors
from hal.robots.so101 import HIGH, HOME, JOINTS, SO101
from plugins.kit.tests.wheels import BASE
from rlenv_ros2.messages import MessageTypes
from rlenv_ros2node.setpoints import CommandRefused, JointPath, Positions, TwistMap

pytest.importorskip("rosbags")

TYPES = MessageTypes()
ARM = JointCommands(SO101)
HOLD = {"joint_target": np.array(HOME, np.float32)}
PERIOD_S, WALL_NS = 1 / 30, 1_800_000_000 * 10**9


def point(positions: Any, at_s: float, velocities: Any = (), effort: Any = ()) -> Any:
    duration = TYPES.make("builtin_interfaces/msg/Duration", sec=int(at_s // 1), nanosec=round(at_s % 1 * 1e9))
    numbers = (np.asarray(values, float) for values in (positions, velocities, (), effort))
    fields = dict(zip(("positions", "velocities", "accelerations", "effort"), numbers, strict=True))
    return TYPES.make("trajectory_msgs/msg/JointTrajectoryPoint", **fields, time_from_start=duration)


def trajectory(points: list[Any], names: Any = JOINTS, stamp_ns: int = 0) -> Any:
    header = TYPES.header(stamp_ns)
    return TYPES.make("trajectory_msgs/msg/JointTrajectory", header=header, joint_names=list(names), points=points)


def path(message: Any) -> JointPath:
    """Make a path as a bridge does: the message goes over the wire first."""
    message = TYPES.decode(TYPES.encode(message), message.__msgtype__)
    return JointPath.of(message, ARM, HOLD, 100.0, WALL_NS, PERIOD_S)


def target(made: JointPath, now_s: float) -> np.ndarray:
    return made.at(now_s, HOLD)["joint_target"]


def test_joints_have_the_names_of_the_sensors_elements() -> None:
    assert joint_sensors(SO101)[0].joints == ARM.names == JOINTS


def test_a_path_is_linear_in_time_and_ends_at_its_last_point() -> None:
    first, last = np.array(HOME) + 0.2, np.array(HOME) - 0.1
    made = path(trajectory([point(first, 1.0), point(last, 2.0)]))
    assert target(made, 100.0) == pytest.approx(HOME, abs=1e-6)
    assert target(made, 100.5) == pytest.approx(np.array(HOME) + 0.1, abs=1e-6)
    assert target(made, 101.5) == pytest.approx((first + last) / 2, abs=1e-6)
    assert target(made, 500.0) == pytest.approx(last, abs=1e-6)


def test_velocities_make_it_cubic() -> None:
    """The cubic of Hermite with these ends: at its middle, h (v0 - v1) / 8 from the mean of the ends."""
    still, speed = np.zeros(6), np.full(6, 0.2)
    made = path(trajectory([point(HOME, 1.0, speed), point(np.array(HOME) + 0.1, 2.0, still)]))
    assert target(made, 101.5) == pytest.approx(np.array(HOME) + 0.05 + 0.2 / 8, abs=1e-6)


def test_joints_in_another_order_and_a_part_of_them() -> None:
    made = path(trajectory([point([HOME[4] + 0.1, HOME[0] - 0.1], 1.0)], [JOINTS[4], JOINTS[0]]))
    expected = np.add(HOME, [-0.1, 0, 0, 0, 0.1, 0])
    assert target(made, 102.0) == pytest.approx(expected, abs=1e-6)


def test_a_dense_path_that_begins_at_the_present_pose() -> None:
    """As MoveIt sends it: the measured pose at time 0, which is a little beside the command, then small steps."""
    times = np.arange(200) * 0.01
    measured = np.add(HOME, [0, 0.05, -0.05, 0, 0, 0])
    made = path(trajectory([point(measured + 0.2 * t, float(t)) for t in times]))
    assert target(made, 101.0) == pytest.approx(measured + 0.2, abs=1e-3)
    assert target(made, 103.0) == pytest.approx(measured + 0.2 * times[-1], abs=1e-6)


def test_a_single_point_at_time_zero_is_for_a_robot_that_is_there() -> None:
    assert target(path(trajectory([point(np.add(HOME, 0.01), 0.0)])), 101.0) == pytest.approx(np.add(HOME, 0.01))
    with pytest.raises(CommandRefused, match="more time"):
        path(trajectory([point(np.add(HOME, 0.5), 0.0)]))


def test_ten_thousand_points_with_velocities_are_checked_quickly() -> None:
    points = [point(np.add(HOME, 1e-5 * n), (n + 1) * 0.01, [1e-3] * 6) for n in range(10_000)]
    message = trajectory(points)
    began_s = time.monotonic()
    JointPath.of(message, ARM, HOLD, 100.0, WALL_NS, PERIOD_S)
    assert time.monotonic() - began_s < 3.0


def test_a_start_in_the_future_waits() -> None:
    made = path(trajectory([point(np.array(HOME) + 0.1, 1.0)], stamp_ns=WALL_NS + 2 * 10**9))
    assert target(made, 103.0) == pytest.approx(np.array(HOME) + 0.1, abs=1e-6)
    assert target(made, 100.0) == pytest.approx(HOME, abs=1e-6)


NEAR = np.array(HOME) + 0.1
REFUSED = {
    "no points": ([], JOINTS, "0 points"),
    "an unknown joint": ([point(NEAR, 1.0)], [*JOINTS[:5], "claw"], "'claw'"),
    "10,000 unknown joints": ([point(np.zeros(10_000), 1.0)], [f"j{i}" for i in range(10_000)], "10000 of the"),
    "no joint": ([point([], 1.0)], [], "no joint"),
    "a joint twice": ([point([0.1, 0.1], 1.0)], [JOINTS[0]] * 2, "twice"),
    "too few numbers": ([point(NEAR[:5], 1.0)], JOINTS, "5 numbers"),
    "too many numbers": ([point(np.zeros(100_000), 1.0)], JOINTS, "100000 numbers"),
    "NaN": ([point([np.nan, *NEAR[1:]], 1.0)], JOINTS, "NaN"),
    "infinite velocity": ([point(NEAR, 1.0, [np.inf] * 6)], JOINTS, "infinite"),
    "times that decrease": ([point(NEAR, 1.0), point(NEAR, 0.5)], JOINTS, "ascend"),
    "equal times": ([point(NEAR, 1.0), point(NEAR, 1.0)], JOINTS, "ascend"),
    "a negative time": ([point(NEAR, -1.0)], JOINTS, "begin at 0"),
    "hours": ([point(NEAR, 5000.0)], JOINTS, "within"),
    "out of range": ([point([HIGH[0] + 0.01, *NEAR[1:]], 5.0)], JOINTS, JOINTS[0]),
    "out of range between points": (
        [point([HIGH[0] - 0.01, *HOME[1:]], 4.0, [1.0, *[0] * 5]), point([HIGH[0] - 0.01, *HOME[1:]], 6.0, [0.0] * 6)],
        JOINTS,
        JOINTS[0],
    ),
    "too fast": ([point(np.add(HOME, [1.5, 0, 0, 0, 0, 0]), 0.2)], JOINTS, "more time"),
    "effort": ([point(NEAR, 1.0, effort=[1.0] * 6)], JOINTS, "effort"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_trajectory_that_can_not_be_carried_out_is_refused(case: str) -> None:
    points, names, words = REFUSED[case]
    with pytest.raises(CommandRefused, match=words):
        path(trajectory(points, names))


@pytest.mark.parametrize("seconds", [-2, 7200])
def test_a_start_that_is_not_near_is_refused(seconds: int) -> None:
    with pytest.raises(CommandRefused, match="clocks"):
        path(trajectory([point(NEAR, 1.0)], stamp_ns=WALL_NS + seconds * 10**9))


def array(values: Any) -> Any:
    layout = TYPES.make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
    return TYPES.make("std_msgs/msg/Float64MultiArray", layout=layout, data=np.asarray(values, float))


def test_positions_count_until_their_deadline() -> None:
    made = Positions.of(array(NEAR), ARM, 100.0, 0.5)
    assert made.at(100.4, HOLD)["joint_target"] == pytest.approx(NEAR, abs=1e-6)
    assert made.at(100.6, HOLD) == {}, "the robot holds"


@pytest.mark.parametrize("values", [[], [0.0] * 5, [np.nan] * 6, [100.0] * 6])
def test_illegal_positions_are_refused(values: Any) -> None:
    with pytest.raises(CommandRefused):
        Positions.of(array(values), ARM, 100.0, 0.5)


def twist(**axes: float) -> Any:
    def vector(part: str) -> Any:
        return TYPES.make("geometry_msgs/msg/Vector3", **{axis: axes.get(f"{part}_{axis}", 0.0) for axis in "xyz"})

    return TYPES.make("geometry_msgs/msg/Twist", linear=vector("linear"), angular=vector("angular"))


def test_a_twist_moves_its_elements_and_stops_them_at_its_deadline() -> None:
    mapped = TwistMap("linear.x=twist.forward, angular.z=twist.turn", BASE)
    applied = {"twist": np.zeros(2, np.float32), "mast": np.float32(0.3), "lamp": np.uint8(1)}
    made = mapped.velocities(twist(linear_x=0.4, angular_z=-0.9), 100.0, 0.5)
    assert made.at(100.4, applied)["twist"] == pytest.approx([0.4, -0.9])
    assert made.at(100.6, {**applied, "twist": np.array([0.4, -0.9])})["twist"] == pytest.approx([0, 0])


@pytest.mark.parametrize("axes", [{"linear_y": 0.1}, {"linear_x": np.nan}, {"linear_x": 0.6}, {"angular_z": -np.inf}])
def test_an_illegal_twist_is_refused(axes: dict[str, float]) -> None:
    with pytest.raises(CommandRefused, match="allowed are"):
        TwistMap("linear.x=twist.forward,angular.z=twist.turn", BASE).velocities(twist(**axes), 100.0, 0.5)


@pytest.mark.parametrize(
    "text", ["", "linear.x", "linear.w=twist.turn", "linear.x=nothing", "linear.x=mast,linear.x=mast"]
)
def test_a_map_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="maps no axis"):
        TwistMap(text, BASE)
