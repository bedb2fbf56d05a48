"""The links of an arm are taken out of any model; bodies that are fixed to one count with it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.errors import SpecError
from hal.robots.so101 import GRASP, JOINTS, forward_kinematics
from sim.mjcf.chain import chain_of, tool_of
from sim.robots.so101 import so101_mjcf

ARM = """
<mujoco><compiler angle="radian"/><worldbody><body name="post" pos="0 0 .2" euler="0 0 .3"><geom size=".05"/>
<body name="one" pos=".1 0 0" euler=".2 0 0"><joint name="a" axis="0 1 0" pos="0 0 .01"/>
<geom type="box" size=".1 .02 .03"/>
<body name="tail" pos=".1 .05 0" euler="0 .4 0"><geom type="capsule" size=".01 .05"/>
<body name="two" pos=".1 0 .02"><joint name="b" axis="0 0 1"/><geom type="box" size=".05 .02 .03" pos=".04 0 0"/>
<site name="tip" pos=".1 0 0"/>{more}</body></body></body></body></worldbody></mujoco>
"""


def test_bodies_without_a_joint_belong_to_the_link_before_them() -> None:
    model = mujoco.MjModel.from_xml_string(ARM.format(more=""))
    chain, data, torque = chain_of(model, ("a", "b")), mujoco.MjData(model), np.zeros(2)
    data.qpos[:], data.qvel[:], data.qacc[:] = (0.4, -0.7), (2.0, 3.0), (5.0, -9.0)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_comVel(model, data)
    mujoco.mj_rne(model, data, 1, torque)
    np.testing.assert_allclose(chain.torques(data.qpos, data.qvel, data.qacc).sum(axis=0), torque, atol=1e-12)
    assert [link.parent for link in chain.links] == [-1, 0]


def test_the_tool_is_the_site_of_the_tip() -> None:
    link, place = tool_of(so101_mjcf().compile(), JOINTS)
    assert JOINTS[link] == "wrist_roll"
    np.testing.assert_allclose(place, forward_kinematics(np.zeros(6)), atol=1e-3)
    model = mujoco.MjModel.from_xml_string(ARM.format(more="").replace("tip", "end"))
    assert tool_of(model, ("a", "b")) == (1, chain_of(model, ("a", "b")).links[1].center)
    assert np.linalg.norm(np.subtract(place, forward_kinematics(np.zeros(6), GRASP))) < 0.01


@pytest.mark.parametrize(
    ("joints", "more", "problem"),
    [
        (("a", "c"), "", "no hinge 'c'"),
        (("b", "a"), "", "'b' comes before 'a'"),
        (("a", "b"), '<body><joint name="free_one" type="slide"/><geom size=".01"/></body>', "another joint"),
    ],
)
def test_what_is_no_arm_is_refused(joints: tuple[str, ...], more: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        chain_of(mujoco.MjModel.from_xml_string(ARM.format(more=more)), joints)
