"""Project points to images of a simulated robot's cameras, and describe such a camera as a calibrated one."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import mujoco
import numpy as np

from hal.cameras.pinhole import PinholeCamera
from hal.errors import RobotError
from sim.model import SimModel
from sim.rendering.camera import seen

__all__ = ["pinhole_camera", "project_points"]

_NEAREST_M = 1e-3
"""Least distance in front of a lens at which a point has a pixel position, metres."""


def project_points(
    sim_model: SimModel,
    camera: str,
    width: int,
    height: int,
    qpos: np.ndarray,
    points: np.ndarray,
    models: Mapping[str, np.ndarray] | None = None,
) -> np.ndarray:
    """Return the positions of points of the world in a camera's images: the pinhole projection by its ``fovy``.

    Args:
        sim_model: the robot.
        camera: the name of a camera of the MJCF; it may be fixed to the world or to a moving body.
        width: width of the images, pixels.
        height: height of the images, pixels.
        qpos: the states of n simulations, (n, nq).
        points: points in the world frame, metres, (n, k, 3).
        models: the fields in which their models differ, name -> (n, ...), as `sim.batch.SimBatch.models`.

    Returns:
        x from the left and y from the top, in pixels, (n, k, 2). The middle of the first pixel is (0, 0). Positions
        may lie outside the image; a point that is not in front of the lens has NaN.

    Raises:
        RobotError: the model has no such camera, or the camera is not a pinhole camera with a ``fovy``.
    """
    number, model = sim_model.camera_id(camera), copy.copy(sim_model.model)
    if model.cam_projection[number] != mujoco.mjtProjection.mjPROJ_PERSPECTIVE or model.cam_sensorsize[number].any():
        raise RobotError(
            f"camera {camera!r} is orthographic or has a sensorsize; points need a camera with a fovy alone"
        )
    data, visible = mujoco.MjData(model), seen(models or {})
    pixels = np.empty((*np.shape(points)[:2], 2))
    for row, state in enumerate(qpos):
        for name, values in visible.items():
            field = getattr(model, name)
            field[:] = np.reshape(values[row], field.shape)
        data.qpos[:] = state
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        local = (points[row] - data.cam_xpos[number]) @ data.cam_xmat[number].reshape(3, 3)
        depth = np.where(local[:, 2] < -_NEAREST_M, -local[:, 2], np.nan)  # MuJoCo's cameras look along -z, with y up
        focal_px = height / 2 / np.tan(np.radians(model.cam_fovy[number]) / 2)
        pixels[row, :, 0] = (width - 1) / 2 + focal_px * local[:, 0] / depth
        pixels[row, :, 1] = (height - 1) / 2 - focal_px * local[:, 1] / depth
    return pixels


def pinhole_camera(sim_model: SimModel, name: str, width: int, height: int) -> PinholeCamera:
    """Return a camera of the model that is fixed to the world, as a calibrated camera.

    Args:
        sim_model: the model.
        name: name of the camera.
        width: width of its images, pixels.
        height: height of its images, pixels.

    Raises:
        RobotError: the model has no such camera.
    """
    model, number = sim_model.model, sim_model.camera_id(name)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    focal = height / 2 / np.tan(np.radians(model.cam_fovy[number]) / 2)
    turn = data.cam_xmat[number].reshape(3, 3) * (1.0, -1.0, -1.0)  # MuJoCo looks along -z, with y up
    centre = ((width - 1) / 2, (height - 1) / 2)
    return PinholeCamera((focal, focal), centre, data.cam_xpos[number].copy(), turn)
