"""The robot in an MJCF file, with a name, cameras for images, and a start for each seed."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from hal.errors import SpecError
from sim.mjcf.robot import from_mjcf
from sim.model import Scatter, SimModel

__all__ = ["mjcf_file"]

_UNNAMED = ("", "MuJoCo Model")
"""Names that MuJoCo gives to a model whose file does not name it."""

_VIEWS = {"view": ((0.45, -0.8, 0.35), (0.0, 0.0, 1.0)), "overhead": ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))}
"""Camera name -> direction from the middle of the moving bodies to the camera, and the direction that is up."""

_DISTANCE = 3.2
"""Distance of a camera from the middle over the size of the moving bodies. With a field of view of 45 degrees, the
whole circle of a pendulum is in the image."""

_SKY = (0.90, 0.92, 0.94), (0.62, 0.69, 0.77)
"""The two colours of the sky's gradient, red, green and blue, as in this package's models."""


def mjcf_file(path: str | Path, start_noise: float = 0.0) -> SimModel:
    """Make the robot of an MJCF file; see `sim.mjcf.robot.from_mjcf`.

    The robot has the name of its model, or of the file where the model has none. For images, the function adds the
    cameras ``view`` and ``overhead``, which look at all moving bodies, a light at the camera and a sky, where the model
    lacks them.

    Args:
        path: the path of the file, which ends in ``.xml``.
        start_noise: largest distance of each hinge (rad) and slide (m) from its start after a reset; the distance is
            drawn uniformly from the reset's seed and keeps the joint within its range.

    Raises:
        SpecError: there is no such file, it can't be compiled, or it has nothing to command.
    """
    file = Path(path)
    if not file.is_file():
        raise SpecError(f"{path}: there is no such model file")
    try:
        mjcf = mujoco.MjSpec.from_file(str(file))
        _add_views(mjcf)
        _add_light(mjcf)
    except (ValueError, OSError, mujoco.FatalError) as error:
        raise SpecError(f"{path}: not a model that MuJoCo can use: {error}") from error
    name = file.stem if mjcf.modelname in _UNNAMED else mjcf.modelname
    return from_mjcf(mjcf, name=name, scatter=_noise(start_noise, mjcf.compile()) if start_noise else None)


def _add_views(mjcf: mujoco.MjSpec) -> None:
    present = {camera.name for camera in mjcf.cameras}
    missing = [name for name in _VIEWS if name not in present]
    if not missing:
        return
    middle, size = _middle(mjcf.compile())
    for name in missing:
        direction, up = map(np.array, _VIEWS[name])
        backwards = direction / np.linalg.norm(direction)  # a camera looks along its own -z
        right = np.cross(up, backwards)
        right /= np.linalg.norm(right)
        turn = np.empty(4)
        mujoco.mju_mat2Quat(turn, np.column_stack([right, np.cross(backwards, right), backwards]).ravel())
        mjcf.worldbody.add_camera(name=name, pos=middle + _DISTANCE * size * backwards, quat=turn)


def _middle(model: mujoco.MjModel) -> tuple[np.ndarray, float]:
    """Return the middle and the size of the moving bodies in the model's default pose, metres."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    moving = np.flatnonzero((model.body_weldid[model.geom_bodyid] != 0) & (model.geom_rbound > 0))
    if not len(moving):
        return np.array(model.stat.center), float(model.stat.extent)
    centres, radii = data.geom_xpos[moving], model.geom_rbound[moving, None]
    low, high = (centres - radii).min(0), (centres + radii).max(0)
    return (low + high) / 2, float((high - low).max())


def _add_light(mjcf: mujoco.MjSpec) -> None:
    if not mjcf.lights:
        mjcf.visual.headlight.ambient, mjcf.visual.headlight.diffuse = np.full(3, 0.4), np.full(3, 0.6)
    sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX
    if all(texture.type != sky for texture in mjcf.textures):
        gradient = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
        mjcf.add_texture(name="sky", type=sky, builtin=gradient, rgb1=_SKY[0], rgb2=_SKY[1], width=64, height=384)


def _noise(largest: float, model: mujoco.MjModel) -> Scatter:
    types = (mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value)
    joints = np.flatnonzero(np.isin(model.jnt_type, types))
    addresses, limited = model.jnt_qposadr[joints], model.jnt_limited[joints].astype(bool)[:, None]
    low, high = np.where(limited, model.jnt_range[joints], (-np.inf, np.inf)).T

    def scatter(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        qpos[addresses] = np.clip(qpos[addresses] + rng.uniform(-largest, largest, len(addresses)), low, high)

    return scatter
