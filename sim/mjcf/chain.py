"""Take the rigid bodies of an arm out of its MuJoCo model."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from hal.errors import SpecError
from hal.guarding.link_torques import ArmChain, ChainLink

__all__ = ["chain_of", "tool_of"]


def chain_of(model: mujoco.MjModel, joints: Sequence[str]) -> ArmChain:
    """Return the links that hinges move, with all bodies that are fixed to them, in the order of the joints.

    Raises:
        SpecError: a joint is missing or no hinge, a joint comes before one that moves it, or another joint moves a
            part of the arm.
    """
    data = _at_zero(model)
    owner = _owners(model, joints)
    links = []
    for index, name in enumerate(joints):
        joint = model.joint(name)
        bodies = np.flatnonzero(owner == index)
        masses, centers = model.body_mass[bodies], data.xipos[bodies]
        mass = float(masses.sum())
        center = masses @ centers / mass if mass else data.xanchor[joint.id]
        inertia = np.zeros((3, 3))
        for body, share, place in zip(bodies, masses, centers, strict=True):
            turn, away = data.ximat[body].reshape(3, 3), place - center
            inertia += turn @ np.diag(model.body_inertia[body]) @ turn.T
            inertia += share * (away @ away * np.eye(3) - np.outer(away, away))
        parent = int(owner[model.body_parentid[model.jnt_bodyid[joint.id]]])
        if parent >= index:
            raise SpecError(f"joint {name!r} comes before {joints[parent]!r}, which moves it")
        rows, columns = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)
        links.append(
            ChainLink(
                name, parent, tuple(data.xanchor[joint.id].tolist()), tuple(data.xaxis[joint.id].tolist()),
                mass, tuple(np.asarray(center).tolist()), tuple(inertia[rows, columns].tolist()),
            )
        )  # fmt: skip
    return ArmChain(tuple(links))


def tool_of(model: mujoco.MjModel, joints: Sequence[str], site: str = "tip") -> tuple[int, tuple[float, ...]]:
    """Return the link that carries a payload, and the place of the payload in the base frame, all joints at zero.

    It is the place of a site of this name, else the centre of the last link.
    """
    data, owner = _at_zero(model), _owners(model, joints)
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site)
    if number < 0 or owner[model.site_bodyid[number]] < 0:
        last = chain_of(model, joints).links[-1]
        return len(joints) - 1, last.center
    return int(owner[model.site_bodyid[number]]), tuple(data.site_xpos[number].tolist())


def _at_zero(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    free = model.jnt_type == mujoco.mjtJoint.mjJNT_FREE.value
    data.qpos[model.jnt_qposadr[~free]] = 0.0
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    return data


def _owners(model: mujoco.MjModel, joints: Sequence[str]) -> np.ndarray:
    """Return the index of the joint that moves each body last; -1 for a body that none of them moves."""
    own = {}
    for index, name in enumerate(joints):
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        if number < 0 or model.jnt_type[number] != mujoco.mjtJoint.mjJNT_HINGE.value:
            raise SpecError(f"the model has no hinge {name!r}")
        own[int(model.jnt_bodyid[number])] = index
    owner = np.full(model.nbody, -1)
    for body in range(1, model.nbody):
        owner[body] = own.get(body, owner[model.body_parentid[body]])
        if owner[body] >= 0 and int(model.body_jntnum[body]) > (body in own):
            raise SpecError(f"body {model.body(body).name!r} of the arm has another joint, which nothing measures")
    return owner
