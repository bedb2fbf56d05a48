"""LeRobot's own factories and base classes with a served arm, in this interpreter."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="LeRobot needs PyTorch")
pytest.importorskip("lerobot", reason="LeRobot is not installed (docs/lerobot.md says how)")

from lerobot.robots import Robot
from lerobot.robots.utils import make_robot_from_config
from lerobot.teleoperators import Teleoperator
from lerobot.teleoperators.utils import make_teleoperator_from_config
from lerobot.utils.errors import DeviceAlreadyConnectedError, DeviceNotConnectedError

from hal.errors import ConnectionLost, IllegalAction, RobotStopped
from hal.robots.so101 import JOINTS, SO101
from lerobot_robot_rlenv import RlenvRobot, RlenvRobotConfig
from lerobot_teleoperator_rlenv import RlenvTeleoperator, RlenvTeleoperatorConfig
from real import RemoteRobot
from real.server.server import Server
from rlenv_lerobot.numbers import CommandNumbers
from sim.robots.so101 import REST

NAMES = [f"{joint}.pos" for joint in JOINTS]
REST_ACTION = CommandNumbers(SO101.commands).from_command({"joint_target": np.array(REST)})


@contextmanager
def made(server: Server, folder: Path, **settings: Any) -> Iterator[RlenvRobot]:
    """Make a robot by LeRobot's factory; disconnect it at the end."""
    robot = make_robot_from_config(RlenvRobotConfig(address=server.address, calibration_dir=folder, **settings))
    try:
        yield robot
    finally:
        if robot.is_connected:
            robot.disconnect()


def test_lerobots_factory_makes_the_robot(server: Server, tmp_path: Path) -> None:
    with made(server, tmp_path) as robot:
        assert isinstance(robot, Robot)
        assert isinstance(robot, RlenvRobot)
        assert robot.is_calibrated
        assert dict(robot.action_features) == dict.fromkeys(NAMES, float)
        assert dict(robot.observation_features) == dict.fromkeys(NAMES, float)
        assert server.about()["holder"] is None, "features took the robot"


def test_it_observes_and_moves_in_lerobots_numbers(server: Server, tmp_path: Path) -> None:
    with made(server, tmp_path, approach=9.0) as robot:
        robot.connect()
        observation = robot.get_observation()
        assert list(observation) == NAMES
        assert all(type(value) is float for value in observation.values())
        np.testing.assert_allclose([*observation.values()], [*REST_ACTION.values()], atol=4.0)
        wanted = REST_ACTION | {"shoulder_pan.pos": 20.0, "gripper.pos": 50.0}
        for _ in range(60):
            sent = robot.send_action(wanted)
        np.testing.assert_allclose([sent[name] for name in NAMES], [wanted[name] for name in NAMES], atol=1e-3)
        observation = robot.get_observation()
        np.testing.assert_allclose(observation["shoulder_pan.pos"], 20.0, atol=2.0)
        np.testing.assert_allclose(observation["gripper.pos"], 50.0, atol=4.0)


def test_send_action_returns_what_the_guard_let_through(server: Server, tmp_path: Path) -> None:
    with made(server, tmp_path, approach=1000.0) as robot:
        robot.connect()
        sent = robot.send_action(REST_ACTION | {"shoulder_pan.pos": 90.0})
        assert 1.0 < sent["shoulder_pan.pos"] < 15.0, "4 rad/s for a thirtieth of a second are 7.6 degrees"


def test_what_is_out_of_range_is_clipped_and_logged_once(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with made(server, tmp_path) as robot, caplog.at_level(logging.WARNING):
        robot.connect()
        for _ in range(3):
            robot.send_action(REST_ACTION | {"gripper.pos": 130.0})
    assert caplog.text.count("gripper.pos = 130.00") == 1


@pytest.mark.parametrize("wrong", [{"gripper.pos": 130.0}, {"gripper.pos": math.nan}, {"elbow.pos": 0.0}])
def test_an_illegal_action_is_not_sent(server: Server, tmp_path: Path, wrong: dict[str, float]) -> None:
    with made(server, tmp_path, out_of_range="refuse") as robot:
        robot.connect()
        with pytest.raises(IllegalAction, match=next(iter(wrong))):
            robot.send_action(REST_ACTION | wrong)
        assert server.lifecycle.state.value == "ready"


def test_calls_in_the_wrong_order_raise_lerobots_errors(server: Server, tmp_path: Path) -> None:
    with made(server, tmp_path) as robot:
        for call in (robot.get_observation, robot.disconnect, lambda: robot.send_action(REST_ACTION)):
            with pytest.raises(DeviceNotConnectedError):
                call()
        robot.connect()
        with pytest.raises(DeviceAlreadyConnectedError):
            robot.connect()
        robot.disconnect()
        assert server.about()["holder"] is None
        robot.connect()
        assert robot.is_connected


def test_a_stop_reaches_lerobot(server: Server, tmp_path: Path) -> None:
    with made(server, tmp_path) as robot:
        robot.connect()
        robot.send_action(REST_ACTION)
        with closing(RemoteRobot(server.address)) as button:
            button.stop("a hand is in the way")
        with pytest.raises(RobotStopped, match="a hand is in the way"):
            robot.send_action(REST_ACTION)
    assert server.stopped == "a hand is in the way"


def test_no_server_is_an_error_of_the_first_question(tmp_path: Path) -> None:
    address = "tcp://127.0.0.1:9"
    robot = make_robot_from_config(RlenvRobotConfig(address=address, calibration_dir=tmp_path))
    with pytest.raises(ConnectionLost, match=address):
        robot.observation_features  # noqa: B018
    assert not robot.is_connected


def test_sensors_and_images_are_observed(serve: Callable[..., Server], pictures: Path, tmp_path: Path) -> None:
    server = serve(f'[cameras.top]\nsource = "{pictures}"\nwidth = 64\nheight = 48\n')
    with made(server, tmp_path, sensors=["gripper_position"]) as robot:
        assert robot.observation_features["top"] == (48, 64, 3)
        assert len(robot.cameras) == 1
        robot.connect()
        observation = robot.get_observation()
        assert observation.keys() == robot.observation_features.keys()
        assert observation["top"].shape == (48, 64, 3)
        assert abs(observation["gripper_position_x"]) < 1.0
    with made(server, tmp_path, images=False) as robot:
        assert "top" not in robot.observation_features
    with made(server, tmp_path, sensors=["smell"]) as robot, pytest.raises(ValueError, match="gripper_position"):
        robot.observation_features  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"take": "please"}, "'force'"), ({"out_of_range": "wrap"}, "'refuse'"), ({"at_end": "fall"}, "'stop'"),
     ({"approach": -1.0}, "approach")],
)  # fmt: skip
def test_settings_say_what_is_allowed(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RlenvRobotConfig(**settings)


def test_lerobots_factory_makes_the_teleoperator(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve('telemetry = "tcp://127.0.0.1:*"\n')
    teleop = make_teleoperator_from_config(RlenvTeleoperatorConfig(address=server.address, calibration_dir=tmp_path))
    assert isinstance(teleop, Teleoperator)
    assert isinstance(teleop, RlenvTeleoperator)
    assert dict(teleop.action_features) == dict.fromkeys(NAMES, float)
    assert teleop.feedback_features == {}
    with pytest.raises(DeviceNotConnectedError):
        teleop.get_action()
    teleop.connect()
    try:
        action = teleop.get_action()
        np.testing.assert_allclose([action[name] for name in NAMES], [*REST_ACTION.values()], atol=4.0)
        with pytest.raises(NotImplementedError):
            teleop.send_feedback(action)
        began_s = time.perf_counter()
        for _ in range(100):
            teleop.get_action()
        assert time.perf_counter() - began_s < 1.0, "get_action waits"
    finally:
        teleop.disconnect()
    assert not teleop.is_connected


def test_a_teleoperator_has_one_source() -> None:
    for named in ({}, {"leader": "a.toml", "address": "tcp://127.0.0.1:5555"}):
        with pytest.raises(ValueError, match="takes one of leader, address and recorded"):
            RlenvTeleoperatorConfig(**named)


@pytest.mark.plugin("operate", "arms")
def test_a_leader_arm_needs_a_profile_with_a_driver(tmp_path: Path) -> None:
    (tmp_path / "leader.toml").write_text('[robot]\nkind = "so101"\nwhere = "twin"\n')
    with pytest.raises(ValueError, match=r"driver is empty"):
        make_teleoperator_from_config(RlenvTeleoperatorConfig(leader=str(tmp_path / "leader.toml")))
