"""Make a task with camera images among its observations, instead of or in addition to the robot's sensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, cast

from hal import SpecError
from hal.cameras.image_sensors import ImageSensor
from hal.spec import Spec
from rlenv_robot.robot_models import RobotModel, robot_model_of
from rlenv_robot.tasks.flat_hints import FlatHints, HasFlatHints
from rlenv_robot.tasks.task import Arrays, Task

__all__ = ["with_images"]


def with_images(
    task: Task, cameras: Mapping[str, tuple[int, int]] | Sequence[ImageSensor], hide: Collection[str] = ()
) -> Task:
    """Return a task with images among its observations, as fields ``<camera>_image``, uint8 (height, width, 3).

    The images are sensors of the robot: recorded in every row of a log, returned in batches, and delayed, held and lost
    according to the ``timing`` of a simulation. On a real robot they are the newest images of its cameras, scaled.
    Rewards, ends and success remain those of the task.

    Args:
        task: any task of a robot with cameras.
        cameras: camera -> width and height of its images in pixels, or the sensors themselves.
        hide: names of observation fields that the agent no longer observes; they become part of the privileged state,
            which a critic may use in training.

    Raises:
        SpecError: a hidden field is not in the observation, or the robot has no such camera.
    """
    sensors = tuple(cameras) if isinstance(cameras, Sequence) else _sensors(cameras)
    unknown = [name for name in hide if name not in task.observation]
    if unknown:
        raise SpecError(f"{task.name!r} has no observation {unknown[0]!r}, it has {', '.join(task.observation.names)}")
    kind = _class_for(type(task))
    changed = kind.__new__(kind)
    computed = ("observation", "state", "robot_model")
    vars(changed).update({name: value for name, value in vars(task).items() if name not in computed})
    vars(changed).update(_inner=task, _sensors=sensors, _hidden=tuple(hide))
    return cast("Task", changed)


def _sensors(cameras: Mapping[str, tuple[int, int]]) -> tuple[ImageSensor, ...]:
    return tuple(ImageSensor(name, *size) for name, size in cameras.items())


@cache
def _class_for(kind: type) -> type[_ImageTask]:
    """Return the class of a task's kind that observes images: it keeps all optional members of the kind."""
    return type(f"{kind.__name__}WithImages", (_ImageTask, kind), {"__module__": __name__})


class _ImageTask:
    """The members of a task that images change. The others are those of the task's own class."""

    _inner: Task
    _sensors: tuple[ImageSensor, ...]
    _hidden: tuple[str, ...]

    @cached_property
    def observation(self) -> Spec:
        """The task's observation without the hidden fields, and the images."""
        inner = self._inner.observation
        images = [sensor.field for sensor in self._sensors]
        return Spec(f"{inner.name}_images", (*(field for field in inner if field.name not in self._hidden), *images))

    @cached_property
    def state(self) -> Spec:
        """The task's privileged state, and the fields that are hidden from the agent."""
        inner = self._inner
        return Spec(inner.state.name, (*inner.state.fields, *(inner.observation[name] for name in self._hidden)))

    @cached_property
    def robot_model(self) -> RobotModel:
        """The task's robot model, with the images among its sensors."""
        return replace(robot_model_of(self._inner), image_sensors=self._sensors)

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the observation, by the names in ``observation``."""
        observed = {**sensors, **self._inner.observe(sensors, goal)}
        return {name: observed[name] for name in self.observation.names}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the privileged state, by the names in ``state``."""
        observed = self._inner.observe(sensors, goal) if self._hidden else {}
        return {**self._inner.privileged(sensors, goal), **{name: observed[name] for name in self._hidden}}

    def flat_hints(self) -> FlatHints:
        """Return the task's hints without those of hidden fields; a pixel's 0 to 255 becomes 0 to 2."""
        hints = self._inner.flat_hints() if isinstance(self._inner, HasFlatHints) else FlatHints()
        kept = self.observation
        return replace(
            hints,
            scales={name: scale for name, scale in hints.scales.items() if name in kept},
            differences=tuple(gap for gap in hints.differences if gap.minuend in kept and gap.subtrahend in kept),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return with_images, (self._inner, self._sensors, self._hidden)
