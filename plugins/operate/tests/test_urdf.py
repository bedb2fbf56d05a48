"""Robots as URDF: other projects' readers place every link where MuJoCo places its body."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest

from hal.errors import RobotError
from rlenv_operate.urdf import urdf_robot
from rlenv_robot.robot_models import find_robot_model
from sim.mjcf.robot import mjcf_file
from sim.model import SimModel

ROBOTS = ("so101", "so101-pair", "go2")
POSES = 1000

ODD = """
<mujoco model="odd">
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="turret" pos="0.1 0.2 0.3" euler="10 90 20">
      <joint name="pan" axis="0 0 1" pos="0.02 0 0.01" range="-60 60"/>
      <joint name="tilt" axis="0 1 0" pos="0 0.03 0" range="-60 60"/>
      <geom type="ellipsoid" size="0.05 0.03 0.02"/>
      <body name="rail" pos="0 0 0.2" euler="0 0 45">
        <joint name="slide" type="slide" axis="1 0 0" range="-0.1 0.2"/>
        <geom type="capsule" size="0.01" fromto="0 0 0 0.1 0 0.1"/>
        <body pos="0.1 0 0"><geom type="cylinder" size="0.02 0.01" euler="0 90 0"/></body>
      </body>
    </body>
    <body name="loose" pos="1 0 0"><freejoint/><geom size="0.02"/></body>
  </worldbody>
  <actuator>
    <position name="pan" joint="pan" kp="9" forcerange="-3 3" ctrlrange="-1 1"/>
    <position name="tilt" joint="tilt" kp="9" ctrlrange="-1 1"/>
    <position name="slide" joint="slide" kp="9" ctrlrange="-0.1 0.2"/>
  </actuator>
</mujoco>
"""


@pytest.fixture(params=[*ROBOTS, "odd"])
def robot(request: pytest.FixtureRequest, tmp_path: Path) -> SimModel:
    """Ours, and a model with anchors beside the origin, several joints of one body and a body without a name."""
    if request.param != "odd":
        return find_robot_model(request.param).make_sim_model()
    file = tmp_path / "odd.xml"
    file.write_text(ODD)
    return mjcf_file(file)


def poses(model: mujoco.MjModel, names: list[str], count: int) -> np.ndarray:
    """Random joint positions within their ranges, shape (count, joints)."""
    ranges = np.array([model.joint(name).range for name in names])
    return np.random.default_rng(7).uniform(ranges[:, 0], ranges[:, 1], (count, len(names)))


class Mujoco:
    """Places of bodies by our own model, with a free base in the origin."""

    def __init__(self, model: mujoco.MjModel, names: list[str]) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.at = [int(model.joint(name).qposadr[0]) for name in names]
        for joint in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE.value).tolist():
            self.data.qpos[model.jnt_qposadr[joint] :][:7] = (0, 0, 0, 1, 0, 0, 0)

    def places(self, pose: np.ndarray) -> dict[str, np.ndarray]:
        self.data.qpos[self.at] = pose
        mujoco.mj_kinematics(self.model, self.data)
        places = {}
        for body in range(1, self.model.nbody):
            place = np.eye(4)
            place[:3, :3], place[:3, 3] = self.data.xmat[body].reshape(3, 3), self.data.xpos[body]
            places[self.model.body(body).name or f"body_{body}"] = place
        return places


def test_mujoco_reads_the_file_back_with_the_same_kinematics_masses_and_ranges(robot: SimModel, tmp_path: Path) -> None:
    urdf = urdf_robot(robot)
    path = urdf.write(tmp_path / "out")
    names = [
        joint.get("name", "")
        for joint in ElementTree.parse(path).getroot().iter("joint")
        if joint.find("limit") is not None
    ]
    if robot.spec.name == "odd":  # MuJoCo allows no moving link without mass, which carries a body's second joint
        text = path.read_text().replace('fusestatic="false"', 'fusestatic="false" boundmass="1e-9" boundinertia="1e-9"')
        path.write_text(text)
    read = mujoco.MjModel.from_xml_path(str(path))
    ours, theirs = Mujoco(robot.model, names), Mujoco(read, names)
    for pose in poses(robot.model, names, 50):
        expected = ours.places(pose)
        for name, place in theirs.places(pose).items():
            if name in expected:
                np.testing.assert_allclose(place, expected[name], atol=1e-9)
    for name in names:
        mine, its = robot.model.joint(name), read.joint(name)
        np.testing.assert_allclose(its.range, mine.range, atol=1e-9)
        np.testing.assert_allclose(its.frictionloss, mine.frictionloss)
    links = {link.get("name", "") for link in ElementTree.parse(path).getroot().iter("link")}
    for name in links & expected.keys() - {"body_3"}:
        mine, its = robot.model.body(name), read.body(name)
        np.testing.assert_allclose(its.mass, mine.mass, rtol=1e-9, atol=2e-9)
        np.testing.assert_allclose(its.ipos, mine.ipos, atol=1e-9)
        np.testing.assert_allclose(np.sort(its.inertia), np.sort(mine.inertia), rtol=1e-6, atol=2e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_pinocchio_and_yourdfpy_place_the_links_as_mujoco_does(name: str, tmp_path: Path) -> None:
    pinocchio = pytest.importorskip("pinocchio", reason="pip install pin yourdfpy")
    yourdfpy = pytest.importorskip("yourdfpy", reason="pip install pin yourdfpy")
    sim_model = find_robot_model(name).make_sim_model()
    path = urdf_robot(sim_model).write(tmp_path)
    robot = yourdfpy.URDF.load(str(path))
    assert robot.validate(), robot.errors
    assert robot.scene.is_empty is False, "its meshes are read"
    pin = pinocchio.buildModelFromUrdf(str(path))
    data, names = pin.createData(), list(robot.actuated_joint_names)
    assert sorted(names) == sorted(pin.names[1:])
    ours = Mujoco(sim_model.model, names)
    order = [names.index(joint) for joint in list(pin.names)[1:]]
    worst = 0.0
    for number, pose in enumerate(poses(sim_model.model, names, POSES)):
        expected = ours.places(pose)
        pinocchio.framesForwardKinematics(pin, data, pose[order])
        for link in robot.link_map:
            if link not in expected:
                continue
            frame = data.oMf[pin.getFrameId(link, pinocchio.FrameType.BODY)]
            worst = max(worst, np.abs(frame.homogeneous - expected[link]).max())
            if number % 10 == 0:  # it is slow
                robot.update_cfg(dict(zip(names, pose, strict=True)))
                worst = max(worst, np.abs(robot.get_transform(link, robot.base_link) - expected[link]).max())
    assert worst < 1e-6, worst
    dofs = [int(sim_model.model.joint(joint).dofadr[0]) for joint in list(pin.names)[1:]]
    for pose in poses(sim_model.model, names, 20):
        ours.places(pose)
        mujoco.mj_forward(sim_model.model, ours.data)
        gravity = pinocchio.computeGeneralizedGravity(pin, data, pose[order])
        np.testing.assert_allclose(gravity, ours.data.qfrc_bias[dofs], atol=1e-9)
        full = np.zeros((sim_model.model.nv, sim_model.model.nv))
        mujoco.mj_fullM(sim_model.model, ours.data, full)
        inertia = full[np.ix_(dofs, dofs)] - np.diag(sim_model.model.dof_armature[dofs])
        upper = np.triu(pinocchio.crba(pin, data, pose[order]))
        np.testing.assert_allclose(upper, np.triu(inertia), atol=1e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_each_mesh_is_closed_and_faces_outwards(name: str) -> None:
    meshes = urdf_robot(find_robot_model(name).make_sim_model()).meshes
    assert len(meshes) >= 13
    for file, data in meshes.items():
        count = int(np.frombuffer(data, "<u4", 1, 80)[0])
        assert len(data) == 84 + 50 * count, file
        records = np.frombuffer(
            data, [("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("attribute", "<u2")], count, 84
        )
        points = records["points"].astype(float)
        edges = np.concatenate([points[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))])
        there = {edge.tobytes() for edge in edges}
        assert all(edge[::-1].tobytes() in there for edge in edges), f"{file} has a hole"
        volume = np.einsum("ij,ij->i", points[:, 0], np.cross(points[:, 1], points[:, 2])).sum() / 6
        assert volume > 0, f"{file} is inside out"


def test_what_is_no_robot_is_left_out_and_said(tmp_path: Path) -> None:
    robot = urdf_robot(find_robot_model("so101-cube").make_sim_model())
    assert "cube" in robot.notes[0]
    assert 'link name="cube"' not in robot.text
    robot.write(tmp_path)
    with pytest.raises(RobotError, match="nothing is overwritten"):
        robot.write(tmp_path)


BALL = """
<mujoco model="ball">
  <worldbody>
    <body><joint name="hip"/><geom size="1"/><body><joint name="wrist" type="ball"/><geom size="1"/></body></body>
  </worldbody>
  <actuator><motor joint="hip" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def test_a_robot_with_a_ball_joint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ball.xml"
    file.write_text(BALL)
    with pytest.raises(RobotError, match="ball"):
        urdf_robot(mjcf_file(file))
