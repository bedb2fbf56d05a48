"""A model's file as a robot: its name, its rate, the views that it gets, and where its episodes start."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco
import numpy as np
import pytest

from hal import SpecError
from sim.batch import SimBatch
from sim.mjcf.file import mjcf_file
from sim.model import SimModel

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


def _strangers() -> list[Path]:
    """Gymnasium's models of robots, where it is installed."""
    found = importlib.util.find_spec("gymnasium")
    return sorted((Path(str(found.origin)).parent / "envs/mujoco/assets").glob("*.xml")) if found else []


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
