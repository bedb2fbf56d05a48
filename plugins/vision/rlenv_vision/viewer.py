"""Show an environment's moving robot in MuJoCo's viewer window."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import mujoco
import numpy as np

from hal import RobotError
from hal.errors import wrong_type
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tables import FieldValues
from rlenv_robot.world import World, WorldWrapper
from sim.state import posed

__all__ = ["HasWorld", "MeasuredRobot", "Viewer", "view"]

_PERIOD_S = 1 / 60
_GOAL_RADIUS_M, _GOAL_RGBA = 0.012, (0.10, 0.65, 0.35, 0.75)


class HasWorld(Protocol):
    """An object with a world, such as `rlenv_robot.env.Environment`."""

    @property
    def world(self) -> World:
        """The environment's world."""
        ...


@runtime_checkable
class MeasuredRobot(Protocol):
    """A world with a robot of a known model."""

    def drawn_model(self) -> RobotModel:
        """Return the robot's model, or raise `hal.RobotError` if it is unknown."""
        ...

    def measured(self) -> tuple[FieldValues, FieldValues]:
        """Return the newest sensors and the episode's goal by field; both are empty before the first reset."""
        ...


def view(env: HasWorld) -> Viewer:
    """Open MuJoCo's viewer window on a simulated or real environment; the window follows each step and reset.

    The window shows a copy of the robot's model in the measured pose, with a ball at the goal, so actions in the window
    do not affect the environment. Close the result, or use it in a ``with`` statement.

    Raises:
        RobotError: there is no display or no GLFW, the environment has no robot, or the robot's model is unknown; the
            message says what to do instead.
    """
    if not hasattr(env, "world"):
        raise wrong_type("env", env, "an Environment: rlenv_robot.make('so101-reach')")
    world = env.world.unwrapped if isinstance(env.world, WorldWrapper) else env.world
    if not isinstance(world, MeasuredRobot):
        raise RobotError(
            f"a {type(world).__name__} is not a robot that MuJoCo's viewer can show; "
            'env.render({"mode": "window"}) shows any environment that has a picture'
        )
    return Viewer(world)


class Viewer:
    """An open viewer window.

    Args:
        world: the world to show; the window's thread reads it sixty times per second.

    Raises:
        RobotError: as for `view`.
    """

    def __init__(self, world: MeasuredRobot) -> None:
        self._world = world
        self._sim_model = world.drawn_model().make_sim_model()
        self._model, self._data = self._sim_model.model, mujoco.MjData(self._sim_model.model)
        if self._sim_model.keyframe >= 0:
            mujoco.mj_resetDataKeyframe(self._model, self._data, self._sim_model.keyframe)
        self._window = _open_window(self._model, self._data)
        self._shown: FieldValues = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rlenv-robot viewer", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the window is open; the user may have closed it."""
        return not self._closing.is_set() and bool(self._window.is_running())

    def close(self) -> None:
        """Close the window. Safe to call more than once."""
        self._closing.set()
        self._thread.join()
        self._window.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _follow(self) -> None:
        while self._window.is_running() and not self._closing.wait(_PERIOD_S):
            sensors, goal = self._world.measured()
            if sensors is self._shown or not sensors:
                continue
            self._shown = sensors
            with self._window.lock():
                self._pose(sensors, goal)
            self._window.sync()

    def _pose(self, sensors: FieldValues, goal: FieldValues) -> None:
        qpos = posed(self._sim_model, {name: np.asarray(value) for name, value in sensors.items()})
        if np.isfinite(qpos).all():
            self._data.qpos[:] = qpos
            mujoco.mj_forward(self._model, self._data)
        scene = self._window.user_scn
        scene.ngeom = 0
        if np.size(goal.get("target_position", ())) == 3:  # a point
            sphere, size = mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, _GOAL_RADIUS_M)
            place, colour = np.asarray(goal["target_position"], float), np.array(_GOAL_RGBA, np.float32)
            mujoco.mjv_initGeom(scene.geoms[0], sphere, size, place, np.eye(3).ravel(), colour)
            scene.ngeom = 1


def _open_window(model: mujoco.MjModel, data: mujoco.MjData) -> Any:
    """Open the window; MuJoCo's own call waits for ever where there is no display.

    Raises:
        RobotError: as for `view`.
    """
    if not _has_display(os.environ):
        raise RobotError(_no_display("DISPLAY and WAYLAND_DISPLAY are not set"))
    try:
        import glfw
        import mujoco.viewer
    except (ImportError, RuntimeError) as error:
        raise RobotError(f"MuJoCo's viewer needs GLFW ({error}): pip install 'rlenv-robot[viewer]'") from None
    if not glfw.init():
        raise RobotError(_no_display("GLFW can't open a window"))
    try:
        return mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False)
    except RuntimeError as error:  # macOS: only a program that mjpython runs may open the window
        raise RobotError(f"MuJoCo's viewer can't be opened: {error}") from error


def _has_display(environment: Mapping[str, str]) -> bool:
    """Return whether a window could be opened by what the environment's variables say."""
    return sys.platform != "linux" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def _no_display(problem: str) -> str:
    return (
        f"no window can be opened: {problem}. On a machine without a display use "
        'env.render({"mode": "file", "path": "state.png"}), a live view (`rlenv-robot serve --foxglove`), or xvfb-run'
    )
