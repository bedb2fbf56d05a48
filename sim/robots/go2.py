"""The simulated quadruped in the dimensions of Unitree's Go2, on flat ground."""

from __future__ import annotations

from importlib import resources

import mujoco
import numpy as np

from hal.robots.go2 import GO2, JOINTS, STANCE
from sim.model import Columns, Computed, SimModel

__all__ = ["STANDING_HEIGHT", "SUBSTEPS", "go2", "go2_mjcf"]

SUBSTEPS = 5
"""Physics steps of 1/250 s in the control period of 1/50 s."""

STANDING_HEIGHT = 0.288
"""Height of the trunk's middle at which the feet just touch the ground in `hal.robots.go2.STANCE`, metres:
2 * 0.213 cos(0.9) for the legs, 0.022 for the foot, and a little clearance."""


def go2(looks: bool = True) -> SimModel:
    """Make the simulated robot on flat ground.

    Args:
        looks: whether the model has its visual parts. Without them the motion is the same, bit for bit, and a batch
            steps faster.
    """
    model = go2_mjcf(looks).compile()
    if tuple(model.joint(index).name for index in range(1, model.njnt)) != JOINTS:
        raise AssertionError("the model's joints are not in the robot's order")
    return SimModel(
        spec=GO2,
        model=model,
        substeps=SUBSTEPS,
        sensors={
            "joint_position": Columns("qpos", slice(7, 19)),
            "joint_velocity": Columns("qvel", slice(6, 18)),
            "joint_goal": Columns("ctrl"),
            "joint_torque": Columns("actuator_force"),
            "angular_velocity": Columns("qvel", slice(3, 6)),  # in the body's frame
            "orientation": Columns("qpos", slice(3, 7)),
            "foot_force": Columns("sensordata"),
            "position": Columns("qpos", slice(0, 3)),
            "linear_velocity": Computed(
                _into_body, (Columns("qpos", slice(3, 7)), Columns("qvel", slice(0, 3)))
            ),
        },
        commands={"joint_target": slice(0, 12)},
        start={"joint_target": slice(7, 19)},
        keyframe=0,
    )  # fmt: skip


def go2_mjcf(looks: bool = True) -> mujoco.MjSpec:
    """Return the editable MJCF, which can be changed before it is compiled; its only keyframe is ``stance``."""
    path = resources.files("sim.models").joinpath("go2.xml")
    mjcf = mujoco.MjSpec.from_string(path.read_text(encoding="utf-8"))
    if not looks:
        for geom in [geom for geom in mjcf.geoms if not (geom.contype or geom.conaffinity)]:
            mjcf.delete(geom)
    mjcf.add_key(name="stance", qpos=[0, 0, STANDING_HEIGHT, 1, 0, 0, 0, *STANCE], ctrl=list(STANCE))
    return mjcf


def _into_body(orientation: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Turn vectors of the world (..., 3) into the body's frame, by its unit quaternion (..., 4; w, x, y, z): R' v."""
    scalar, axis = orientation[..., :1], -orientation[..., 1:]
    doubled = 2.0 * np.cross(axis, vector)
    in_body: np.ndarray = vector + scalar * doubled + np.cross(axis, doubled)
    return in_body
