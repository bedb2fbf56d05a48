"""Make a task without a goal from a robot or a MuJoCo model: the action is its command, the observation its sensors."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hal import Field, Robot, RobotSpec, Spec
from hal.errors import wrong_type
from rlenv_robot.config.plugins import load_object
from rlenv_robot.robot_models import (
    RobotModel,
    build,
    find_robot_model,
    is_robot_file,
    load_robot_model,
    make_driver,
    robot_names,
)
from rlenv_robot.tables import Options
from rlenv_robot.tasks.task import Arrays, Episode, check_settings

__all__ = ["FREE", "Free", "free_task"]

FREE = "free"
"""The word for a task without a goal of whatever robot is driven (`free_task`)."""

_ELEMENT = re.compile(r"([a-z0-9_]+)(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Free:
    """Move a robot, or the robot of a MuJoCo model (MJCF), without a goal.

    The action is the robot's command, the observation its sensors. For a MuJoCo model these are its actuators, and its
    joints and sensors, as described by `sim.mjcf.robot.from_mjcf`. The reward of a step is the measured value
    ``reward_from`` after it, or else 0. An episode ends by its time limit only.

    Attributes:
        path: the path of the robot's file, a MuJoCo model (``.xml``) or a table of an arm's joints (``.arm.toml``); or
            the name of a robot model, such as ``so101``, or of the one in ``model``.
        reward_from: the measured value that is the reward, such as ``tip[2]``; empty for none.
        start_noise: maximum distance of each hinge (rad) and slide (m) from the model's start, for a file's model.
        steps: length of an episode in control periods.
        model: the robot's model, for a robot that is not registered; None looks ``path`` up.

    Raises:
        ValueError: a setting is out of range, or ``reward_from`` is not a measured value.
        SpecError: the file is missing, or contains no robot.
    """

    path: str
    reward_from: str = ""
    start_noise: float = 0.0
    steps: int = 500
    model: RobotModel | None = None

    def __post_init__(self) -> None:
        check_settings(self.steps)
        if not 0 <= self.start_noise < np.inf:
            raise ValueError(f"start_noise is {self.start_noise}, it must be 0 or above")
        if self.start_noise and not is_robot_file(self.path):
            raise ValueError(f"start_noise is for the file of a MuJoCo model, and this is the robot {self.path!r}")
        self._rewarded  # noqa: B018  # what can't be measured is said now, and not in the first step

    @staticmethod
    def of_registered(robot: str, steps: int) -> Free:
        """Return the task of a robot with a name from a peer on the network or a log.

        Raises:
            ValueError: no robot model of this name is registered.
        """
        return Free(find_robot_model(robot).name, steps=steps)

    @staticmethod
    def of_spec(spec: RobotSpec, steps: int = 500) -> Free:
        """Return the task of a robot that describes itself: a driver, or a peer on the network.

        Args:
            spec: its description. If a robot model of its name is registered, that one counts.
            steps: length of an episode in control periods.
        """
        if spec.name in robot_names():
            return Free.of_registered(spec.name, steps)
        return Free(spec.name, steps=steps, model=RobotModel(spec.name, spec))

    @property
    def name(self) -> str:
        """The task's name: the path of the file as given."""
        return self.path

    @property
    def robot(self) -> str:
        """The robot's name: that of the model."""
        return self.robot_model.load_spec().name

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model of the file, or the one with that name."""
        if self.model is not None:
            return self.model
        if not is_robot_file(self.path):
            return load_robot_model(self.path)
        return RobotModel.from_file(self.path, self.start_noise)

    @cached_property
    def observation(self) -> Spec:
        """The observation: all sensors of the robot."""
        return replace(self._sensors, name=self._sensors.name.removesuffix("_sensors") + "_observation")

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's own command."""
        commands = self.robot_model.load_spec().commands
        return replace(commands, name=commands.name.removesuffix("_commands") + "_action")

    @cached_property
    def goal(self) -> Spec:
        """The goal: none."""
        return Spec("free_goal")

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec("free_state")

    @property
    def _sensors(self) -> Spec:
        return self.robot_model.load_spec().sensors

    @cached_property
    def _rewarded(self) -> tuple[Field, int] | None:
        """The rewarded sensor, and the index of its element in C order; None without one."""
        if not self.reward_from:
            return None
        match = _ELEMENT.fullmatch(self.reward_from)
        if match is None or match[1] not in self._sensors:
            names = ", ".join(self._sensors.names)
            raise ValueError(f"reward_from is {self.reward_from!r}; expected a sensor, such as tip[2], of: {names}")
        field = self._sensors[match[1]]
        if (match[2] is None and field.shape) or int(match[2] or 0) >= field.size:
            allowed = f"{field.name}[0] to {field.name}[{field.size - 1}]" if field.shape else field.name
            raise ValueError(f"reward_from is {self.reward_from!r}, which is not a single number; expected {allowed}")
        return field, int(match[2] or 0)

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Return an episode without a goal; the robot's reset draws the start."""
        if options.get("goal"):
            self.goal.validate(options["goal"], "goal")  # refuses any
        return Episode({})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors."""
        return dict(sensors)

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class defines; shape = leading axes."""
        if self._rewarded is None:
            return np.zeros(self._leading(following))
        field, element = self._rewarded
        flat = following[field.name].reshape(*self._leading(following), field.size)
        return np.asarray(flat[..., element], np.float64)

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return False everywhere: the task has no end."""
        return np.zeros(self._leading(sensors), bool)

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return False everywhere: the task has no goal."""
        return np.zeros(self._leading(sensors), bool)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return no metrics."""
        return {}

    def _leading(self, sensors: Arrays) -> tuple[int, ...]:
        first = self._sensors.fields[0]
        shape = np.shape(sensors[first.name])
        return shape[: len(shape) - len(first.shape)]


def free_task(robot: str | Robot, keys: str | Path | None = None, **options: object) -> Free:
    """Return a task without a goal for a robot that describes itself, so that no task need name it.

    The action is its command and the observation its sensors; an episode ends by its time limit or a person
    (`rlenv_robot.tasks.free.Free`).

    Args:
        robot: the address of a server; a driver as ``module:factory``; or a `hal.Robot` object.
        keys: for a server: the folder of this machine's keys.
        options: the task's settings: ``steps``.

    Raises:
        TypeError: ``robot`` is an object of another kind.
        ValueError: ``robot`` is a word for something else, or a setting is unknown.
        RobotError: the server can't be reached.
    """

    spec = _described(robot, keys)

    def of(steps: int = 500) -> Free:
        return Free.of_spec(spec, steps)

    return build(of, FREE, options)


def _described(where: str | Robot, keys: str | Path | None) -> RobotSpec:
    """Return the description that a robot gives of itself."""
    if isinstance(where, Robot) and not isinstance(where, type):
        return where.spec
    if not isinstance(where, str):
        raise wrong_type("robot", where, "an address, a driver as module:factory, or a hal.Robot object")
    if "://" in where:
        from real.client.robot import RemoteRobot

        remote = RemoteRobot(where, keys=keys)
        try:
            return remote.spec
        finally:
            remote.close()
    if ":" in where:
        spec = getattr(load_object(where, Path.cwd()), "spec", None)
        if isinstance(spec, RobotSpec):
            return spec
        driver = make_driver(where, folder=Path.cwd())
        try:
            return driver.spec
        finally:
            driver.close()
    raise ValueError(
        f"{FREE!r} moves a robot that describes itself, and robot is {where!r}; give the address of a server, such as "
        "'tcp://127.0.0.1:5555' (rlenv-robot serve my_arm.toml), or a driver as module:factory"
    )
