"""The torques of an arm's links are MuJoCo's, for our arm and for a branching one, and linear in each link's mass."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hal.errors import SpecError
from hal.guarding.link_torques import ArmChain, ChainLink
from hal.robots.so101 import JOINTS
from sim.mjcf.chain import chain_of
from sim.robots.so101 import so101_mjcf


def inverse_dynamics(model: mujoco.MjModel, motion: np.ndarray) -> np.ndarray:
    """MuJoCo's own recursive Newton-Euler algorithm, without rotors and friction, for the joints at the front."""
    data, torque, count = mujoco.MjData(model), np.zeros(model.nv), motion.shape[1]
    data.qpos[:count], data.qvel[:count], data.qacc[:count] = motion
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_comVel(model, data)
    mujoco.mj_rne(model, data, 1, torque)
    return torque[:count]


@pytest.mark.parametrize("cube", [False, True])
def test_the_so101s_torques_are_mujocos(cube: bool) -> None:
    model, rng = so101_mjcf(cube).compile(), np.random.default_rng(0)
    chain = chain_of(model, JOINTS)
    motions = rng.uniform(-1.5, 1.5, (40, 3, 6)) * np.array([1.0, 3.0, 20.0])[:, None]
    expected = np.array([inverse_dynamics(model, motion) for motion in motions])
    torques = chain.torques(*np.swapaxes(motions, 0, 1))
    np.testing.assert_allclose(torques.sum(axis=-2), expected, atol=1e-12)
    np.testing.assert_array_equal(chain.torques(*motions[3]), torques[3])
    heavier = replace(chain.links[3], mass=2 * chain.links[3].mass, inertia=tuple(2 * np.array(chain.links[3].inertia)))
    doubled = ArmChain((*chain.links[:3], heavier, *chain.links[4:])).torques(*motions[0])
    np.testing.assert_allclose(doubled[3], 2 * torques[0][3], atol=1e-15)


def test_the_links_of_a_pendulum_follow_the_textbook() -> None:
    """A point mass of 2 kg, half a metre from a horizontal axis: m l^2 a + m g l cos(q)."""
    chain = ArmChain((ChainLink("hinge", -1, (0, 0, 0), (0, -1, 0), 2.0, (0.5, 0, 0)),))
    q, a = np.array([0.7]), np.array([3.0])
    torque = chain.torques(q, np.array([5.0]), a)[0, 0]
    assert torque == pytest.approx(2 * 0.25 * 3.0 + 2 * 9.81 * 0.5 * np.cos(0.7))


@pytest.mark.parametrize(
    "links",
    [
        (ChainLink("a", 0, (0, 0, 0), (0, 0, 1), 1.0, (0, 0, 0)),),
        (ChainLink("a", -1, (0, 0, 0), (0, 0, 2), 1.0, (0, 0, 0)),),
        (ChainLink("a", -1, (0, 0, 0), (0, 0, 1), -1.0, (0, 0, 0)),),
    ],
)
def test_a_chain_that_is_none_is_refused(links: tuple[ChainLink, ...]) -> None:
    with pytest.raises(SpecError, match="'a'"):
        ArmChain(links)
