"""Somebody else's arm under our contract: what it is sent, what is read, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hal import DeadlineExceeded, EpisodeError, IllegalAction, ProfileError, Robot, RobotStopped, StaleReading
from plugins.ros2.tests.conftest import TheirArm
from real import RemoteRobot
from rlenv_robot.config.profile import load_profile
from rlenv_robot.serving import build_server
from rlenv_ros2.driver import Ros2Robot
from rlenv_ros2.mapping import EXAMPLE, load_map
from tests.fakes import until

Write = Callable[..., Path]


def command(pan: float, lift: float) -> dict[str, np.ndarray]:
    return {"joint_target": np.array([pan, lift], np.float32)}


@pytest.fixture
def robot(their_arm: TheirArm, mapping: Write) -> Iterator[Ros2Robot]:
    with closing(Ros2Robot(mapping())) as robot:
        yield robot


def test_it_is_a_robot_that_is_described_before_it_is_opened(mapping: Write) -> None:
    robot = Ros2Robot(mapping())
    assert isinstance(robot, Robot)
    assert (robot.spec.name, robot.spec.rate_hz) == ("lab-arm", 50)
    assert robot.spec.commands["joint_target"].elements == ("pan", "lift")
    assert robot.spec.limits.max_velocity == {"joint_target": 1.0}
    assert robot.read() is None


def test_a_reset_reads_it_and_moves_nothing(robot: Ros2Robot, their_arm: TheirArm) -> None:
    their_arm.position = {"pan": 0.3, "lift": -0.2}
    state = robot.reset({})
    assert state.sensors["joint_position"] == pytest.approx([0.3, -0.2]), "by name, not by place"
    assert state.applied["joint_target"] == pytest.approx([0.3, -0.2])
    assert 0 <= state.age_ns["joint_position"] < 0.2e9
    time.sleep(0.2)
    assert their_arm.goals == []


def test_steps_move_it_at_its_rate(robot: Ros2Robot, their_arm: TheirArm) -> None:
    robot.reset({})
    began_s = time.monotonic()
    for _ in range(50):
        state = robot.step(command(0.5, -0.4))
    assert time.monotonic() - began_s == pytest.approx(1.0, abs=0.3)
    assert state.sensors["joint_position"] == pytest.approx([0.5, -0.4], abs=0.02)
    assert len(their_arm.goals) > 30
    assert their_arm.goals[-1] == pytest.approx({"pan": 0.5, "lift": -0.4})


def test_a_stop_holds_it_where_it_is_and_stays(robot: Ros2Robot, their_arm: TheirArm) -> None:
    robot.reset({})
    for _ in range(3):
        robot.step(command(1.4, 0.9))
    before = len(their_arm.goals)
    robot.stop("enough")
    until(lambda: len(their_arm.goals) > before)
    assert their_arm.goals[-1]["pan"] < 1.2, "where it was measured, not the goal"
    with pytest.raises(RobotStopped):
        robot.step(command(0.0, 0.0))
    with pytest.raises(RobotStopped):
        robot.reset({})
    robot.reset({"clear_stop": "looked"})


def test_an_illegal_command_is_not_sent(robot: Ros2Robot, their_arm: TheirArm) -> None:
    with pytest.raises(EpisodeError):
        robot.step(command(0.0, 0.0))
    robot.reset({})
    for illegal in (command(np.nan, 0.0), command(9.0, 0.0)):
        with pytest.raises(IllegalAction):
            robot.step(illegal)
    time.sleep(0.1)
    assert their_arm.goals == []


def test_silence_raises_and_is_not_covered_by_an_old_value(robot: Ros2Robot, their_arm: TheirArm) -> None:
    robot.reset({})
    their_arm.silent = True
    with pytest.raises(StaleReading, match="/joint_states") as caught:  # noqa: PT012 - which step it is, is timing
        for _ in range(50):
            robot.step(command(0.1, 0.1))
    assert caught.value.sensor == "joint_position"
    assert caught.value.age_s < 0.5
    sent = len(their_arm.goals)
    robot.stop("silent")
    time.sleep(0.2)
    assert len(their_arm.goals) == sent, "a hold at an old measurement would move it"


def test_a_missing_joint_is_named(mapping: Write, their_arm: TheirArm) -> None:
    their_arm.names = ("pan", "wrist")
    with closing(Ros2Robot(mapping(("rate_hz", "connect_s = 0.5\nrate_hz")))) as robot:
        with pytest.raises(DeadlineExceeded) as caught:
            robot.reset({})
        text = str(caught.value)
        assert "lift is missing" in text
        assert "pan, wrist" in text


def test_nobody_there_is_said_with_the_topic(mapping: Write) -> None:
    with (
        closing(Ros2Robot(mapping(("rate_hz", "connect_s = 0.3\nrate_hz")))) as robot,
        pytest.raises(DeadlineExceeded, match=r"/joint_states.*robot topics"),
    ):
        robot.reset({})


def test_stamps_decide_about_the_age(mapping: Write, their_arm: TheirArm) -> None:
    their_arm.ahead_s = -3.0
    with closing(Ros2Robot(mapping())) as robot, pytest.raises(StaleReading) as caught:
        robot.reset({})
    assert caught.value.age_s == pytest.approx(3.0, abs=0.3)
    their_arm.ahead_s = 5.0
    with (
        closing(Ros2Robot(mapping(("rate_hz", "connect_s = 0.3\nrate_hz")))) as robot,
        pytest.raises(DeadlineExceeded, match="synchronise"),
    ):
        robot.reset({})
    with closing(Ros2Robot(mapping(("max_age_s", 'clock = "sent"\nmax_age_s')))) as robot:
        assert robot.reset({}).age_ns["joint_position"] < 1e9


def test_units_are_scaled_both_ways(mapping: Write, their_arm: TheirArm) -> None:
    their_arm.position = {"pan": 30.0, "lift": -10.0}
    path = mapping(
        ('unit = "rad"\nlow = -3.2', f'unit = "rad"\nscale = {np.pi / 180}\nlow = -3.2'),
        ('unit = "rad"\nlow = [', f'unit = "rad"\nscale = {np.pi / 180}\nlow = ['),
    )
    with closing(Ros2Robot(path)) as robot:
        assert np.degrees(robot.reset({}).sensors["joint_position"]) == pytest.approx([30, -10], abs=1e-3)
        robot.step(command(np.radians(20), np.radians(-5)))
        until(lambda: their_arm.goals)
        assert their_arm.goals[-1] == pytest.approx({"pan": 20, "lift": -5}, abs=1e-3)


@pytest.mark.slow
def test_it_is_served_behind_the_guard(mapping: Write, their_arm: TheirArm, tmp_path: Path) -> None:
    mapping()
    profile = tmp_path / "served.toml"
    profile.write_text(
        f'[robot]\nkind = "lab-arm"\ndriver = "ros2"\noptions = {{mapping = "{tmp_path / "arm.toml"}"}}\n'
        '[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 2.0\n[reset]\nsignal = "automatic"\n'
    )
    with build_server(load_profile(profile)) as server, closing(RemoteRobot(server.address)) as remote:
        state = remote.reset({})
        assert state.sensors["joint_position"] == pytest.approx([0.0, 0.5], abs=0.05), "homing moved it home"
        largest = 0.0
        for _ in range(25):
            before = state.applied["joint_target"]
            state = remote.step(command(1.5, 0.5))
            largest = max(largest, float(np.abs(state.applied["joint_target"] - before).max()))
        assert largest <= 1.0 / 50 * 1.1, "no faster than the map allows"
        assert state.sensors["joint_position"][0] < 0.6
        remote.stop("enough")
    assert max(goal["pan"] for goal in their_arm.goals) < 0.7


WRONG = {
    "an unknown key": ("rate_hz = 50", "rate_hz = 50\nspeed = 3", "speed"),
    "a wrong type": ("rate_hz = 50", 'rate_hz = "fast"', "rate_hz"),
    "another message": ("trajectory_msgs/msg/JointTrajectory", "std_msgs/msg/String", "commands.joint_target.type"),
    "no sensor of the command": ('measured_by = "joint_position"', 'measured_by = "x"', "measured_by"),
    "no path": ('path = ["position"]', "path = []", "sensors.joint_position"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_map_is_refused_by_key(case: str, mapping: Write) -> None:
    old, new, key = WRONG[case]
    with pytest.raises(ProfileError, match=key):
        load_map(mapping((old, new)))


def test_the_page_has_the_example() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "ros2.md"
    assert f"```toml\n{EXAMPLE}```\n" in page.read_text(encoding="utf-8")
