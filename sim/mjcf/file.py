"""The robot in a file of MJCF: what `from_mjcf` makes of it, with a name, views for images, a start for each seed."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from hal.errors import SpecError
from sim.mjcf.robot import from_mjcf
from sim.model import Scatter, SimModel

__all__ = ["mjcf_file"]

_UNNAMED = ("", "MuJoCo Model")
"""What MuJoCo calls a model whose file gives it no name."""

_VIEWS = {"view": ((0.45, -0.8, 0.35), (0.0, 0.0, 1.0)), "overhead": ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))}
"""Name -> from where it looks at the middle of what moves, and what is up in the image."""

_AWAY = 3.2
"""How far, in the size of what moves: so that at 45 degrees a pendulum's whole circle is in the image."""

_SKY = (0.90, 0.92, 0.94), (0.62, 0.69, 0.77)
"""From which colour to which, red, green and blue; as in our own models."""


def mjcf_file(path: str | Path, start_noise: float = 0.0) -> SimModel:
    """The robot of a file; see `sim.mjcf.robot.from_mjcf`.

    It is called as its model is, or else as the file. For images it gets what it lacks: cameras ``view`` and
    ``overhead``, which look at all that moves, a light at the camera, a sky.

    Args:
        path: ends in ``.xml``.
        start_noise: a reset puts each hinge (rad) and slide (m) up to so far from its start, drawn uniformly from the
            reset's seed, and within its range.

    Raises:
        SpecError: there is no such file, it can't be compiled, or nothing in it can be commanded.
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
    return from_mjcf(mjcf, name=name, scatter=_around(start_noise, mjcf.compile()) if start_noise else None)


def _add_views(mjcf: mujoco.MjSpec) -> None:
    there = {camera.name for camera in mjcf.cameras}
    missing = [name for name in _VIEWS if name not in there]
    if not missing:
        return
    middle, size = _middle(mjcf.compile())
    for name in missing:
        direction, up = (np.array(each) for each in _VIEWS[name])
        backwards = direction / np.linalg.norm(direction)  # a camera looks along its own -z
        right = np.cross(up, backwards)
        right /= np.linalg.norm(right)
        turn = np.empty(4)
        mujoco.mju_mat2Quat(turn, np.column_stack([right, np.cross(backwards, right), backwards]).ravel())
        mjcf.worldbody.add_camera(name=name, pos=middle + _AWAY * size * backwards, quat=turn)


def _middle(model: mujoco.MjModel) -> tuple[np.ndarray, float]:
    """The middle of what moves, as the model lies, and across how much it reaches, metres."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    moving = np.flatnonzero((model.body_weldid[model.geom_bodyid] != 0) & (model.geom_rbound > 0))
    if not len(moving):
        return np.array(model.stat.center), float(model.stat.extent)
    places, radii = data.geom_xpos[moving], model.geom_rbound[moving, None]
    low, high = (places - radii).min(0), (places + radii).max(0)
    return (low + high) / 2, float((high - low).max())


def _add_light(mjcf: mujoco.MjSpec) -> None:
    if not mjcf.lights:
        mjcf.visual.headlight.ambient, mjcf.visual.headlight.diffuse = np.full(3, 0.4), np.full(3, 0.6)
    sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX
    if all(texture.type != sky for texture in mjcf.textures):
        gradient = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
        mjcf.add_texture(name="sky", type=sky, builtin=gradient, rgb1=_SKY[0], rgb2=_SKY[1], width=64, height=384)


def _around(noise: float, model: mujoco.MjModel) -> Scatter:
    kinds = (mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value)
    joints = np.flatnonzero(np.isin(model.jnt_type, kinds))
    places, limited = model.jnt_qposadr[joints], model.jnt_limited[joints].astype(bool)[:, None]
    low, high = np.where(limited, model.jnt_range[joints], (-np.inf, np.inf)).T

    def scatter(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        qpos[places] = np.clip(qpos[places] + rng.uniform(-noise, noise, len(places)), low, high)

    return scatter
