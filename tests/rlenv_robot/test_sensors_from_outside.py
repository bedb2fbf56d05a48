"""A stranger's package adds a sensor to a robot of ours: simulated, driven, served, logged and seen by a task."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import ProfileError
from recorder.read.reader import LogReader
from rlenv_robot.config.profile import Profile, load_profile
from rlenv_robot.robot_models import RobotModel, load_sensors
from rlenv_robot.serving import build_robot, build_server

SOURCE = '''
import time

import numpy as np

import rlenv_robot as rr
from hal import AddedSensor, Field
from rlenv_robot.tasks.reach import Reach
from sim import SimRobot
from sim.model import Columns
from sim.robots.so101 import so101


class Scale:
    """Stand in for the device that weighs what the gripper holds."""

    def read(self):
        return [12.5], time.monotonic_ns()

    def close(self):
        pass


GRIP_FORCE = AddedSensor(
    Field("grip_force", (1,), "float32", -100.0, 100.0, "N", "force of the gripper's motor"),
    open=Scale,
    simulated=Columns("actuator_force", (5,)),
    max_age_s=0.5,
)


class Arm(SimRobot):
    """Stand in for the driver of the hardware."""

    def __init__(self):
        super().__init__(so101(), real_time=True, teleport=False)


class GentleReach(Reach):
    """Reach with a gentle grip: the force is observed."""

    robot_model = rr.RobotModel.from_name("so101").with_sensors(["grip-force"])

    @property
    def observation(self):
        return rr.Spec("gentle_reach", (*super().observation.fields, GRIP_FORCE.field))

    def observe(self, sensors, goal):
        return {**super().observe(sensors, goal), "grip_force": sensors["grip_force"]}
'''
PROFILE = """
[robot]
kind = "so101"
where = "{where}"
{more}
sensors = ["grip-force"]
[serve]
address = "tcp://127.0.0.1:*"
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a stranger's package, as an installer leaves it on the path: one module and one declaration."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "scale_of_a_stranger.py").write_text(SOURCE)
    info = tmp_path / "scale_of_a_stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scale-of-a-stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlenv_robot.sensors]\ngrip-force = scale_of_a_stranger:GRIP_FORCE\n")
    from rlenv_robot import robot_models

    monkeypatch.setattr(robot_models, "_SENSORS", type(robot_models._SENSORS)("sensor", "rlenv_robot.sensors", {}))
    yield tmp_path
    sys.modules.pop("scale_of_a_stranger", None)


def profile(folder: Path, where: str = "sim", more: str = "") -> Profile:
    path = folder / "profile.toml"
    path.write_text(PROFILE.format(where=where, more=more))
    return load_profile(path)


def step(env: rr.Environment, obs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Step with any legal action."""
    action = env.action.sample(np.random.default_rng(0))
    return env.step({"env_id": obs["env_id"], "frame_no": obs["frame_no"], "action": action})[0]


def test_a_simulation_measures_and_records_it(stranger: Path) -> None:
    with rr.make("so101-reach", profile=profile(stranger), record=stranger / "runs") as env:
        obs = env.reset({"seed": 0})
        for _ in range(3):
            obs = step(env, obs)
    (run,) = (stranger / "runs").iterdir()
    rows = LogReader(run).frames()
    assert rows["sensor_grip_force"].shape == (4, 1)
    assert np.abs(rows["sensor_grip_force"][1:]).max() > 0


def test_a_batch_of_simulations_and_a_task_see_it(stranger: Path) -> None:
    with rr.make_vector("scale_of_a_stranger:GentleReach", 2, seed=0) as envs:
        table = envs.reset({"seed": 0})
    assert np.shape(table["observation"]["grip_force"]) == (2, 1)


def test_the_hardware_measures_it(stranger: Path) -> None:
    robot = build_robot(profile(stranger, "driver", 'driver = "scale_of_a_stranger:Arm"'))
    try:
        state = robot.reset({})
    finally:
        robot.close()
    assert state.sensors["grip_force"] == 12.5
    assert robot.spec.max_age_s["grip_force"] == 0.5


@pytest.mark.parametrize(("where", "more"), [("twin", ""), ("driver", 'driver = "scale_of_a_stranger:Arm"')])
def test_a_client_of_a_server_gets_it(stranger: Path, where: str, more: str) -> None:
    with (
        build_server(profile(stranger, where, more)) as server,
        rr.make("scale_of_a_stranger:GentleReach", robot=server.address) as env,
    ):
        first = env.reset({"seed": 0})
        second = step(env, first)
    for table in (first, second):
        assert np.shape(table["observation"]["grip_force"]) == (1,)


@pytest.mark.parametrize(
    ("sensors", "key"), [('["grip-farce"]', "grip-farce"), ('["math:pi"]', "math:pi"), ('[""]', "robot.sensors")]
)
def test_a_mistake_is_one_line_with_file_and_key(stranger: Path, sensors: str, key: str) -> None:
    path = stranger / "wrong.toml"
    path.write_text(f'[robot]\nwhere = "sim"\nsensors = {sensors}\n')
    with pytest.raises(ProfileError, match=r"robot\.sensors") as raised:
        build_robot(load_profile(path))
    assert key in str(raised.value)


def test_a_sensor_of_the_hardware_alone_is_not_simulated(stranger: Path) -> None:
    (sensor,) = load_sensors(["scale_of_a_stranger:GRIP_FORCE"])
    model = RobotModel.from_name("so101").with_sensors([type(sensor)(sensor.field, sensor.open)])
    assert "grip_force" in model.load_spec().sensors
    with pytest.raises(ValueError, match="not simulated"):
        model.make_sim_model()
    with pytest.raises(ValueError, match="grip_force"):
        rr.robot(model, rr.robot("so101"))


def test_a_sensor_of_the_hardware_alone_hinders_neither_collision_checks_nor_pictures(stranger: Path) -> None:
    source = SOURCE.replace('    simulated=Columns("actuator_force", (5,)),\n', "")
    (stranger / "scale_of_a_stranger.py").write_text(source)
    more = 'driver = "scale_of_a_stranger:Arm"\nguard = {self_collision = true}'
    robot = build_robot(profile(stranger, "driver", more))
    try:
        assert "grip_force" in robot.reset({}).sensors
    finally:
        robot.close()
    with rr.make("scale_of_a_stranger:GentleReach", robot="scale_of_a_stranger:Arm") as env:
        env.reset({"seed": 0})
        env.render({"mode": "file", "path": str(stranger / "arm.png")})
    assert (stranger / "arm.png").stat().st_size > 1000
