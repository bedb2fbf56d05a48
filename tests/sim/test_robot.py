from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Automatic, EpisodeError, Guard, Homing, IllegalAction, Robot, RobotError, RobotStopped
from sim.latency.delays import DelayModel
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.robot import SimRobot
from sim.robots.so101 import REST, so101

WHEEL = """<mujoco><option integrator="implicitfast"/><worldbody><body><joint name="spin" axis="0 1 0"/>
  <geom type="cylinder" size="0.06 0.015" euler="90 0 0" mass="0.1"/></body></worldbody>
  <actuator><velocity name="spin" joint="spin" kv="0.02" ctrlrange="-10 10"/></actuator></mujoco>"""


def command(torque: Any = (0.1, -0.2), bend: Any = 0.5) -> dict[str, Any]:
    return {"torque": np.array(torque, np.float64), "bend": np.array(bend, np.float32)}


@pytest.fixture
def robot(pendulum: SimModel) -> SimRobot:
    return SimRobot(pendulum)


@pytest.mark.parametrize("timing", [None, DelayModel(command_delay=0.03)])
def test_the_start_present_ends_a_commanded_speed(timing: DelayModel | None) -> None:
    """After a stop it would else go on, also below `Homing`, which repeats what the robot holds."""
    wheel = SimRobot(from_mjcf(WHEEL, rate_hz=50), timing=timing)
    turns = {wheel.spec.commands.names[0]: np.array([5.0], np.float32)}
    homing = Homing(Guard(wheel), Automatic())
    homing.reset({"seed": 0})
    for _ in range(20):
        before = homing.step(turns)
    assert before.sensors["joint_velocity"] == pytest.approx(5, rel=0.01)
    homing.stop("somebody is near")
    after = homing.reset({"start": "present", "clear_stop": "nobody is near"})
    assert {name: value.tolist() for name, value in after.applied.items()} == {name: [0.0] for name in turns}
    assert after.sensors["joint_velocity"] == pytest.approx(0, abs=1e-3)
    assert after.sensors["joint_position"] == pytest.approx(before.sensors["joint_position"], abs=1e-3)


def test_a_simulated_robot_has_a_description_before_its_first_reset(robot: SimRobot, pendulum: SimModel) -> None:
    assert isinstance(robot, Robot)
    assert robot.spec.digest == pendulum.spec.digest


@pytest.mark.requirement("R1.1", "R1.3", "R1.4", "6.2.1-4", "B.6.2-1")
def test_states_have_the_shapes_and_dtypes_of_the_spec(robot: SimRobot) -> None:
    for robot_state in (robot.reset({"seed": 3}), robot.step(command())):
        robot.spec.sensors.validate(robot_state.sensors)
        robot.spec.commands.validate(robot_state.applied)
        assert type(robot_state.stamp_ns) is int
        assert robot_state.faults == ()
    np.testing.assert_array_equal(robot_state.applied["torque"], [0.1, -0.2])
    assert robot_state.stamp_ns == 50_000_000


def test_states_and_commands_are_copies(robot: SimRobot) -> None:
    robot.reset({"seed": 1})
    given = command()
    first = robot.step(given)
    kept = {name: np.array(value) for name, value in (*first.sensors.items(), *first.applied.items())}
    given["torque"][:] = 0
    robot.step(command((1.0, 1.0)))
    for name, value in kept.items():
        np.testing.assert_array_equal({**first.sensors, **first.applied}[name], value)


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"torque": np.zeros(2)}, "missing", "command.bend"),
        ({**command(), "bent": 1.0}, "unknown", "command.bent"),
        (command(torque=(0.0, 1.01)), "range", "command.torque"),
        (command(torque=(np.nan, 0.0)), "not_finite", "command.torque"),
        (command(torque=(0.0,)), "shape", "command.torque"),
        (command(bend=(0.5,)), "shape", "command.bend"),
        (command(bend=3.0), "range", "command.bend"),
        ({"torque": "fast", "bend": 0.0}, "dtype", "command.torque"),
        (None, "dtype", "command"),
        ([1, 2], "dtype", "command"),
    ],
)
def test_an_illegal_command_is_refused_and_moves_nothing(pendulum: SimModel, given: Any, code: str, field: str) -> None:
    robot, same = SimRobot(pendulum), SimRobot(pendulum)
    for each in (robot, same):
        each.reset({"seed": 4})
        each.step(command())
    with pytest.raises(IllegalAction) as caught:
        robot.step(given)
    assert (caught.value.violation.code, caught.value.violation.field) == (code, field)
    np.testing.assert_array_equal(robot.step(command()).sensors["angles"], same.step(command()).sensors["angles"])


def test_commands_that_convert_are_accepted(robot: SimRobot) -> None:
    robot.reset({})
    robot_state = robot.step({"torque": [0, 0.5], "bend": 1})
    assert robot_state.applied["bend"].dtype == np.float32
    np.testing.assert_array_equal(robot_state.applied["torque"], [0.0, 0.5])


@pytest.mark.requirement("R1.3")
def test_reset_takes_seed_and_start(robot: SimRobot) -> None:
    first = robot.reset({"seed": 7, "start": {"bend": 1.0}})
    second = robot.reset({"seed": 7, "start": {"bend": 1.0}})
    other = robot.reset({"seed": 8})
    np.testing.assert_array_equal(first.sensors["angles"], second.sensors["angles"])
    assert not np.array_equal(first.sensors["angles"], other.sensors["angles"])
    assert first.applied["bend"] == np.float32(1.0)
    with pytest.raises(IllegalAction, match=r"start\.bend"):
        robot.reset({"start": {"bend": 9.0}})
    with pytest.raises(RobotError, match="has no field 'bent'"):
        robot.reset({"start": {"bent": 1.0}})


def test_a_present_start_leaves_the_simulation_as_it_is(robot: SimRobot) -> None:
    robot.reset({"seed": 7, "start": {"bend": 1.0}})
    before = [robot.step(command()) for _ in range(5)][-1]
    found = robot.reset({"seed": 8, "start": "present"})
    np.testing.assert_array_equal(found.sensors["angles"], before.sensors["angles"])
    np.testing.assert_array_equal(found.applied["bend"], before.applied["bend"])


def test_calls_in_the_wrong_order_are_refused(robot: SimRobot) -> None:
    with pytest.raises(EpisodeError, match="before reset"):
        robot.step(command())
    robot.reset({})
    robot.close()
    robot.close()
    with pytest.raises(EpisodeError, match="after close"):
        robot.step(command())
    with pytest.raises(EpisodeError, match="after close"):
        robot.reset({})


def test_a_stop_stays_until_a_reset_clears_it(robot: SimRobot) -> None:
    robot.reset({})
    thread = threading.Thread(target=robot.stop, args=("hand in the way",))
    thread.start()
    thread.join()
    robot.stop("and another")
    for call in (lambda: robot.step(command()), lambda: robot.reset({}), lambda: robot.reset({"clear_stop": " "})):
        with pytest.raises(RobotStopped, match="hand in the way"):
            call()
    robot.reset({"clear_stop": "hand is gone"})
    robot.step(command())


def test_failed_physics_are_a_fault_until_the_next_reset(
    robot: SimRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT where it is
    robot.reset({})
    assert robot._batch is not None
    robot._batch.open_batch.bind("qvel")[0] = np.nan
    assert "mjWARN_BADQVEL" in " ".join(map(str, robot.step(command()).faults))
    assert robot.step(command()).faults
    assert robot.reset({}).faults == ()
    assert robot.step(command()).faults == ()


def test_in_real_time_a_step_takes_its_period(pendulum: SimModel) -> None:
    robot = SimRobot(pendulum, real_time=True)
    stamps = [robot.reset({}).stamp_ns, *(robot.step(command()).stamp_ns for _ in range(4))]
    assert abs(stamps[0] - time.monotonic_ns()) < 60e9  # this machine's clock
    assert stamps[-1] - stamps[0] >= 4 * 0.05e9 * 0.99


def test_without_teleport_a_reset_leaves_the_arm_and_homing_moves_it() -> None:
    arm = SimRobot(so101(), teleport=False)
    found = arm.reset({"start": {"joint_target": np.zeros(6, np.float32)}})
    np.testing.assert_allclose(found.sensors["joint_position"], REST, atol=1e-6)
    np.testing.assert_allclose(found.applied["joint_target"], REST, atol=1e-6)
    homing = Homing(Guard(arm), Automatic())
    home = homing.reset({})
    np.testing.assert_allclose(home.sensors["joint_position"], arm.spec.home["joint_target"], atol=0.15)
    again = arm.reset({})
    np.testing.assert_array_equal(again.sensors["joint_position"], home.sensors["joint_position"])


def test_an_unknown_camera_is_named(pendulum: SimModel) -> None:
    with pytest.raises(RobotError, match="no camera 'front', it has none"):
        SimRobot(pendulum, cameras=("front",))
    with pytest.raises(RobotError, match="no camera 'front', it has overhead, wrist"):
        SimRobot(so101(), cameras=("front",))


@pytest.mark.parametrize("options", [{"start": 5}, {"start": [1, 2]}, {"seed": "7"}, {"seed": -1}, {"seed": True}])
def test_a_reset_option_of_a_wrong_type_is_named_and_the_next_reset_works(
    robot: SimRobot, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        robot.reset(options)
    robot.reset({"seed": 7})
