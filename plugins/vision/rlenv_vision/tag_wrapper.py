"""Add a cube's pose, which cameras measure, to a robot's sensors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal.errors import ResetFailed, SpecError
from hal.field import JsonObject
from hal.robot import Image, Robot, RobotSpec, RobotState
from hal.wrapper import RobotWrapper
from rlenv_vision.tags import CubePose, TagDetector

__all__ = ["WithCubeTags"]

_MEASURED = ("cube_position", "cube_orientation")


class WithCubeTags(RobotWrapper):
    """Add ``cube_position`` and ``cube_orientation`` to a robot's states, from markers in its cameras' images.

    While no new pose is found, the last pose is repeated with increasing age (``age_ns``). A guard around this wrapper
    stops the robot when the pose is older than the spec's ``max_age_s``: ``Guard(WithCubeTags(WithCameras(arm,
    cameras), ...))``.

    Args:
        robot: a robot whose states have the images of the detector's cameras.
        detector: measures the cube.
        spec: the description with the two sensors, such as `hal.robots.so101.SO101_CUBE`; all other sensors are the
            robot's.
        background: whether a thread measures, so that a step takes the newest pose without waiting. Otherwise a step
            measures the images of its own state, as a simulation requires.

    Raises:
        SpecError: the spec lacks one of the two sensors, or has further sensors that the robot lacks.
    """

    def __init__(self, robot: Robot, detector: TagDetector, spec: RobotSpec, *, background: bool = True) -> None:
        super().__init__(robot)
        for name in (*_MEASURED, *spec.sensors.names):
            if name not in spec.sensors or (name not in _MEASURED and name not in robot.spec.sensors):
                raise SpecError(
                    f"sensor {name!r}: {spec.name!r} has {', '.join(spec.sensors.names)}, and {robot.spec.name!r} "
                    f"has {', '.join(robot.spec.sensors.names)}; the first must have those of the second and "
                    f"{' and '.join(_MEASURED)}"
                )
        self._spec, self._detector, self._background = spec, detector, background
        self._pose: CubePose | None = None
        self._newest_ns = -1  # stamp of the newest image that was taken up
        self._changed = threading.Condition()
        self._waiting: Mapping[str, Image] | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._measured = self._missed = 0

    @property
    def spec(self) -> RobotSpec:
        """The description with the cube's pose."""
        return self._spec

    def about(self) -> JsonObject:
        """Return the inner robot's report plus ``cube_tags``: how often the cube was ``measured`` and ``missed``."""
        return {**super().about(), "cube_tags": {"measured": self._measured, "missed": self._missed}}

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the inner robot, and measure the cube in the images of its first state.

        Raises:
            ResetFailed: no camera sees the cube.
        """
        robot_state = self._robot.reset(options)
        pose = self._detector.measure(robot_state.images)
        with self._changed:
            self._pose, self._newest_ns, self._waiting = pose, _newest_ns(robot_state.images), None
        if pose is None:
            names = ", ".join(self._detector.cameras)
            raise ResetFailed(
                f"no camera ({names}) sees a marker of the cube; put it in view, lit evenly, and reset again"
            )
        return self._with_pose(robot_state)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot, and add the newest pose of the cube."""
        robot_state = self._robot.step(command)
        newest_ns = _newest_ns(robot_state.images)
        if newest_ns > self._newest_ns:
            self._newest_ns = newest_ns
            if self._background:
                self._hand_over(robot_state.images)
            else:
                self._take(self._detector.measure(robot_state.images))
        return self._with_pose(robot_state)

    def read(self) -> RobotState | None:
        """Return what the inner robot measures now, with the newest pose of the cube; None before the first reset."""
        robot_state = super().read() if self._pose is not None else None
        return None if robot_state is None else self._with_pose(robot_state)

    def _hand_over(self, images: Mapping[str, Image]) -> None:
        with self._changed:
            self._waiting = images
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="cube tags", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting is not None)
                if self._closed:
                    return
                images, self._waiting = self._waiting, None
            assert images is not None
            self._take(self._detector.measure(images))

    def _take(self, pose: CubePose | None) -> None:
        with self._changed:
            if pose is None:
                self._missed += 1
            else:
                self._measured += 1
                if self._pose is None or pose.stamp_ns >= self._pose.stamp_ns:
                    self._pose = pose

    def _with_pose(self, robot_state: RobotState) -> RobotState:
        with self._changed:
            pose = self._pose
        assert pose is not None  # reset measured it, or raised
        measured = (pose.position_m, pose.orientation)
        values = {
            name: np.clip(value, *self._spec.sensors[name].bounds).astype(self._spec.sensors[name].numpy_dtype)
            for name, value in zip(_MEASURED, measured, strict=True)
        }
        age_ns = max(0, robot_state.stamp_ns - pose.stamp_ns)
        sensors = {
            name: values[name] if name in values else robot_state.sensors[name] for name in self._spec.sensors.names
        }
        ages = {**robot_state.age_ns, **dict.fromkeys(_MEASURED, age_ns)}
        return robot_state._replace(sensors=sensors, age_ns=ages)

    def close(self) -> None:
        """Close the robot, and end the thread. Safe to call more than once."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5)
        self._robot.close()


def _newest_ns(images: Mapping[str, Image]) -> int:
    return max((image.stamp_ns for image in images.values()), default=-1)
