"""Any MJCF is a robot: others' models run, and what is commanded and measured has names, units and ranges."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from hal import Guard, Limits, SpecError
from sim.batch import SimBatch
from sim.mjcf.robot import from_mjcf, mjcf_file
from sim.model import SimModel
from sim.robot import SimRobot

ZOO = """
<mujoco model="Odd Zoo-7">
  <option timestep="0.004"/>
  <worldbody>
    <body name="base"><freejoint name="Root"/><geom size="0.1"/>
      <body><joint name="hip" range="-60 60" limited="true"/><geom size="0.05" pos="0 0 0.2"/>
        <body><joint name="rail" type="slide" axis="1 0 0"/><geom size="0.05" pos="0 0 0.4"/>
          <body><joint name="wrist" type="ball"/><geom size="0.05" pos="0 0 0.6"/></body>
        </body>
      </body>
    </body>
    <body pos="1 0 0"><joint name="wheel"/><geom size="0.1"/></body>
  </worldbody>
  <actuator>
    <position name="hip_servo" joint="hip" kp="20"/>
    <position joint="rail" kp="50" ctrlrange="-0.1 0.2"/>
    <velocity joint="wheel" kv="3"/>
    <motor name="push" joint="rail" ctrlrange="-5 5"/>
    <motor name="spin" joint="wheel"/>
    <motor name="geared" joint="wheel" gear="7" ctrlrange="-1 1"/>
  </actuator>
  <sensor>
    <gyro name="imu gyro" site="s"/>
    <clock/>
    <framequat objtype="body" objname="base"/>
  </sensor>
</mujoco>
""".replace('<geom size="0.1"/>\n      <body>', '<geom size="0.1"/><site name="s"/>\n      <body>')


def test_actuators_become_commands_with_names_units_and_ranges() -> None:
    model = from_mjcf(ZOO)
    assert model.spec.name == "Odd Zoo-7"
    told = {field.name: (field.unit, field.elements) for field in model.spec.commands}
    assert told == {
        "angle_target": ("rad", ("hip_servo",)),
        "distance_target": ("m", ("rail",)),
        "angular_velocity_target": ("rad/s", ("wheel",)),
        "force": ("N", ("push",)),
        "torque": ("N m", ("spin",)),
        "control": ("1", ("geared",)),
    }
    ranges = {field.name: tuple(float(end[0]) for end in field.bounds) for field in model.spec.commands}
    assert ranges["angle_target"] == pytest.approx((-np.pi / 3, np.pi / 3)), "its joint's"
    assert ranges["distance_target"] == pytest.approx((-0.1, 0.2))
    assert ranges["force"] == (-5, 5)
    assert ranges["torque"] == (np.finfo(np.float32).min, np.finfo(np.float32).max)


def test_joints_and_sensors_become_sensors() -> None:
    model = from_mjcf(ZOO)
    told = {field.name: (field.shape, field.unit) for field in model.spec.sensors}
    assert told == {
        "joint_position": ((2,), "rad"), "joint_velocity": ((2,), "rad/s"),
        "slide_position": ((1,), "m"), "slide_velocity": ((1,), "m/s"),
        "root_position": ((3,), "m"), "root_velocity": ((3,), "m/s"),
        "root_orientation": ((4,), "1"), "root_angular_velocity": ((3,), "rad/s"),
        "wrist_orientation": ((4,), "1"), "wrist_angular_velocity": ((3,), "rad/s"),
        "imu_gyro": ((3,), "rad/s"), "clock_1": ((), "s"), "framequat_2": ((4,), "1"),
    }  # fmt: skip
    assert model.spec.sensors["joint_position"].elements == ("hip", "wheel")


def test_sensors_read_the_fields_that_they_name() -> None:
    model = from_mjcf(ZOO, dtype="float64")
    robot, data = SimRobot(model), mujoco.MjData(model.model)
    robot.reset({"start": {"angle_target": np.array([0.4]), "distance_target": np.array([0.1])}})
    data.qpos[7], data.qpos[8] = 0.4, 0.1
    command = {field.name: np.full(field.shape, 0.1) for field in model.spec.commands}
    robot_state = robot.step(command)
    data.ctrl[:] = 0.1
    mujoco.mj_step(model.model, data, model.substeps)
    mujoco.mj_step1(model.model, data)
    seen = robot_state.sensors
    np.testing.assert_array_equal(seen["joint_position"], data.qpos[[7, 13]])
    np.testing.assert_array_equal(seen["root_orientation"], data.qpos[3:7])
    np.testing.assert_array_equal(seen["root_angular_velocity"], data.qvel[3:6])
    np.testing.assert_array_equal(seen["wrist_orientation"], data.qpos[9:13])
    np.testing.assert_array_equal(seen["framequat_2"], data.sensordata[4:8])
    assert seen["clock_1"] == pytest.approx(0.02)


def test_a_pose_command_is_measured_by_the_sensor_of_the_same_joints() -> None:
    model = from_mjcf(ZOO)
    assert dict(model.spec.measured_by) == {"distance_target": "slide_position"}  # hips and wheel share a sensor


def test_the_derived_description_can_be_changed() -> None:
    limited = from_mjcf(ZOO, change=lambda spec: replace(spec, limits=Limits({"angle_target": 0.5})))
    guard = Guard(SimRobot(limited))
    guard.reset({})
    asked = {field.name: np.zeros(field.shape, field.dtype) for field in limited.spec.commands}
    asked["angle_target"][:] = 1.0
    assert guard.step(asked).applied["angle_target"] == pytest.approx(0.5 * 0.02, rel=1e-5)


def test_the_rate_is_near_50_hz_or_the_one_requested() -> None:
    assert (from_mjcf(ZOO).substeps, from_mjcf(ZOO).spec.rate_hz) == (5, pytest.approx(50))
    assert from_mjcf(ZOO, rate_hz=25).substeps == 10
    with pytest.raises(SpecError, match="change the timestep in the MJCF"):
        from_mjcf(ZOO, rate_hz=30)


def test_file_text_spec_and_model_give_the_same_robot(tmp_path: Path) -> None:
    (tmp_path / "zoo.xml").write_text(ZOO)
    sources: list[Any] = [
        tmp_path / "zoo.xml", str(tmp_path / "zoo.xml"), mujoco.MjSpec.from_string(ZOO),
        mujoco.MjModel.from_xml_string(ZOO),
    ]  # fmt: skip
    for source in sources:
        assert from_mjcf(source, name="z").spec == from_mjcf(ZOO, name="z").spec


@pytest.mark.parametrize(
    ("source", "message"),
    [("<mujoco><wordbody/></mujoco>", r"can't be used: [\s\S]*wordbody"), ("nowhere.xml", "can't be used"),
     ("<mujoco><worldbody/></mujoco>", "no actuator")],
)  # fmt: skip
def test_a_model_that_is_no_robot_is_refused(source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_mjcf(source)


def _strangers() -> list[Path]:
    """Return Gymnasium's models of robots, where Gymnasium is installed."""
    found = importlib.util.find_spec("gymnasium")
    return sorted((Path(str(found.origin)).parent / "envs/mujoco/assets").glob("*.xml")) if found else []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", _strangers() or [None], ids=lambda path: path.stem if path else "none")
def test_gymnasiums_models_run_unchanged(path: Path | None) -> None:
    """A robot alone moves as one of many."""
    if path is None:
        pytest.skip("gymnasium (extra gym), whose models these are, is not installed")
    model = from_mjcf(path, rate_hz=None)
    one, many = SimRobot(model), SimBatch(model, 3, 2)
    one.reset({"seed": 0})
    many.reset(seeds=[1, 0, 2])
    for step in range(5):
        rng = np.random.default_rng(step)
        command = {field.name: field.sample(rng) for field in model.spec.commands}
        mine = one.step(command)
        model.spec.sensors.validate(mine.sensors)
        theirs = many.step({name: np.stack([value] * 3) for name, value in command.items()})
        for name, value in mine.sensors.items():
            np.testing.assert_array_equal(value, theirs.sensors[name][1])


# -- files -----------------------------------------------------------------------------------------------------------


ARM = """
<mujoco {name}>
  <compiler angle="radian"/>
  {extra}
  <worldbody>
    <body><joint name="turn" range="-0.2 0.05" limited="true"/><geom size="0.1" pos="0.3 0 0"/>
      <body pos="1 0 0"><joint name="rail" type="slide"/><geom size="0.1"/></body>
    </body>
    <body pos="0 1 0"><freejoint/><geom size="0.1"/></body>
  </worldbody>
  <actuator><position joint="turn" kp="9"/></actuator>
</mujoco>
"""


def _model(folder: Path, name: str = "", extra: str = "", noise: float = 0.0) -> SimModel:
    (folder / "my arm.xml").write_text(ARM.format(name=name, extra=extra))
    return mjcf_file(folder / "my arm.xml", noise)


def test_the_robot_has_the_name_of_its_model_or_of_its_file(tmp_path: Path) -> None:
    assert _model(tmp_path, 'model="Lever"').spec.name == "Lever"
    assert _model(tmp_path).spec.name == "my arm"


def test_the_model_sets_the_rate(tmp_path: Path) -> None:
    assert _model(tmp_path).spec.rate_hz == 50
    told = _model(tmp_path, extra='<custom><numeric name="rate_hz" data="250"/></custom>')
    assert (told.spec.rate_hz, told.substeps) == (250, 2)
    with pytest.raises(SpecError, match="300 Hz"):
        _model(tmp_path, extra='<custom><numeric name="rate_hz" data="300"/></custom>')


def test_missing_cameras_are_added_and_see_the_whole_robot(tmp_path: Path) -> None:
    model = _model(tmp_path).model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for name in ("view", "overhead"):
        at, turn = data.camera(name).xpos, data.camera(name).xmat.reshape(3, 3)
        assert np.linalg.det(turn) == pytest.approx(1)
        for geom in data.geom_xpos:
            seen = turn.T @ (geom - at)
            assert seen[2] < 0, "in front of it"
            assert np.abs(seen[:2]).max() < -seen[2] * np.tan(np.radians(model.camera(name).fovy[0] / 2))
    own = '<worldbody><camera name="view" pos="7 7 7"/></worldbody>'
    np.testing.assert_array_equal(_model(tmp_path, extra=own).model.camera("view").pos, [7, 7, 7])


def test_a_robot_of_mjcf_text_has_the_same_cameras_and_leaves_a_given_spec_alone() -> None:
    text = ARM.format(name="", extra="")
    mjcf = mujoco.MjSpec.from_string(text)
    for source in (text, mjcf):
        model = from_mjcf(source).model
        assert [model.camera(number).name for number in range(model.ncam)] == ["view", "overhead"]
    assert not mjcf.cameras
    assert from_mjcf(mujoco.MjModel.from_xml_string(text)).model.ncam == 0, "a compiled model can't be added to"


def test_the_light_and_sky_added_for_images_change_no_physics(tmp_path: Path) -> None:
    plain = mujoco.MjModel.from_xml_string(ARM.format(name="", extra=""))
    made = _model(tmp_path).model
    for each in ("nq", "nv", "nu", "nbody", "ngeom"):
        assert getattr(made, each) == getattr(plain, each)
    first, second = mujoco.MjData(plain), mujoco.MjData(made)
    for model, data in ((plain, first), (made, second)):
        data.ctrl[:] = -0.1
        mujoco.mj_step(model, data, 200)
    np.testing.assert_array_equal(first.qpos, second.qpos)


def test_each_seed_has_another_start_within_the_joints_ranges(tmp_path: Path) -> None:
    batch = SimBatch(_model(tmp_path, noise=0.1), 200)
    first = batch.reset(None, list(range(200))).sensors
    turn, rail = first["joint_position"][:, 0], first["slide_position"][:, 0]
    assert turn.max() == pytest.approx(0.05), "its range, not the noise"
    assert -0.1 <= turn.min() < -0.09
    assert np.abs(rail).max() <= 0.1
    assert len(np.unique(rail)) == 200
    assert np.ptp(first["joint_2_position"], axis=0).max() == 0, "what has no hinge or slide stays"
    np.testing.assert_array_equal(batch.reset(None, list(range(200))).sensors["slide_position"][:, 0], rail)
    batch.close()


@pytest.mark.filterwarnings("ignore:compiler attribute 'settotalmass'")
@pytest.mark.parametrize("path", _strangers(), ids=lambda path: path.stem)
def test_third_party_models_run_unchanged(path: Path) -> None:
    model = mjcf_file(path, 0.01)
    batch, rng = SimBatch(model, 2), np.random.default_rng(0)
    batch.reset(None, [1, 2])
    for _ in range(5):
        chosen = [model.spec.commands.sample(rng) for _ in range(2)]
        robot_state = batch.step({name: np.stack([each[name] for each in chosen]) for name in chosen[0]})
    assert all(np.isfinite(value).all() for value in robot_state.sensors.values())
    assert {"view", "overhead"} <= {model.model.camera(number).name for number in range(model.model.ncam)}
    batch.close()
